"""The HTTP server: who asks, what about, whether they may, and the answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError

from client.temporal.control_plane import ControlPlane
from front.access.access import Access
from front.access.access_file import ANYBODY, Attempt, User
from front.access.issuer import Admit
from front.access.limits import Limits, TooMany
from front.access.request_header import TEXTS_MAX, Unusable
from front.access.reviews import Unanswered
from front.access.tokens import API_KEY, Token, any_token, bearer_token
from front.audit.event import AuditEvent
from front.audit.log import AuditLog
from front.page.files import SETTINGS, Page
from front.serving import access_reviews, bodies, errors
from front.serving.auditing import READING, Auditing, event_of, note_resource, note_user, user_of
from front.serving.documents import discovery, openapi, openapi_v2
from front.serving.lobby import Lobby
from front.serving.managers import OPTIONS, Manager
from front.serving.reading import Form, Parameters, encoded, get, listed
from front.serving.requests import SCALE, STATUS, Resource, namespace_of, resource_of
from front.serving.sending import InParts, ended, note_begun, sent
from front.serving.watching import Watch, goes_on, streamed
from front.serving.writing import Writer
from front.serving.written import STRICT, scale_of, validation_of
from front.store.projection import Projection, Tree

log = structlog.get_logger("modelplane.front")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_WARNING_BYTES_MAX = 4096
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BODY_SECONDS = 30.0
WRITE_SECONDS = 50.0
"""How long a write may take from its arrival, whatever it waits for: API servers that pass requests on wait 60 seconds."""
_LATE = "this took too long; what was sent to Temporal before is carried out once a worker can: read the object before you repeat it"
# Beside those in which an API server names a user with all groups.
_OTHER_HEADERS_MAX = 128


class _NoRequests(logging.Filter):
    """Makes a line for those who debug of what is no request of HTTP: anybody may send that, and each would be a traceback in the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Alter the record in place; the handler drops those below its level."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
            record.exc_info = record.exc_text = None
        return True


_SERVER_LOG = logging.getLogger("modelplane.front.server")
_SERVER_LOG.addFilter(_NoRequests())
RUNNER_OPTIONS: Mapping[str, Any] = {
    "auto_decompress": False,
    "max_headers": TEXTS_MAX + _OTHER_HEADERS_MAX,
    "logger": _SERVER_LOG,
}
"""Of the server that runs the application: it unpacks no body, not even one that is refused and thrown away."""
_JSON = "application/json"
_OPEN = ("/healthz", "/livez", "/readyz")
_VERSION = {"major": "1", "minor": "32", "gitVersion": "v1.32.0+modelplane", "platform": "linux/amd64"}


class Front:
    """Answers requests, from the projection and by the workflows."""

    def __init__(
        self,
        plane: ControlPlane,
        projection: Projection,
        access: Access,
        page_settings: Mapping[str, str] | None = None,
        *,
        limits: Limits | None = None,
        audit_log: AuditLog | None = None,
        lobby: Lobby | None = None,
    ) -> None:
        """`access` that is open is for a loopback address alone."""
        self._lobby = Lobby() if lobby is None else lobby
        self.projection, self._access = projection, access
        self.limits, self._auditing = limits or Limits(None), Auditing(audit_log)
        self._page, self._page_settings = Page(), dict(page_settings or {})
        self.writer = Writer(plane, projection)

    def app(self, routes: Sequence[web.AbstractRouteDef] = ()) -> web.Application:
        """Give the application. `routes`: of what it serves besides the Kubernetes API; writes and refusals are treated as all are."""
        app = web.Application(middlewares=[self._send, self._auditing.middleware, self._guard, self._learn])
        app.on_cleanup.append(self._auditing.end)
        app.on_response_prepare.append(note_begun)
        app.router.add_routes(routes)
        # With line breaks too: whatever the path is, it is answered here.
        app.router.add_route("*", r"/{path:[\s\S]*}", self._answer)
        return app

    # --- every request ----------------------------------------------------------------------------------------------------------------

    @web.middleware
    async def _send(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Send every answer, and count it as a request of its user for so long."""
        response = await handler(request)
        user = user_of(request)
        with self.limits.sending(user) if user else nullcontext():
            return await sent(request, response)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every refusal into a Status, and every failure of ours into one that shows nothing of it."""
        late = asyncio.timeout(None if request.method in READING else WRITE_SECONDS)
        try:
            async with late:
                return await handler(request)
        except errors.Refused as refusal:
            answer = _refusal(refusal)
        except TooMany as limit:
            answer = _refusal(errors.too_many(limit.message, limit.seconds))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            failure = errors.unavailable(_LATE)
            if not late.expired():
                log.exception("a request failed", method=request.method, path=request.path[:512], exc_info=error)
                failure = errors.Refused(500, "InternalError", "an error of this server; its log has the details")
            answer = _refusal(failure)
        return ended(request) or answer

    @web.middleware
    async def _learn(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Read keys of the issuer of a token where that has to be done, before it is asked whose the token is."""
        if request.path.rstrip("/") not in _OPEN:
            await self._access.learn(_token(request, any_token), lambda: self.limits.checking(request.remote or ""))
        # The target of a CONNECT is no path, so no route has it.
        return await (handler if request.match_info.http_exception is None else self._answer)(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in _OPEN:
            return self._health(path)
        if file := self._page.answer(request, path):
            # It is the same for everybody, so nobody is asked who they are.
            self.limits.page_asks(request.remote or "")
            return file
        with self.admitted(request, watch=_is_watch(request.method, request.query)) as user:
            return await self._routed(request, path, user)

    async def _routed(self, request: web.Request, path: str, user: User) -> web.StreamResponse:
        if path == SETTINGS and request.method in ("GET", "HEAD"):
            return json_response(self._page_settings)
        if path.startswith(("/api", "/openapi", "/version")) or path == "/":
            found = resource_of(path)
            if found:
                return await self._on_resource(request, found, user)
            if path in access_reviews.PATHS and request.method == "POST":
                review = await bodies.apart(access_reviews.parsed, path, await read(request, bodies.SMALL_BYTES_MAX))
                return json_response(await access_reviews.answered(path, review, user, self._access), 201)
            if request.method in ("GET", "HEAD") and (document := _document(path, request.headers.get("Accept", ""))):
                return json_response(document, content_type=_content_type(document))
            if request.method in ("GET", "HEAD") and (namespace := namespace_of(path)):
                raise errors.no_namespaces(namespace)
        raise errors.Refused(404, "NotFound", "the server could not find the requested resource")

    def _health(self, path: str) -> web.Response:
        if path == "/readyz" and not self.projection.complete:
            return web.Response(status=503, text="the objects are not read yet\n")
        return web.Response(text="ok\n")

    @contextmanager
    def admitted(self, request: web.Request, token: Token = bearer_token, *, watch: bool = False) -> Iterator[User]:
        """Give who asks, and count the request for as long as it is being answered. Raises `Refused`, `TooMany`.

        `token`: reads the token from the headers.
        """
        with self.limits.unknown(request.remote or ""):
            user = self.user_of(request, token, lambda: self.limits.checking(request.remote or ""))
        self.note_known(request, user)
        with self.limits.admitted(user.name, watch=watch):
            if any(name.lower().startswith("impersonate-") for name in request.headers):
                raise errors.Refused(403, "Forbidden", "impersonation is not possible here; use a token of that user")
            yield user

    def note_known(self, request: web.Request, user: User) -> None:
        """Record whose request it is. Its connection leaves the lobby."""
        note_user(request, user)
        if request.transport is not None:
            self._lobby.leave(request.transport.get_extra_info("peername"))

    def user_of(self, request: web.Request, token: Token = bearer_token, admit: Admit = nullcontext) -> User:
        """Give who asks, and count nothing. Raises `Refused`, and what `admit` raises for a token that must be checked."""
        if self._access.is_open:
            # A page in a browser of this machine can send requests here too, under the name of a host of its own.
            if "Origin" in request.headers or _host(request) not in _LOOPBACK:
                raise errors.Refused(403, "Forbidden", "without an access file only programs of this machine are served")
            return ANYBODY
        self.refresh()
        try:
            user = self._access.user_of(_token(request, token), request.headers, request.transport, admit)
        except Unusable as problem:
            raise errors.unauthorized(f"Unauthorized: {problem}") from None
        if user is None:
            raise errors.unauthorized()
        return user

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches this server may do everything."""
        return self._access.is_open

    def check_complete(self) -> None:
        """Raise `Refused` (503) while it is not known which objects there are."""
        if not self.projection.complete:
            raise errors.not_yet("the objects are not read yet; ask again in a moment")

    def refresh(self) -> None:
        """Read the access file again if it has changed."""
        if problem := self._access.refresh():
            log.error("the access file cannot be read; the one of before holds", problem=problem)

    # --- objects ----------------------------------------------------------------------------------------------------------------------

    async def _on_resource(self, request: web.Request, resource: Resource, user: User) -> web.StreamResponse:
        parameters = request.query
        note_resource(request, resource)
        verb = _verb(request.method, resource, parameters)
        note_resource(request, resource, verb)
        await self.authorize(user, resource, verb)
        self.check_complete()
        form = Form.of(request.headers.get("Accept", ""), parameters)
        if verb == "watch":
            watch = Watch(self.projection, resource, parameters, form)
            return await streamed(request, watch.lines(goes_on(request, lambda: self._may_watch(request, resource))))
        if verb == "list":
            found = await listed(self.projection, resource, parameters)
            return InParts(await found.parts(form), _JSON)
        if verb == "get":
            tree = get(self.projection, resource)
            return json_response(scale_of(resource, tree) if resource.subresource == SCALE else form.one(resource, tree))
        return await self._write(request, resource, verb, form, user)

    async def _may_watch(self, request: web.Request, resource: Resource) -> bool:
        await self._access.learn(_token(request, bearer_token))
        try:
            await self.authorize(self.user_of(request), resource, "watch")
        except errors.Refused:
            return False
        return True

    async def authorize(self, user: User, resource: Resource, verb: str) -> None:
        """Raise `Refused` if a user may not do this, whether the object exists or not."""
        self.refresh()
        attempt = resource.attempt(verb)
        if await self._allows(user, attempt):
            return
        where = f'in the namespace "{resource.namespace}"' if resource.namespace else "at the cluster scope"
        info = resource.info
        message = f'User "{user.name}" cannot {verb} resource "{resource.plural}" in API group "{info.group}" {where}'
        raise errors.forbidden(info.group, info.plural, resource.name, message)

    async def _allows(self, user: User, attempt: Attempt) -> bool:
        try:
            return await self._access.allows(user, attempt)
        except Unanswered as silence:
            raise errors.undecided() from silence

    async def _write(self, request: web.Request, resource: Resource, verb: str, form: Form, user: User) -> web.StreamResponse:
        event = event_of(request)
        event.dry_run = dry = _dry(request)
        validation = validation_of(request.query, verb) if verb in OPTIONS else STRICT
        body = await read(request, bodies.SMALL_BYTES_MAX if resource.subresource == SCALE else bodies.BYTES_MAX)
        content_type = request.headers.get("Content-Type", "")
        if verb in ("delete", "deletecollection"):
            options = await bodies.apart(bodies.parse_object, body) if body.strip() else {}
            options |= {"propagationPolicy": request.query["propagationPolicy"]} if "propagationPolicy" in request.query else {}
            event.dry_run = dry = dry or bool(options.get("dryRun"))
            if verb == "deletecollection":
                return await self._delete_all(request, resource, options, form, dry=dry)
            tree = await self.writer.delete(resource, options, event, dry=dry)
            return json_response(form.one(resource, tree) if tree.get("kind") != "Status" else tree)
        if resource.subresource == SCALE:
            return json_response(await self._scale(resource, body, content_type, verb, event, dry=dry))
        types = (*bodies.PATCHES, bodies.APPLY) if verb == "patch" else bodies.OBJECTS
        kind = bodies.media_type(content_type, types, silent=bodies.JSON if verb == "update" else "")
        manager = Manager.of(request.query, request.headers.get("User-Agent", ""), verb, is_apply=kind == bodies.APPLY)
        if kind == bodies.APPLY:

            async def may_create() -> None:
                await self.authorize(user, resource, "create")

            config = await bodies.apart(bodies.parse_object, body)
            tree, warnings, created = await self.writer.apply(resource, config, manager, event, may_create, dry=dry)
            return json_response(form.one(resource, tree), 201 if created else 200, warnings)
        if verb == "patch":
            tree, warnings = await self.writer.patch(
                resource, kind, await bodies.apart(bodies.parse, body), manager, event, dry=dry, validation=validation
            )
        elif verb == "create":
            tree, warnings = await self.writer.create(
                resource, await bodies.apart(bodies.parse_object, body), event, dry=dry, validation=validation
            )
        else:
            document, reason = await bodies.apart(bodies.parse_object, body), request.query.get("reason", "")
            tree, warnings = await self.writer.update(resource, document, manager, event, dry=dry, reason=reason, validation=validation)
        return json_response(form.one(resource, tree), 201 if verb == "create" else 200, warnings)

    async def _scale(self, resource: Resource, body: bytes, content_type: str, verb: str, event: AuditEvent, *, dry: bool) -> Tree:
        if verb == "patch":
            kind = bodies.media_type(content_type, bodies.PATCHES)
            return await self.writer.patch_scale(resource, kind, await bodies.apart(bodies.parse, body), event, dry=dry)
        bodies.media_type(content_type, bodies.OBJECTS, silent=bodies.JSON)
        wanted = await bodies.apart(bodies.parse_object, body)
        return await self.writer.scale(resource, lambda _: wanted, event, dry=dry)

    async def _delete_all(self, request: web.Request, resource: Resource, options: Tree, form: Form, *, dry: bool) -> web.StreamResponse:
        found = await listed(self.projection, resource, {key: value for key, value in request.query.items() if key != "limit"})
        for stored in found.held:
            named = Resource(resource.info, resource.namespace, stored.tree["metadata"]["name"])
            mine = {**options, "preconditions": {"uid": stored.uid}}
            try:
                await self.writer.delete(named, mine, event_of(request), dry=dry)
            except errors.Refused as refusal:
                # It is gone, or another one by now.
                if refusal.code not in (404, 409):
                    raise
        return InParts(await found.parts(form), _JSON)


async def read(request: web.Request, bytes_max: int = bodies.BYTES_MAX) -> bytes:
    """Read the body of a request. Raises `Refused` for one that does not come, is compressed, or has more than `bytes_max`.

    A signature is of the bytes that were sent, and what is unpacked could be much more than what a body may have.
    """
    if any(value.strip().lower() not in ("", "identity") for value in request.headers.getall("Content-Encoding", [])):
        raise errors.compressed()
    if (request.content_length or 0) > bytes_max:
        raise errors.too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while part := await request.content.readany():
                body += part
                if len(body) > bytes_max:
                    raise errors.too_large(bytes_max)
    except TimeoutError:
        raise errors.Refused(408, "Timeout", "the body of the request did not arrive in time") from None
    except (web.RequestPayloadError, BadHttpMessage) as error:
        raise errors.bad_request(f"the body of the request cannot be read: {str(error)[:256]!r}; send it again") from None
    return bytes(body)


def _token(request: web.Request, read_token: Token) -> str | None:
    return read_token(request.headers.getall("Authorization", []), request.headers.getall(API_KEY, []))


def _host(request: web.Request) -> str:
    """Give the host that a request names; empty if it names none, or what is none."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _is_watch(method: str, parameters: Parameters) -> bool:
    return method == "GET" and parameters.get("watch") in ("true", "1")


def _verb(method: str, resource: Resource, parameters: Parameters) -> str:
    """Give the verb of a request. Raises `Refused` for a method that the resource does not have."""
    if method in ("GET", "HEAD"):
        if _is_watch(method, parameters) and not resource.subresource:
            return "watch"
        return "get" if resource.name else "list"
    if not resource.info.user_may_apply or resource.subresource == STATUS:
        raise errors.method_not_allowed(method)
    on_objects = {"PUT": "update", "PATCH": "patch"} | ({} if resource.subresource else {"DELETE": "delete"})
    allowed: Mapping[str, str] = on_objects if resource.name else {"POST": "create", "DELETE": "deletecollection"}
    if method not in allowed or (method in ("POST", "DELETE") and resource.info.namespaced and not resource.namespace):
        raise errors.method_not_allowed(method)
    return allowed[method]


def _dry(request: web.Request) -> bool:
    """Give whether nothing is to be changed. Raises `Refused` for what does not say it clearly."""
    values = request.query.getall("dryRun", [""])
    if len(values) > 1:
        raise errors.bad_request("dryRun: it may be given once")
    (value,) = values
    if value not in ("", "All"):
        raise errors.bad_request(f"dryRun: {value[:64]!r} is not All")
    return value == "All"


def _document(path: str, accept: str) -> Tree | None:
    """Give a document that is the same for everybody."""
    parts = path.strip("/").split("/")
    aggregated = discovery.aggregated_version(accept)
    match parts:
        case [""]:
            return {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}
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
        case ["openapi", "v2"]:
            return openapi_v2.document()
        case ["openapi", "v3"]:
            return openapi.index()
        case ["openapi", "v3", "apis", group, version] if discovery.has(group, version):
            return openapi.document(group, version)
    return None


def _content_type(document: Tree) -> str:
    api_version = str(document.get("apiVersion", ""))
    if api_version.startswith(discovery.AGGREGATED):
        return f"application/json;g={discovery.AGGREGATED};v={api_version.rpartition('/')[2]};as=APIGroupDiscoveryList"
    return _JSON


def _refusal(refused: errors.Refused) -> web.Response:
    response = json_response(refused.status, refused.code)
    if refused.retry_after:
        response.headers["Retry-After"] = str(refused.retry_after)
    return response


def json_response(tree: Any, status: int = 200, warnings: tuple[str, ...] = (), content_type: str = _JSON) -> web.Response:
    """Write an answer."""
    response = web.Response(status=status, body=encoded(tree), headers={"Content-Type": content_type})
    for warning in warnings[:20]:
        text = warning.encode("ascii", "replace").decode()[:_WARNING_BYTES_MAX].replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response
