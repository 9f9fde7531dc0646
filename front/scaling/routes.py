"""The paths below `/v1` for autoscalers.

`.../modeldeployments/NAME/scale` accepts signed requests for a replica count,
`.../metrics` stores and returns the metrics of a deployment, and `/v1/events` accepts
CloudEvents of KEDA.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from aiohttp import web

from api_types.resources.kinds import BY_KIND
from fleet_client.refs.tree import at_path
from front.access.access_file import User
from front.access.signing import (
    BadSignature,
    Callers,
    Presented,
    SignedRequest,
    presented_in,
)
from front.access.tokens import any_token
from front.scaling import events
from front.scaling.answers import IdempotentRequests
from front.scaling.numbers import NAMES, OBSERVED_AT, Told, read_numbers
from front.scaling.webhook import read_wanted, request_id_of
from front.serving import bodies, errors
from front.serving.app import Front
from front.serving.auditing import event_of, note_resource
from front.serving.below_v1 import allow, named, refuse_dry_run
from front.serving.reads.reading import check_complete, get
from front.serving.receiving import read
from front.serving.requests import METRICS, SCALE, RequestedResource
from front.serving.sending import json_response
from front.store.projection import Tree

log = structlog.get_logger("modelplane.front")

DEPLOYMENTS = BY_KIND["ModelDeployment"].plural
BODY_BYTES_MAX = 64 * 1024
_OBJECT = f"/v1/namespaces/{{namespace}}/{DEPLOYMENTS}/{{name}}"


class Scaling:
    """Serves autoscalers with the users, rights and objects of a front."""

    def __init__(self, front: Front, told: Told, callers: Callers | None) -> None:
        """Without `callers`, the webhook is not served."""
        self._front, self._told, self._callers = front, told, callers
        self._answers = IdempotentRequests()

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes for `Front.app`."""
        return [
            web.route("*", f"{_OBJECT}/{SCALE}", self._scale),
            web.route("*", f"{_OBJECT}/{METRICS}", self._metrics),
            web.route("*", "/v1/events", self._event),
        ]

    # The webhook

    async def _scale(self, request: web.Request) -> web.Response:
        with self._front.authorization.limits.unknown(request.remote or ""):
            if self._callers is None:
                raise errors.RejectedRequest(
                    404,
                    "NotFound",
                    "signed requests are not enabled; set front.webhookKeys to enable them",
                )
            allow(request, "POST")
            with _signature_checked():
                # The body is read only if the headers of a signature are present.
                presented = presented_in(request.headers, self._told.now().timestamp())
            body = await read(request, BODY_BYTES_MAX)
            now = self._told.now().timestamp()
            signed = self._signed(self._callers, request, presented, body, now)
        self._front.authorization.note_known(request, signed.user)
        with self._front.authorization.limits.admitted(signed.user.name, watch=False):
            return await self._scale_as(request, signed, body, now)

    async def _scale_as(
        self, request: web.Request, signed: SignedRequest, body: bytes, now: float
    ) -> web.Response:
        resource = named(request, DEPLOYMENTS, SCALE)
        note_resource(request, resource, "update")
        refuse_dry_run(request)
        await self._front.authorization.authorize(signed.user, resource, "update")
        content = request.raw_path.encode(errors="surrogateescape") + b"\n" + body
        answer = await self._answers.once(
            signed, content, now, lambda: self._scaled(request, resource, signed, body)
        )
        return json_response(answer)

    def _signed(
        self,
        callers: Callers,
        request: web.Request,
        presented: Presented,
        body: bytes,
        now: float,
    ) -> SignedRequest:
        if problem := callers.refresh():
            log.error(
                "cannot load the file of keys; its previous content stays in use",
                problem=problem,
            )
        with _signature_checked():
            return callers.verify(
                presented, request.method, request.raw_path, body, now
            )

    async def _scaled(
        self,
        request: web.Request,
        resource: RequestedResource,
        signed: SignedRequest,
        body: bytes,
    ) -> Tree:
        bodies.media_type(request.headers.get("Content-Type", ""), bodies.OBJECTS)
        wanted = read_wanted(resource, await bodies.apart(bodies.parse_object, body))

        def requested(before: Tree) -> Tree:
            return {**before, "spec": {"replicas": wanted.replicas}}

        request_id = request_id_of(signed)
        return await self._front.scales.scale(
            resource,
            requested,
            event_of(request),
            request_id=request_id,
            reason=wanted.reason,
        )

    # Metrics

    async def _metrics(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request, any_token) as user:
            return await self._metrics_as(request, user)

    async def _metrics_as(self, request: web.Request, user: User) -> web.Response:
        resource = named(request, DEPLOYMENTS, METRICS)
        note_resource(request, resource)
        refuse_dry_run(request)
        allow(request, "GET", "HEAD", "PUT", "POST")
        reads = request.method in ("GET", "HEAD")
        verb = "get" if reads else "update"
        note_resource(request, resource, verb)
        await self._front.authorization.authorize(user, resource, verb)
        check_complete(self._front.projection)
        if reads:
            tree = get(self._front.projection, resource)
            return json_response(self.shown(resource, tree))
        bodies.media_type(request.headers.get("Content-Type", ""), bodies.OBJECTS)
        body = await bodies.apart(
            bodies.parse_object, await read(request, BODY_BYTES_MAX)
        )
        tree = get(self._front.projection, resource)
        numbers = read_numbers(
            body,
            tree["metadata"]["uid"],
            resource.name,
            self._told.now(),
            self._told.age_max,
        )
        self._told.tell(resource.key, numbers)
        return json_response(self.shown(resource, tree))

    def shown(self, resource: RequestedResource, tree: Tree) -> Tree:
        """Return the metrics and replicas of a deployment.

        Raises `RejectedRequest` (503) if the metrics are unknown or too old.
        """
        numbers = self._told.read(resource.key, tree["metadata"]["uid"])
        values: Tree = {
            name: numbers.values[name] for name in NAMES if name in numbers.values
        }
        scale = resource.info.scale
        values["replicas"] = (at_path(tree, scale.status) if scale else 0) or 0
        values[OBSERVED_AT] = numbers.observed.isoformat()
        return values

    # Events

    async def _event(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request, any_token) as user:
            return await self._event_of(request, user)

    async def _event_of(self, request: web.Request, user: User) -> web.Response:
        allow(request, "POST")
        refuse_dry_run(request)
        event = await bodies.apart(
            events.read_event, request.headers, await read(request, BODY_BYTES_MAX)
        )
        if event.type not in events.RECORDED:
            return _taken("events of this type do not concern a ModelDeployment")
        resource = events.deployment_of(event)
        note_resource(request, resource, "create")
        await self._front.authorization.authorize(user, resource, "create")
        report = events.report_of(event, user.name)
        is_recorded = await self._front.workflows.record_event(
            resource, report, event_of(request)
        )
        if not is_recorded:
            return _taken(
                f"ModelDeployment {resource.namespace}/{resource.name} does not exist"
            )
        return _taken("")


@contextmanager
def _signature_checked() -> Iterator[None]:
    """Convert signature errors to `RejectedRequest` (401)."""
    try:
        yield
    except BadSignature as error:
        raise errors.unauthorized(f"Unauthorized: {error}") from None


def _taken(ignored: str) -> web.Response:
    answer: Tree = {"recorded": not ignored}
    if ignored:
        answer["ignored"] = ignored
    return json_response(answer, 202)
