"""The HTTP server: the application with its middlewares, and the paths that it serves."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext

import structlog
from aiohttp import web

from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import User
from front.access.limits import Limits, TooMany
from front.access.tokens import any_token
from front.audit.log import AuditLog
from front.page.files import SETTINGS, PageFiles
from front.serving import access_reviews, bodies, errors
from front.serving.auditing import READING, Auditing, user_of
from front.serving.authorization import Authorization
from front.serving.documents.paths import content_type_of, public_document
from front.serving.formats.negotiation import JSON, ONLY_JSON, accepts_json
from front.serving.lobby import Lobby
from front.serving.receiving import read
from front.serving.requests import below_of, namespace_of, resource_of
from front.serving.resources import Resources, is_watch
from front.serving.sending import ended, json_response, note_begun, sent
from front.serving.writes.manifests import ManifestWrites
from front.serving.writes.object_workflows import ObjectWorkflows
from front.serving.writes.scale import ScaleWrites
from front.serving.writes.turns import WriteTurns
from front.store.projection import Projection

log = structlog.get_logger("modelplane.front")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
WRITE_SECONDS = 50.0
"""The time limit of a write from its arrival.

Aggregating API servers wait 60 seconds for their backends.
"""
_LATE = (
    "the request took too long; a change that was already sent to Temporal is made "
    "once a worker is available: read the object before you repeat the request"
)
_OPEN = ("/healthz", "/livez", "/readyz")


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
        self.authorization = Authorization(
            access, limits or Limits(None), Lobby() if lobby is None else lobby
        )
        self.projection = projection
        self._auditing = Auditing(audit_log)
        self._page = PageFiles()
        self._page_settings = dict(page_settings or {})
        self.workflows = ObjectWorkflows(plane, projection)
        turns = WriteTurns()
        self.scales = ScaleWrites(self.workflows, turns)
        self._resources = Resources(
            self.authorization,
            projection,
            self.workflows,
            self.scales,
            ManifestWrites(self.workflows, turns, self.scales),
        )

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
        app.on_response_prepare.append(self.authorization.announce_end)
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
        with self.authorization.limits.sending(user) if user else nullcontext():
            response = await sent(request, response)
        self.authorization.end_surplus(request)
        return response

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
            await self.authorization.learn(
                request,
                any_token,
                lambda: self.authorization.limits.checking(request.remote or ""),
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
            self.authorization.limits.page_asks(request.remote or "")
            return file
        with self.authorization.admitted(
            request, watch=is_watch(request.method, request.query)
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
                return await self._resources.answer(request, found, user)
            if path in access_reviews.PATHS and request.method == "POST":
                review = await bodies.apart(
                    access_reviews.parsed,
                    path,
                    await read(request, bodies.SMALL_BYTES_MAX),
                )
                return json_response(
                    await access_reviews.answered(
                        path, review, user, self.authorization.access
                    ),
                    201,
                )
            accept = request.headers.get("Accept", "")
            if request.method in ("GET", "HEAD") and (
                document := public_document(path, accept)
            ):
                if not (accepts_json(accept) or content_type_of(document) != JSON):
                    raise errors.not_acceptable(ONLY_JSON)
                return json_response(document, content_type=content_type_of(document))
            if unserved := below_of(path):
                raise errors.not_found(*unserved.identity)
            if request.method in ("GET", "HEAD") and (namespace := namespace_of(path)):
                raise errors.no_namespaces(namespace)
        raise errors.RejectedRequest(
            404, "NotFound", "the server could not find the requested resource"
        )

    def _health(self, path: str) -> web.Response:
        if path == "/readyz" and not self.projection.complete:
            return web.Response(status=503, text="the objects are not loaded yet\n")
        return web.Response(text="ok")


def _refusal(refused: errors.RejectedRequest) -> web.Response:
    response = json_response(refused.status, refused.code)
    if refused.retry_after:
        response.headers["Retry-After"] = str(refused.retry_after)
    return response
