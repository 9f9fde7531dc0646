"""The HTTP server: who asks, what about, whether they may, and the answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import structlog
from aiohttp import web

from client.temporal.control_plane import ControlPlane
from front.access.access_file import AccessRules, User
from front.access.authentication import authenticate
from front.page.files import SETTINGS, Page
from front.serving import access_reviews, bodies, discovery, errors, openapi, protobuf
from front.serving.reading import Form, Parameters, get, listed
from front.serving.requests import SCALE, STATUS, Resource, resource_of
from front.serving.scaling import scale_of
from front.serving.watching import Watch, goes_on, streamed
from front.serving.writing import Writer
from front.store.projection import Projection, Tree

log = structlog.get_logger("modelplane.front")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_WARNING_BYTES_MAX = 4096
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BODY_SECONDS = 30.0
_OPEN = ("/healthz", "/livez", "/readyz")
_VERSION = {"major": "1", "minor": "32", "gitVersion": "v1.32.0+modelplane", "platform": "linux/amd64"}


class Front:
    """Answers requests, from the projection and by the workflows."""

    def __init__(
        self, plane: ControlPlane, projection: Projection, rules: AccessRules | None, page_settings: Mapping[str, str] | None = None
    ) -> None:
        """`rules` None: everybody who reaches this server may do everything, which is for a loopback address alone."""
        self._projection, self._rules = projection, rules
        self._page, self._page_settings = Page(), dict(page_settings or {})
        self._writer = Writer(plane, projection)

    def app(self) -> web.Application:
        """Give the application."""
        app = web.Application(middlewares=[self._guard], client_max_size=bodies.BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    # --- every request ----------------------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every refusal into a Status, and every failure of ours into one that shows nothing of it."""
        try:
            return await handler(request)
        except errors.Refused as refusal:
            return _json(refusal.status, refusal.code)
        except web.HTTPRequestEntityTooLarge:
            too_large = errors.too_large(bodies.BYTES_MAX)
            return _json(too_large.status, too_large.code)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            log.exception("a request failed", method=request.method, path=request.path[:512], exc_info=error)
            failure = errors.Refused(500, "InternalError", "an error of this server; its log has the details")
            return _json(failure.status, failure.code)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in _OPEN:
            return self._health(path)
        if file := self._page.answer(request, path):
            return file
        if any(name.lower().startswith("impersonate-") for name in request.headers):
            raise errors.Refused(403, "Forbidden", "impersonation is not possible here; use a token of that user")
        user = self._user(request)
        if path == SETTINGS and request.method in ("GET", "HEAD"):
            return _json(self._page_settings)
        if path.startswith(("/api", "/openapi", "/version")) or path == "/":
            found = resource_of(path)
            if found:
                return await self._on_resource(request, found, user)
            if path == access_reviews.PATH and request.method == "POST":
                review = await bodies.apart(_review, await _read(request))
                return _json(access_reviews.reviewed(review, user, self._rules), 201)
            if request.method in ("GET", "HEAD") and (document := _document(path, request.headers.get("Accept", ""))):
                return _json(document, content_type=_content_type(document))
        raise errors.Refused(404, "NotFound", "the server could not find the requested resource")

    def _health(self, path: str) -> web.Response:
        if path == "/readyz" and not self._projection.complete:
            return web.Response(status=503, text="the objects are not read yet\n")
        return web.Response(text="ok\n")

    def _user(self, request: web.Request) -> User:
        if self._rules is None:
            # A page in a browser of this machine can send requests here too, under the name of a host of its own.
            if "Origin" in request.headers or (request.url.host or "") not in _LOOPBACK:
                raise errors.Refused(403, "Forbidden", "without an access file only programs of this machine are served")
            return User("system:anonymous-admin")
        if problem := self._rules.refresh():
            log.error("the access file cannot be read; the one of before holds", problem=problem)
        user = authenticate(request.headers.getall("Authorization", []), self._rules)
        if user is None:
            raise errors.unauthorized()
        return user

    # --- objects ----------------------------------------------------------------------------------------------------------------------

    async def _on_resource(self, request: web.Request, resource: Resource, user: User) -> web.StreamResponse:
        parameters = request.query
        verb = _verb(request.method, resource, parameters)
        self._authorize(user, resource, verb)
        if not self._projection.complete:
            raise errors.unavailable("the objects are not read yet; ask again in a moment")
        form = Form.of(request.headers.get("Accept", ""), parameters)
        if verb == "watch":
            watch = Watch(self._projection, resource, parameters, form)
            return await streamed(request, watch.lines(goes_on(request, lambda: self._may_watch(request, resource))))
        if verb == "list":
            return _json(listed(self._projection, resource, parameters, form))
        if verb == "get":
            tree = get(self._projection, resource)
            return _json(scale_of(resource, tree) if resource.subresource == SCALE else form.one(resource, tree))
        return await self._write(request, resource, verb, user, form)

    def _may_watch(self, request: web.Request, resource: Resource) -> bool:
        try:
            self._authorize(self._user(request), resource, "watch")
        except errors.Refused:
            return False
        return True

    def _authorize(self, user: User, resource: Resource, verb: str) -> None:
        attempt = resource.attempt(verb)
        if self._rules is None or self._rules.allows(user, attempt):
            return
        where = f'in the namespace "{resource.namespace}"' if resource.namespace else "at the cluster scope"
        info = resource.info
        message = f'User "{user.name}" cannot {verb} resource "{resource.plural}" in API group "{info.group}" {where}'
        raise errors.forbidden(info.group, info.plural, resource.name, message)

    async def _write(self, request: web.Request, resource: Resource, verb: str, user: User, form: Form) -> web.Response:
        dry = _dry(request.query)
        body = await _read(request)
        content_type = request.headers.get("Content-Type", "")
        if verb in ("delete", "deletecollection"):
            options = await bodies.apart(bodies.parse_object, body) if body.strip() else {}
            options |= {"propagationPolicy": request.query["propagationPolicy"]} if "propagationPolicy" in request.query else {}
            dry = dry or bool(options.get("dryRun"))
            if verb == "deletecollection":
                return await self._delete_all(request, resource, options, user, form, dry=dry)
            tree = await self._writer.delete(resource, options, user.name, dry=dry)
            return _json(form.one(resource, tree) if tree.get("kind") != "Status" else tree)
        if resource.subresource == SCALE:
            wanted = partial(self._body_of_scale, body, content_type, verb)
            return _json(await self._writer.scale(resource, wanted, user.name, dry=dry))
        if verb == "patch":
            kind = bodies.media_type(content_type, bodies.PATCHES)
            patch = await bodies.apart(bodies.parse, body)
            tree, warnings = await self._writer.patch(resource, kind, patch, user.name, dry=dry)
        else:
            bodies.media_type(content_type, bodies.OBJECTS)
            write = self._writer.create if verb == "create" else self._writer.update
            tree, warnings = await write(resource, await bodies.apart(bodies.parse_object, body), user.name, dry=dry)
        return _json(form.one(resource, tree), 201 if verb == "create" else 200, warnings)

    def _body_of_scale(self, body: bytes, content_type: str, verb: str, before: Tree) -> Tree:
        if verb == "patch":
            return bodies.patched(before, bodies.media_type(content_type, bodies.PATCHES), bodies.parse(body))
        bodies.media_type(content_type, bodies.OBJECTS)
        return bodies.parse_object(body)

    async def _delete_all(
        self, request: web.Request, resource: Resource, options: Tree, user: User, form: Form, *, dry: bool
    ) -> web.Response:
        found = listed(self._projection, resource, {key: value for key, value in request.query.items() if key != "limit"}, Form())
        for tree in found["items"]:
            named = Resource(resource.info, resource.namespace, tree["metadata"]["name"])
            mine = {**options, "preconditions": {"uid": tree["metadata"].get("uid")}}
            try:
                await self._writer.delete(named, mine, user.name, dry=dry)
            except errors.Refused as refusal:
                # It is gone, or another one by now.
                if refusal.code not in (404, 409):
                    raise
        return _json(form.many(resource, found["items"], found["metadata"]))


async def _read(request: web.Request) -> bytes:
    """Read the body. Raises `Refused` for one that does not come."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise errors.Refused(408, "Timeout", "the body of the request did not arrive in time") from None


def _verb(method: str, resource: Resource, parameters: Parameters) -> str:
    """Give the verb of a request. Raises `Refused` for a method that the resource does not have."""
    if method in ("GET", "HEAD"):
        if method == "GET" and parameters.get("watch") in ("true", "1") and not resource.subresource:
            return "watch"
        return "get" if resource.name else "list"
    if not resource.info.user_may_apply or resource.subresource == STATUS:
        raise errors.method_not_allowed(method)
    on_objects = {"PUT": "update", "PATCH": "patch"} | ({} if resource.subresource else {"DELETE": "delete"})
    allowed: Mapping[str, str] = on_objects if resource.name else {"POST": "create", "DELETE": "deletecollection"}
    if method not in allowed or (method in ("POST", "DELETE") and resource.info.namespaced and not resource.namespace):
        raise errors.method_not_allowed(method)
    return allowed[method]


def _review(body: bytes) -> Tree:
    return protobuf.access_review(body) if body.startswith(protobuf.MAGIC) else bodies.parse_object(body)


def _dry(parameters: Parameters) -> bool:
    value = parameters.get("dryRun", "")
    if value not in ("", "All"):
        raise errors.bad_request(f"dryRun: {value[:64]!r} is not All")
    return value == "All"


def _document(path: str, accept: str) -> Tree | None:
    """Give a document that is the same for everybody."""
    parts = path.strip("/").split("/")
    aggregated = discovery.aggregated_version(accept)
    match parts:
        case [""]:
            return {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}
        case ["version"]:
            return _VERSION
        case ["api"]:
            return discovery.aggregated(aggregated, core_group=True) if aggregated else discovery.core()
        case ["apis"]:
            return discovery.aggregated(aggregated) if aggregated else discovery.groups()
        case ["apis", group] if discovery.has(group):
            return discovery.group(group)
        case ["apis", group, version] if discovery.has(group, version):
            return discovery.resources(group, version)
        case ["openapi", "v3"]:
            return openapi.index()
        case ["openapi", "v3", "apis", group, version] if discovery.has(group, version):
            return openapi.document(group, version)
    return None


def _content_type(document: Tree) -> str:
    api_version = str(document.get("apiVersion", ""))
    if api_version.startswith(discovery.AGGREGATED):
        return f"application/json;g={discovery.AGGREGATED};v={api_version.rpartition('/')[2]};as=APIGroupDiscoveryList"
    return "application/json"


def _json(tree: Any, status: int = 200, warnings: tuple[str, ...] = (), content_type: str = "application/json") -> web.Response:
    response = web.Response(status=status, body=json.dumps(tree, separators=(",", ":")).encode(), headers={"Content-Type": content_type})
    for warning in warnings[:20]:
        text = warning.encode("ascii", "replace").decode()[:_WARNING_BYTES_MAX].replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response
