"""The middleware that records every write in the audit log before it is answered."""

import json
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from fleet_client.requests import new_request_id
from front.access.access_file import User
from front.audit.event import AuditEvent
from front.audit.log import AuditLog, Unwritable
from front.audit.unknown_callers import UnknownCallers
from front.serving import access_reviews, bodies, errors
from front.serving.requests import RequestedResource

log = structlog.get_logger("modelplane.front")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEADER = "Audit-Id"
_EVENT = web.RequestKey("event", AuditEvent)
READING = ("GET", "HEAD", "OPTIONS")
"""The methods without side effects."""
# Requests that a limit rejects are not recorded, because they could fill the disk.
_NOT_RECORDED = (429,)


class Auditing:
    """Records the writes of an application. Only tests set `audit_log` to None."""

    def __init__(self, audit_log: AuditLog | None) -> None:
        self._log = audit_log
        self._unknown = UnknownCallers(audit_log) if audit_log else None

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Handle a request, and record it if it writes.

        Responds with 503 if the record cannot be written.
        """
        if (
            self._log is None
            or request.method in READING
            or request.path.rstrip("/") in access_reviews.PATHS
        ):
            return await handler(request)
        event = event_of(request)
        try:
            await self._log.check()
        except Unwritable as problem:
            return _refused(
                "writes are rejected because the audit log is not writable", problem
            )
        try:
            response = await handler(request)
        except BaseException:
            self._record_interrupted(self._log, event)
            raise
        if response.status in _NOT_RECORDED or self._is_omitted(event):
            return response
        response.headers[HEADER] = event.id
        try:
            await self._log.write(
                lambda: event.lines(response.status, _outcome(response))
            )
        except Unwritable as problem:
            return _refused(
                f"the request was answered with {response.status}, but could not be "
                "recorded in the audit log",
                problem,
            )
        return response

    @staticmethod
    def _record_interrupted(audit_log: AuditLog, event: AuditEvent) -> None:
        """Record a request that ends without a response.

        Unauthenticated requests are skipped. They have no effect, and anybody could
        fill the disk with them.
        """
        if not event.user:
            return
        audit_log.append(lambda: event.lines(0, "Interrupted"))

    def _is_omitted(self, event: AuditEvent) -> bool:
        return (
            self._unknown is not None
            and not event.user
            and not self._unknown.has_line()
        )

    async def end(self, _: web.Application) -> None:
        """Write all remaining lines, after the last request has ended."""
        if self._log is None or self._unknown is None:
            return
        self._unknown.tell()
        try:
            await self._log.end()
        except Unwritable as problem:
            _tell(problem)


def event_of(request: web.Request) -> AuditEvent:
    """Return the audit event of a request; the first call creates it."""
    if _EVENT not in request:
        request[_EVENT] = AuditEvent(
            new_request_id(), request.method, request.path, request.remote or ""
        )
    return request[_EVENT]


def user_of(request: web.Request) -> str:
    """Return the name of a request's user; an empty string before authentication."""
    return event_of(request).user if _EVENT in request else ""


def note_user(request: web.Request, user: User) -> None:
    """Record the user, for the audit log and for the turns of bodies."""
    bodies.USER.set(user.name)
    event = event_of(request)
    event.user, event.groups = user.name, user.groups


def note_resource(
    request: web.Request, resource: RequestedResource, verb: str = ""
) -> None:
    """Record the resource of a request, and the verb once it is known."""
    event = event_of(request)
    event.verb, event.group, event.resource = verb, resource.info.group, resource.plural
    event.namespace, event.name = resource.namespace, resource.name


def _outcome(response: web.StreamResponse) -> str:
    """Return the reason of an error response's Status."""
    if response.status < web.HTTPBadRequest.status_code:
        return "Success"
    body = response.body if isinstance(response, web.Response) else None
    if isinstance(body, bytes) and response.content_type == "application/json":
        return str(json.loads(body).get("reason", ""))
    return ""


def _refused(message: str, problem: Unwritable) -> web.Response:
    _tell(problem)
    refusal = errors.unavailable(f"{message}; the log of the server has the reason")
    return web.json_response(refusal.status, status=refusal.code)


def _tell(problem: Unwritable) -> None:
    log.error("the audit log cannot be written", problem=str(problem))
