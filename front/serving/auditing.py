"""The middleware by which no write is answered that the audit log does not have."""

import json
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from client.follow.requests import new_request_id
from front.access.access_file import User
from front.audit.event import AuditEvent
from front.audit.log import AuditLog, Unwritable
from front.audit.unknown_callers import UnknownCallers
from front.serving import access_reviews, bodies, errors
from front.serving.requests import Resource

log = structlog.get_logger("modelplane.front")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEADER = "Audit-Id"
_EVENT = web.RequestKey("event", AuditEvent)
READING = ("GET", "HEAD", "OPTIONS")
"""The methods that change nothing."""
# A caller who is refused by a limit could else fill the disk.
_NOT_RECORDED = (429,)


class Auditing:
    """Records the writes of an application. `audit_log` None: nothing is recorded, which is for tests alone."""

    def __init__(self, audit_log: AuditLog | None) -> None:
        """Take the log."""
        self._log = audit_log
        self._unknown = UnknownCallers(audit_log) if audit_log else None

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Carry out a request, and record it if it writes; 503 where that cannot be done."""
        if self._log is None or request.method in READING or request.path.rstrip("/") in access_reviews.PATHS:
            return await handler(request)
        event = event_of(request)
        try:
            await self._log.check()
        except Unwritable as problem:
            return _refused("nothing is changed while the audit log cannot be written", problem)
        try:
            response = await handler(request)
        except BaseException:
            self._record_interrupted(self._log, event)
            raise
        if response.status in _NOT_RECORDED or self._is_omitted(event):
            return response
        response.headers[HEADER] = event.id
        try:
            await self._log.write(lambda: event.lines(response.status, _outcome(response)))
        except Unwritable as problem:
            return _refused(f"the request was answered with {response.status}, and the audit log cannot be written", problem)
        return response

    @staticmethod
    def _record_interrupted(audit_log: AuditLog, event: AuditEvent) -> None:
        """Record a request that this program ends, or whose client is gone, before it was answered.

        Before it is known who asks nothing is carried out, and whoever sends half a request could fill the disk.
        """
        if not event.user:
            return
        audit_log.append(lambda: event.lines(0, "Interrupted"))

    def _is_omitted(self, event: AuditEvent) -> bool:
        return self._unknown is not None and not event.user and not self._unknown.has_line()

    async def end(self, _: web.Application) -> None:
        """Have all lines written, after the last request was answered or ended."""
        if self._log is None or self._unknown is None:
            return
        self._unknown.tell()
        try:
            await self._log.end()
        except Unwritable as problem:
            _tell(problem)


def event_of(request: web.Request) -> AuditEvent:
    """Give what is recorded of a request; made with the first call."""
    if _EVENT not in request:
        request[_EVENT] = AuditEvent(new_request_id(), request.method, request.path, request.remote or "")
    return request[_EVENT]


def user_of(request: web.Request) -> str:
    """Give the name of who asks; empty while that is not known."""
    return event_of(request).user if _EVENT in request else ""


def note_user(request: web.Request, user: User) -> None:
    """Note who asks, for the audit log and for the turns of bodies."""
    bodies.USER.set(user.name)
    event = event_of(request)
    event.user, event.groups = user.name, user.groups


def note_resource(request: web.Request, resource: Resource, verb: str = "") -> None:
    """Note what a request is about; the verb once it is known."""
    event = event_of(request)
    event.verb, event.group, event.resource = verb, resource.info.group, resource.plural
    event.namespace, event.name = resource.namespace, resource.name


def _outcome(response: web.StreamResponse) -> str:
    """Give the reason of a refusal, as its Status has it."""
    if response.status < web.HTTPBadRequest.status_code:
        return "Success"
    body = response.body if isinstance(response, web.Response) else None
    return str(json.loads(body).get("reason", "")) if isinstance(body, bytes) and response.content_type == "application/json" else ""


def _refused(message: str, problem: Unwritable) -> web.Response:
    _tell(problem)
    refusal = errors.unavailable(f"{message}; the log of this server says why")
    return web.json_response(refusal.status, status=refusal.code)


def _tell(problem: Unwritable) -> None:
    log.error("the audit log cannot be written", problem=str(problem))
