"""The HTTP server: authenticates and authorizes requests, and routes them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import metadata
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError

from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import ANYBODY, Attempt, User
from front.access.issuer import Admit
from front.access.limits import Limits, TooMany
from front.access.request_header import TEXTS_MAX, InvalidUserHeader
from front.access.reviews import Unanswered
from front.access.tokens import API_KEY, Token, any_token, bearer_token
from front.audit.event import AuditEvent
from front.audit.log import AuditLog
from front.page.files import SETTINGS, PageFiles
from front.serving import access_reviews, bodies, errors
from front.serving.auditing import (
    READING,
    Auditing,
    event_of,
    note_resource,
    note_user,
    user_of,
)
from front.serving.documents import discovery, openapi, openapi_v2
from front.serving.formats.negotiation import ONLY_JSON, accepts_json
from front.serving.list_options import is_set, until_known, version
from front.serving.lobby import Lobby
from front.serving.reading import Form, Parameters, encoded, get, listed
from front.serving.requests import (
    SCALE,
    STATUS,
    RequestedResource,
    below_of,
    namespace_of,
    resource_of,
)
from front.serving.sending import InParts, ended, note_begun, sent
from front.serving.watching import Watch, goes_on, streamed
from front.serving.writes import delete_options
from front.serving.writes.admission import STRICT, validation_of
from front.serving.writes.managers import OPTIONS, Manager
from front.serving.writes.manifests import ManifestWrites
from front.serving.writes.object_workflows import ObjectWorkflows
from front.serving.writes.scale import ScaleWrites, scale_of
from front.serving.writes.turns import WriteTurns
from front.store.projection import Projection, Tree

log = structlog.get_logger("modelplane.front")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_WARNING_BYTES_MAX = 4096
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_BODY_SECONDS = 30.0
WRITE_SECONDS = 50.0
"""The time limit of a write from its arrival.

Aggregating API servers wait 60 seconds for their backends.
"""
_LATE = (
    "the request took too long; a change that was already sent to Temporal is made "
    "once a worker is available: read the object before you repeat the request"
)
# Used in addition to the headers in which an API server names a user with all groups.
_OTHER_HEADERS_MAX = 128


class _NoRequests(logging.Filter):
    """Logs malformed HTTP requests at the debug level.

    Anybody can send them, and aiohttp would write a traceback for each.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the level of the record; the handler drops records below its level."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno = logging.DEBUG
            record.levelname = logging.getLevelName(logging.DEBUG)
            record.exc_info = record.exc_text = None
        return True


_SERVER_LOG = logging.getLogger("modelplane.front.server")
_SERVER_LOG.addFilter(_NoRequests())
RUNNER_OPTIONS: Mapping[str, Any] = {
    "auto_decompress": False,
    "max_headers": TEXTS_MAX + _OTHER_HEADERS_MAX,
    "logger": _SERVER_LOG,
}
"""Options of the server.

It decompresses no body, not even the body of a rejected request.
"""
_JSON = "application/json"
_OPEN = ("/healthz", "/livez", "/readyz")
# kubectl reads the version of Kubernetes whose API the front serves, and `modelplane
# version` that of the front.
_VERSION = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+modelplane",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
    "modelplaneVersion": metadata.version("modelplane-temporal"),
}


class Front:
    """Serves API requests from the projection and through the workflows."""

    def __init__(
        self,
        plane: ControlPlane,
        projection: Projection,
        access: AccessControl,
        page_settings: Mapping[str, str] | None = None,
        *,
        limits: Limits | None = None,
        audit_log: AuditLog | None = None,
        lobby: Lobby | None = None,
    ) -> None:
        """Open `access` is only for loopback addresses."""
        self._lobby = Lobby() if lobby is None else lobby
        self.projection = projection
        self._access = access
        self.limits = limits or Limits(None)
        self._auditing = Auditing(audit_log)
        self._page = PageFiles()
        self._page_settings = dict(page_settings or {})
        self.workflows = ObjectWorkflows(plane, projection)
        turns = WriteTurns()
        self.scales = ScaleWrites(self.workflows, turns)
        self._manifests = ManifestWrites(self.workflows, turns, self.scales)

    def app(self, routes: Sequence[web.AbstractRouteDef] = ()) -> web.Application:
        """Return the application.

        `routes` are served in addition to the Kubernetes API, with the same audit and
        error handling.
        """
        app = web.Application(
            middlewares=[
                self._send,
                self._auditing.middleware,
                self._guard,
                self._learn,
            ]
        )
        app.on_cleanup.append(self._auditing.end)
        app.on_response_prepare.append(note_begun)
        app.router.add_routes(routes)
        # The pattern also matches line breaks, so that every path is handled here.
        app.router.add_route("*", r"/{path:[\s\S]*}", self._answer)
        return app

    # Every request

    @web.middleware
    async def _send(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Send the response, which counts as concurrent until it is sent."""
        response = await handler(request)
        response.headers.setdefault("Cache-Control", "no-cache, private")
        user = user_of(request)
        with self.limits.sending(user) if user else nullcontext():
            return await sent(request, response)

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Convert every exception to a Status.

        Internal errors do not reveal details.
        """
        late = asyncio.timeout(None if request.method in READING else WRITE_SECONDS)
        try:
            async with late:
                return await handler(request)
        except errors.RejectedRequest as refusal:
            answer = _refusal(refusal)
        except TooMany as limit:
            answer = _refusal(errors.too_many(limit.message, limit.seconds))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            failure = errors.unavailable(_LATE)
            if not late.expired():
                log.exception(
                    "a request failed",
                    method=request.method,
                    path=request.path[:512],
                    exc_info=error,
                )
                failure = errors.RejectedRequest(
                    500,
                    "InternalError",
                    "internal error; the log of the server has the details",
                )
            answer = _refusal(failure)
        return ended(request) or answer

    @web.middleware
    async def _learn(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Load the token issuer's keys if necessary, before the token is verified."""
        if request.path.rstrip("/") not in _OPEN:
            await self._access.learn(
                _token(request, any_token),
                lambda: self.limits.checking(request.remote or ""),
            )
        # The target of a CONNECT request is not a path, so the router matches no route.
        if request.match_info.http_exception is not None:
            return await self._answer(request)
        return await handler(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in _OPEN:
            return self._health(path)
        if file := self._page.answer(request, path):
            # The page is public, so it is served without authentication.
            self.limits.page_asks(request.remote or "")
            return file
        with self.admitted(
            request, watch=_is_watch(request.method, request.query)
        ) as user:
            return await self._routed(request, path, user)

    async def _routed(
        self, request: web.Request, path: str, user: User
    ) -> web.StreamResponse:
        if path == SETTINGS and request.method in ("GET", "HEAD"):
            return json_response(self._page_settings)
        if path.startswith(("/api", "/openapi", "/version")) or path == "/":
            found = resource_of(path)
            if found:
                return await self._on_resource(request, found, user)
            if path in access_reviews.PATHS and request.method == "POST":
                review = await bodies.apart(
                    access_reviews.parsed,
                    path,
                    await read(request, bodies.SMALL_BYTES_MAX),
                )
                return json_response(
                    await access_reviews.answered(path, review, user, self._access), 201
                )
            accept = request.headers.get("Accept", "")
            if request.method in ("GET", "HEAD") and (
                document := _document(path, accept)
            ):
                if not (accepts_json(accept) or _content_type(document) != _JSON):
                    raise errors.not_acceptable(ONLY_JSON)
                return json_response(document, content_type=_content_type(document))
            if unserved := below_of(path):
                info = unserved.info
                raise errors.not_found(info.group, info.plural, unserved.name)
            if request.method in ("GET", "HEAD") and (namespace := namespace_of(path)):
                raise errors.no_namespaces(namespace)
        raise errors.RejectedRequest(
            404, "NotFound", "the server could not find the requested resource"
        )

    def _health(self, path: str) -> web.Response:
        if path == "/readyz" and not self.projection.complete:
            return web.Response(status=503, text="the objects are not loaded yet\n")
        return web.Response(text="ok")

    @contextmanager
    def admitted(
        self, request: web.Request, token: Token = bearer_token, *, watch: bool = False
    ) -> Iterator[User]:
        """Authenticate a request, and count it as concurrent while the context is open.

        `token` extracts the token from the headers. Raises `RejectedRequest` and
        `TooMany`.
        """
        with self.limits.unknown(request.remote or ""):
            user = self.user_of(
                request, token, lambda: self.limits.checking(request.remote or "")
            )
        self.note_known(request, user)
        with self.limits.admitted(user.name, watch=watch):
            if any(name.lower().startswith("impersonate-") for name in request.headers):
                raise errors.RejectedRequest(
                    403,
                    "Forbidden",
                    "impersonation is not supported; use a token of that user",
                )
            yield user

    def note_known(self, request: web.Request, user: User) -> None:
        """Record the user of a request. Its connection leaves the lobby."""
        note_user(request, user)
        if request.transport is not None:
            self._lobby.leave(request.transport.get_extra_info("peername"))

    def user_of(
        self,
        request: web.Request,
        token: Token = bearer_token,
        admit: Admit = nullcontext,
    ) -> User:
        """Authenticate a request without counting it.

        Raises `RejectedRequest`, and the exceptions of `admit` if the token must be
        verified.
        """
        if self._access.is_open:
            # A web page in a local browser could send requests to this server under a
            # host name of the page's owner (DNS rebinding).
            if "Origin" in request.headers or _host(request) not in _LOOPBACK:
                raise errors.RejectedRequest(
                    403,
                    "Forbidden",
                    "without an access file, the server only accepts requests of programs "
                    "on this machine",
                )
            return ANYBODY
        self.refresh()
        try:
            user = self._access.user_of(
                _token(request, token), request.headers, request.transport, admit
            )
        except InvalidUserHeader as problem:
            raise errors.unauthorized(f"Unauthorized: {problem}") from None
        if user is None:
            raise errors.unauthorized()
        return user

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches this server may do everything."""
        return self._access.is_open

    def check_complete(self) -> None:
        """Raise `RejectedRequest` (503) until the projection has all objects."""
        if not self.projection.complete:
            raise errors.not_yet(
                "the objects are not loaded yet; try again in a moment"
            )

    def refresh(self) -> None:
        """Reload the access file if it has changed."""
        if problem := self._access.refresh():
            log.error(
                "cannot load the access file; its previous content stays in use",
                problem=problem,
            )

    # Objects

    async def _on_resource(
        self, request: web.Request, resource: RequestedResource, user: User
    ) -> web.StreamResponse:
        parameters = request.query
        note_resource(request, resource)
        verb = _verb(request.method, resource, parameters)
        note_resource(request, resource, verb)
        await self.authorize(user, resource, verb)
        if verb in ("update", "patch") and not resource.name:
            raise errors.bad_request("name must be provided")
        self.check_complete()
        of_list = verb in ("list", "deletecollection")
        accept = request.headers.get("Accept", "")
        form = Form.of(accept, parameters, of_list=of_list)
        if verb == "watch":
            watch = Watch(self.projection, resource, parameters, form)
            check = goes_on(request, lambda: self._may_watch(request, resource))
            return await streamed(request, watch.lines(check))
        if verb == "list":
            found = await listed(self.projection, resource, parameters)
            return InParts(await found.parts(form), _JSON)
        if verb == "get":
            await until_known(self.projection, version(parameters))
            tree = get(self.projection, resource)
            if resource.subresource == SCALE:
                return json_response(scale_of(resource, tree))
            return json_response(form.one(resource, tree))
        return await self._write(request, resource, verb, form, user)

    async def _may_watch(
        self, request: web.Request, resource: RequestedResource
    ) -> bool:
        await self._access.learn(_token(request, bearer_token))
        try:
            await self.authorize(self.user_of(request), resource, "watch")
        except errors.RejectedRequest:
            return False
        return True

    async def authorize(
        self, user: User, resource: RequestedResource, verb: str
    ) -> None:
        """Raise `RejectedRequest` if a user lacks the right to the resource.

        The error is the same whether or not the object exists.
        """
        self.refresh()
        attempt = resource.attempt(verb)
        if await self._allows(user, attempt):
            return
        scope = (
            f'in the namespace "{resource.namespace}"'
            if resource.namespace
            else "at the cluster scope"
        )
        info = resource.info
        message = (
            f'User "{user.name}" cannot {verb} resource "{resource.plural}" in API group '
            f'"{info.group}" {scope}'
        )
        raise errors.forbidden(*resource.identity, message)

    async def _allows(self, user: User, attempt: Attempt) -> bool:
        try:
            return await self._access.allows(user, attempt)
        except Unanswered as silence:
            raise errors.undecided() from silence

    async def _write(
        self,
        request: web.Request,
        resource: RequestedResource,
        verb: str,
        form: Form,
        user: User,
    ) -> web.StreamResponse:
        event = event_of(request)
        event.dry_run = _dry(request, OPTIONS[verb])
        validation = STRICT
        if not verb.startswith("delete"):
            validation = validation_of(request.query, verb)
        is_scale = resource.subresource == SCALE
        bytes_max = bodies.SMALL_BYTES_MAX if is_scale else bodies.BYTES_MAX
        body = await read(request, bytes_max)
        if verb.startswith("delete"):
            return await self._delete(request, resource, verb, form, body)
        content_type = request.headers.get("Content-Type", "")
        agent = request.headers.get("User-Agent", "")
        if is_scale:
            # Only checks the parameters: nobody owns the count alone.
            is_apply = content_type.startswith(bodies.APPLY)
            Manager.of(request.query, agent, verb, is_apply=is_apply)
            tree = await self._scale(resource, body, content_type, verb, event)
            return json_response(tree)
        types = (*bodies.PATCHES, bodies.APPLY) if verb == "patch" else bodies.OBJECTS
        default = bodies.JSON if verb == "update" else ""
        kind = bodies.media_type(content_type, types, silent=default)
        manager = Manager.of(
            request.query,
            agent,
            verb,
            is_apply=kind == bodies.APPLY,
        )
        if kind == bodies.APPLY:
            return await self._apply(request, resource, form, manager, body, user=user)
        if verb == "patch":
            tree, warnings = await self._manifests.patch(
                resource,
                kind,
                await bodies.apart(bodies.parse, body, kind),
                manager,
                event,
                validation=validation,
            )
            return json_response(form.one(resource, tree), 200, warnings)
        document = await bodies.apart(bodies.parse_object, body, kind)
        if verb == "create":
            tree, warnings = await self._manifests.create(
                resource, document, event, validation=validation
            )
            return json_response(form.one(resource, tree), 201, warnings)
        tree, warnings = await self._manifests.update(
            resource,
            document,
            manager,
            event,
            reason=request.query.get("reason", ""),
            validation=validation,
        )
        return json_response(form.one(resource, tree), 200, warnings)

    async def _delete(
        self,
        request: web.Request,
        resource: RequestedResource,
        verb: str,
        form: Form,
        body: bytes,
    ) -> web.StreamResponse:
        event = event_of(request)
        content_type = request.headers.get("Content-Type", "")
        options = await bodies.apart(
            delete_options.parsed, body, content_type, request.query
        )
        event.dry_run = event.dry_run or bool(options.get("dryRun"))
        if verb == "deletecollection":
            return await self._delete_all(request, resource, options, form)
        tree = await self.workflows.delete(resource, options, event)
        if tree.get("kind") == "Status":
            return json_response(tree)
        return json_response(form.one(resource, tree))

    async def _apply(
        self,
        request: web.Request,
        resource: RequestedResource,
        form: Form,
        manager: Manager,
        body: bytes,
        *,
        user: User,
    ) -> web.StreamResponse:
        event = event_of(request)

        async def may_create() -> None:
            await self.authorize(user, resource, "create")

        config = await bodies.apart(bodies.parse_object, body)
        tree, warnings, created = await self._manifests.apply(
            resource, config, manager, event, may_create
        )
        status = 201 if created else 200
        return json_response(form.one(resource, tree), status, warnings)

    async def _scale(
        self,
        resource: RequestedResource,
        body: bytes,
        content_type: str,
        verb: str,
        event: AuditEvent,
    ) -> Tree:
        if verb == "patch":
            kind = bodies.media_type(content_type, bodies.PATCHES)
            patch = await bodies.apart(bodies.parse, body, kind)
            return await self.scales.scale(
                resource, lambda scale: bodies.patched(scale, kind, patch), event
            )
        kind = bodies.media_type(content_type, bodies.OBJECTS, silent=bodies.JSON)
        wanted = await bodies.apart(bodies.parse_object, body, kind)
        return await self.scales.scale(resource, lambda _: wanted, event)

    async def _delete_all(
        self,
        request: web.Request,
        resource: RequestedResource,
        options: Tree,
        form: Form,
    ) -> web.StreamResponse:
        found = await listed(self.projection, resource, request.query)
        for stored in found.held:
            named = RequestedResource(
                resource.info, resource.namespace, stored.tree["metadata"]["name"]
            )
            wanted = options.get("preconditions") or {}
            mine = {**options, "preconditions": {"uid": stored.uid, **wanted}}
            try:
                await self.workflows.delete(named, mine, event_of(request))
            except errors.RejectedRequest as refusal:
                # The object was deleted meanwhile, or has been created again.
                if refusal.code not in (404, 409) or wanted:
                    raise
        return InParts(await found.parts(form), _JSON)


async def read(request: web.Request, bytes_max: int = bodies.BYTES_MAX) -> bytes:
    """Read the body of a request.

    Raises `RejectedRequest` for a body that does not arrive, is compressed, or has more
    than `bytes_max`. Signatures cover the bytes as they were sent, and a decompressed
    body could exceed the limit by far.
    """
    encodings = request.headers.getall("Content-Encoding", [])
    if any(each.strip().lower() not in ("", "identity") for each in encodings):
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
        raise errors.RejectedRequest(
            408, "Timeout", "the body of the request did not arrive in time"
        ) from None
    except (web.RequestPayloadError, BadHttpMessage) as error:
        raise errors.bad_request(
            f"the body of the request is malformed: {str(error)[:256]!r}; send it again"
        ) from None
    return bytes(body)


def _token(request: web.Request, read_token: Token) -> str | None:
    return read_token(
        request.headers.getall("Authorization", []), request.headers.getall(API_KEY, [])
    )


def _host(request: web.Request) -> str:
    """Return the host that a request names; an empty string if there is none."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _is_watch(method: str, parameters: Parameters) -> bool:
    return method == "GET" and is_set(parameters, "watch")


def _verb(method: str, resource: RequestedResource, parameters: Parameters) -> str:
    """Return the Kubernetes verb.

    Raises `RejectedRequest` if the resource does not support the method.
    """
    if method in ("GET", "HEAD"):
        if _is_watch(method, parameters) and not resource.name:
            return "watch"
        return "get" if resource.name else "list"
    info = resource.info
    refusal = errors.method_not_allowed(method, info.group, info.plural)
    if not info.user_may_apply or resource.subresource == STATUS:
        raise refusal
    if resource.subresource:
        allowed = {"PUT": "update", "PATCH": "patch"}
    elif resource.name:
        allowed = {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    else:
        allowed = {"POST": "create", "DELETE": "deletecollection"}
        # Such a request is rejected once its user has the right to it.
        allowed |= {"PUT": "update", "PATCH": "patch"}
    lacks_namespace = info.namespaced and not resource.namespace
    if method not in allowed or (method in ("POST", "DELETE") and lacks_namespace):
        raise refusal
    return allowed[method]


def _dry(request: web.Request, options: str) -> bool:
    """Return whether a request is a dry run.

    Raises `RejectedRequest` for a dry run of an unknown kind.
    """
    values = request.query.getall("dryRun", [])
    delete_options.check_dry(values, options)
    return bool(values)


def _document(path: str, accept: str) -> Tree | None:
    """Return a discovery document, which is the same for every user."""
    parts = path.strip("/").split("/")
    aggregated = discovery.aggregated_version(accept) if len(parts) == 1 else ""
    match parts:
        case [""]:
            return {
                "paths": [
                    "/api",
                    "/apis",
                    "/healthz",
                    "/livez",
                    "/openapi/v2",
                    "/openapi/v3",
                    "/readyz",
                    "/version",
                ]
            }
        case ["version"]:
            return _VERSION
        case ["api"]:
            return (
                discovery.aggregated(aggregated, core_group=True)
                if aggregated
                else discovery.core()
            )
        case ["api", "v1"]:
            return discovery.core_resources()
        case ["apis"]:
            return (
                discovery.aggregated(aggregated) if aggregated else discovery.groups()
            )
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
        version = api_version.rpartition("/")[2]
        return (
            f"application/json;g={discovery.AGGREGATED};v={version};"
            "as=APIGroupDiscoveryList"
        )
    return _JSON


def _refusal(refused: errors.RejectedRequest) -> web.Response:
    response = json_response(refused.status, refused.code)
    if refused.retry_after:
        response.headers["Retry-After"] = str(refused.retry_after)
    return response


def json_response(
    tree: Any,
    status: int = 200,
    warnings: tuple[str, ...] = (),
    content_type: str = _JSON,
) -> web.Response:
    response = web.Response(
        status=status, body=encoded(tree), headers={"Content-Type": content_type}
    )
    for warning in warnings[:20]:
        text = warning.encode("ascii", "replace").decode()[:_WARNING_BYTES_MAX]
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response
