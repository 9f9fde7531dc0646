"""The paths below `/v1`: who asks, whether they may, and the answer.

`.../modeldeployments/NAME/scale` takes signed requests for a replica count, `.../metrics` tells how busy a deployment is, and `/v1/events`
takes CloudEvents of KEDA.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from aiohttp import web

from api_types.resources.kinds import BY_KIND
from client.refs.tree import at_path
from front.access.access_file import User
from front.access.signing import BadSignature, Callers, Presented, Signed, presented_in
from front.access.tokens import any_token
from front.scaling import events
from front.scaling.answers import Answers
from front.scaling.numbers import NAMES, OBSERVED_AT, Told, read_numbers
from front.scaling.webhook import read_wanted, request_id_of
from front.serving import bodies, errors
from front.serving.app import Front, json_response, read
from front.serving.auditing import event_of, note_resource
from front.serving.below_v1 import allow, named, refuse_dry_run
from front.serving.reading import get
from front.serving.requests import METRICS, SCALE, Resource
from front.store.projection import Tree

log = structlog.get_logger("modelplane.front")

DEPLOYMENTS = BY_KIND["ModelDeployment"].plural
BODY_BYTES_MAX = 64 * 1024
_OBJECT = f"/v1/namespaces/{{namespace}}/{DEPLOYMENTS}/{{name}}"


class Scaling:
    """Answers requests of autoscalers, with the users, rights and objects of a front."""

    def __init__(self, front: Front, told: Told, callers: Callers | None) -> None:
        """`callers` None: no request is signed, and the webhook is not served."""
        self._front, self._told, self._callers = front, told, callers
        self._answers = Answers()

    def routes(self) -> Sequence[web.RouteDef]:
        """Give the paths for `Front.app`."""
        return [
            web.route("*", f"{_OBJECT}/{SCALE}", self._scale),
            web.route("*", f"{_OBJECT}/{METRICS}", self._metrics),
            web.route("*", "/v1/events", self._event),
        ]

    # --- the webhook ------------------------------------------------------------------------------------------------------------------

    async def _scale(self, request: web.Request) -> web.Response:
        with self._front.limits.unknown(request.remote or ""):
            if self._callers is None:
                raise errors.Refused(404, "NotFound", "signed requests are not served here; the setting is front.webhookKeys")
            allow(request, "POST")
            with _signature_checked():
                # Whoever does not even claim to be a caller has no body read.
                presented = presented_in(request.headers, self._told.now().timestamp())
            body = await read(request, BODY_BYTES_MAX)
            now = self._told.now().timestamp()
            signed = self._signed(self._callers, request, presented, body, now)
        self._front.note_known(request, signed.user)
        with self._front.limits.admitted(signed.user.name, watch=False):
            return await self._scale_as(request, signed, body, now)

    async def _scale_as(self, request: web.Request, signed: Signed, body: bytes, now: float) -> web.Response:
        resource = named(request, DEPLOYMENTS, SCALE)
        note_resource(request, resource, "update")
        refuse_dry_run(request)
        await self._front.authorize(signed.user, resource, "update")
        content = request.raw_path.encode(errors="surrogateescape") + b"\n" + body
        answer = await self._answers.once(signed, content, now, lambda: self._scaled(request, resource, signed, body))
        return json_response(answer)

    def _signed(self, callers: Callers, request: web.Request, presented: Presented, body: bytes, now: float) -> Signed:
        if problem := callers.refresh():
            log.error("the file of keys cannot be read; the one of before holds", problem=problem)
        with _signature_checked():
            return callers.verify(presented, request.method, request.raw_path, body, now)

    async def _scaled(self, request: web.Request, resource: Resource, signed: Signed, body: bytes) -> Tree:
        bodies.media_type(request.headers.get("Content-Type", ""), bodies.OBJECTS)
        wanted = read_wanted(resource, await bodies.apart(bodies.parse_object, body))

        def requested(before: Tree) -> Tree:
            return {**before, "spec": {"replicas": wanted.replicas}}

        request_id = request_id_of(signed)
        return await self._front.writer.scale(resource, requested, event_of(request), request_id=request_id, reason=wanted.reason)

    # --- numbers ----------------------------------------------------------------------------------------------------------------------

    async def _metrics(self, request: web.Request) -> web.Response:
        with self._front.admitted(request, any_token) as user:
            return await self._metrics_as(request, user)

    async def _metrics_as(self, request: web.Request, user: User) -> web.Response:
        resource = named(request, DEPLOYMENTS, METRICS)
        note_resource(request, resource)
        refuse_dry_run(request)
        allow(request, "GET", "HEAD", "PUT", "POST")
        reads = request.method in ("GET", "HEAD")
        verb = "get" if reads else "update"
        note_resource(request, resource, verb)
        await self._front.authorize(user, resource, verb)
        self._front.check_complete()
        if reads:
            tree = get(self._front.projection, resource)
            return json_response(self.shown(resource, tree))
        bodies.media_type(request.headers.get("Content-Type", ""), bodies.OBJECTS)
        body = await bodies.apart(bodies.parse_object, await read(request, BODY_BYTES_MAX))
        tree = get(self._front.projection, resource)
        numbers = read_numbers(body, tree["metadata"]["uid"], resource.name, self._told.now(), self._told.age_max)
        self._told.tell(resource.key, numbers)
        return json_response(self.shown(resource, tree))

    def shown(self, resource: Resource, tree: Tree) -> Tree:
        """Give the numbers of a deployment, with its replicas. Raises `Refused` (503) if they are not known, or old."""
        numbers = self._told.read(resource.key, tree["metadata"]["uid"])
        values = {name: numbers.values[name] for name in NAMES if name in numbers.values}
        replicas = at_path(tree, resource.info.scale.status) if resource.info.scale else 0
        return {**values, "replicas": replicas or 0, OBSERVED_AT: numbers.observed.isoformat()}

    # --- events -----------------------------------------------------------------------------------------------------------------------

    async def _event(self, request: web.Request) -> web.Response:
        with self._front.admitted(request, any_token) as user:
            return await self._event_of(request, user)

    async def _event_of(self, request: web.Request, user: User) -> web.Response:
        allow(request, "POST")
        refuse_dry_run(request)
        event = await bodies.apart(events.read_event, request.headers, await read(request, BODY_BYTES_MAX))
        if event.type not in events.RECORDED:
            return _taken("events of this type say nothing of a ModelDeployment")
        resource = events.deployment_of(event)
        note_resource(request, resource, "create")
        await self._front.authorize(user, resource, "create")
        if not await self._front.writer.record_event(resource, events.report_of(event, user.name), event_of(request)):
            return _taken(f"there is no ModelDeployment {resource.namespace}/{resource.name}")
        return _taken("")


@contextmanager
def _signature_checked() -> Iterator[None]:
    """Refuse what is not signed as it must be. Raises `Refused` (401)."""
    try:
        yield
    except BadSignature as error:
        raise errors.unauthorized(f"Unauthorized: {error}") from None


def _taken(ignored: str) -> web.Response:
    return json_response({"recorded": not ignored, **({"ignored": ignored} if ignored else {})}, 202)
