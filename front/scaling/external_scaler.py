"""KEDA's external scaler, for triggers of type `external` and `external-push`.

It reports the metrics of a deployment and whether it must run at all. It is a gRPC
server next to the HTTP server, with the same users, rights and metrics. KEDA cannot
send tokens, so it authenticates with a client certificate, as in Kubernetes: the common
name is the user, organizations are groups.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc
import structlog

from front.access.access_file import ANYBODY, User
from front.access.certificates import of_pem
from front.access.limits import Allowance, TooMany
from front.scaling import scaler_messages as messages
from front.scaling.fields import NUMBER_MAX, ObjectFields, shown
from front.scaling.numbers import NAMES, QUEUE_DEPTH, RUNNING_REQUESTS, Told
from front.serving import errors
from front.serving.app import Front
from front.serving.reads.reading import check_complete, get
from front.serving.requests import METRICS, RequestedResource, resource_of

log = structlog.get_logger("modelplane.front")

DEPLOYMENT, METRIC, TARGET, ACTIVATION = (
    "deployment",
    "metric",
    "targetValue",
    "activationValue",
)
# The interval at which a stream checks the age of the metrics and the rights of its
# user.
CHECK_SECONDS = 5.0
OPTIONS: Mapping[str, int] = {
    "grpc.so_reuseport": 0,
    "grpc.max_receive_message_length": 64 * 1024,
    # KEDA opens one connection for each address that its triggers name.
    "grpc.max_allowed_incoming_connections": 256,
    # A connection without a first call, or without further calls, is closed to make
    # room for another.
    "grpc.server_handshake_timeout_ms": 10_000,
    "grpc.max_connection_idle_ms": 300_000,
    # Otherwise a client that disappeared would hold its streams indefinitely.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.http2.ping_timeout_ms": 20_000,
}
"""Options of the server.

It closes connections that ping more often than every five minutes, which is gRPC's
default.
"""
# Each ScaledObject with `external-push` holds one stream.
_CALLS_MAX = 4096
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.UNAVAILABLE,
}
_UNAVAILABLE = 503


@dataclass(frozen=True)
class Trigger:
    """The parsed metadata of a trigger.

    `target` is the value for one replica. Up to `activation`, the deployment may be
    scaled to zero.
    """

    resource: RequestedResource
    metric: str
    target: float
    activation: float


def read_trigger(reference: Any) -> Trigger:
    """Parse the trigger of a ScaledObjectRef.

    Other metadata belongs to KEDA and is ignored. Raises `RejectedRequest`.
    """
    metadata: Mapping[str, str] = reference.scalerMetadata
    fields = ObjectFields(
        {}, "keda.sh", "ScaledObject", f"{reference.namespace}/{reference.name}", ()
    )
    name = metadata.get(DEPLOYMENT, "") or reference.name
    resource = resource_of(
        f"/apis/modelplane.ai/v1alpha1/namespaces/{reference.namespace}"
        f"/modeldeployments/{name}"
    )
    identity = (reference.namespace, name)
    if resource is None or (resource.namespace, resource.name) != identity:
        fields.problem(
            DEPLOYMENT,
            "must be the name of a ModelDeployment in the namespace of the "
            f"ScaledObject, got {shown(name)}",
        )
    metric = metadata.get(METRIC, "") or QUEUE_DEPTH
    if metric not in NAMES:
        fields.problem(
            METRIC, f"must be one of {', '.join(NAMES)}, got {shown(metric)}"
        )
    target = _number(fields, TARGET, metadata.get(TARGET, ""))
    activation = _number(fields, ACTIVATION, metadata.get(ACTIVATION, "") or "0")
    if target == 0:
        fields.problem(
            TARGET, "must be more than 0: it is the value of the metric for one replica"
        )
    fields.check()
    if resource is None:
        raise AssertionError(name)
    return Trigger(
        RequestedResource(resource.info, resource.namespace, resource.name, METRICS),
        metric,
        target,
        activation,
    )


def _number(fields: ObjectFields, name: str, text: str) -> float:
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if 0 <= number <= NUMBER_MAX:
        return number
    if text:
        fields.problem(
            name, f"must be a number between 0 and {NUMBER_MAX:.0f}, got {shown(text)}"
        )
    else:
        fields.problem(
            name,
            "required metadata is missing: the value of the metric for one replica",
        )
    return math.nan


class ExternalScaler:
    """Answers KEDA's calls."""

    def __init__(self, front: Front, told: Told) -> None:
        self._front, self._told = front, told

    def handler(self) -> Any:
        """Return the handlers for a gRPC server."""
        unary = {
            "IsActive": (self._is_active, messages.ScaledObjectRef),
            "GetMetricSpec": (self._metric_spec, messages.ScaledObjectRef),
            "GetMetrics": (self._metrics, messages.GetMetricsRequest),
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                _refusing(method), request.FromString, _bytes
            )
            for name, (method, request) in unary.items()
        }
        methods["StreamIsActive"] = grpc.unary_stream_rpc_method_handler(
            _refusing_stream(self._stream_is_active),
            messages.ScaledObjectRef.FromString,
            _bytes,
        )
        return grpc.method_handlers_generic_handler(messages.SERVICE, methods)

    async def _is_active(self, reference: Any, context: Any) -> Any:
        with self._admitted(context):
            trigger = await self._allowed(reference, context)
            return messages.IsActiveResponse(result=self._active(trigger))

    async def _metric_spec(self, reference: Any, context: Any) -> Any:
        with self._admitted(context):
            trigger = await self._allowed(reference, context)
        spec = {
            "metricName": trigger.metric,
            "targetSize": max(1, round(trigger.target)),
            "targetSizeFloat": trigger.target,
        }
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def _metrics(self, request: Any, context: Any) -> Any:
        with self._admitted(context):
            trigger = await self._allowed(request.scaledObjectRef, context)
            if request.metricName not in ("", trigger.metric):
                raise errors.bad_request(
                    f"metricName: must be {trigger.metric}, the metric of the trigger, "
                    f"got {shown(request.metricName)}"
                )
            values = self._values(trigger)
        value = {
            "metricName": trigger.metric,
            "metricValue": math.ceil(values[trigger.metric]),
            "metricValueFloat": values[trigger.metric],
        }
        return messages.GetMetricsResponse(metricValues=[value])

    async def _stream_is_active(
        self, reference: Any, context: Any
    ) -> AsyncIterator[Any]:
        """Send whether a deployment must run, first at once and then after each change.

        Nothing is sent while the answer is unknown. KEDA drops an activation that comes
        before it knows the metric's name, so it is sent again until replicas are wanted.
        """
        sent: bool | None = None
        with self._admitted(context, watch=True):
            while True:
                trigger = await self._allowed(reference, context)
                active = self._active_if_known(trigger)
                is_repeated = active and self._wanted(trigger) == 0
                if active is not None and (active != sent or is_repeated):
                    sent = active
                    yield messages.IsActiveResponse(result=active)
                await self._told.changed(trigger.resource.key, CHECK_SECONDS)

    @contextmanager
    def _admitted(self, context: Any, *, watch: bool = False) -> Iterator[None]:
        """Occupy a slot for a call while it is answered.

        Raises `RejectedRequest` and `TooMany`.
        """
        limits = self._front.authorization.limits
        with limits.unknown(_address_of(context.peer())):
            user = self._user_of(context)
        with limits.admitted(user.name, watch=watch):
            yield

    def _user_of(self, context: Any) -> User:
        return (
            ANYBODY
            if self._front.authorization.is_open
            else _user_of(context.auth_context())
        )

    async def _allowed(self, reference: Any, context: Any) -> Trigger:
        """Parse and authorize a call.

        The error is the same whether or not the deployment exists. Raises
        `RejectedRequest`.
        """
        user = self._user_of(context)
        trigger = read_trigger(reference)
        await self._front.authorization.authorize(user, trigger.resource, "get")
        check_complete(self._front.projection)
        return trigger

    def _values(self, trigger: Trigger) -> Mapping[str, float]:
        tree = get(self._front.projection, trigger.resource)
        values = self._told.read(trigger.resource.key, tree["metadata"]["uid"]).values
        if trigger.metric not in values:
            name = "/".join(trigger.resource.key[1:])
            raise errors.unavailable(
                f"{trigger.metric} of ModelDeployment {name} is unknown; send it with "
                "the other metrics"
            )
        return values

    def _wanted(self, trigger: Trigger) -> int:
        tree = get(self._front.projection, trigger.resource)
        return int(tree["spec"].get("replicas", 1))

    def _active(self, trigger: Trigger) -> bool:
        values = self._values(trigger)
        # Scaling to zero would interrupt running requests.
        return (
            values[trigger.metric] > trigger.activation
            or values.get(RUNNING_REQUESTS, 0) > 0
        )

    def _active_if_known(self, trigger: Trigger) -> bool | None:
        try:
            return self._active(trigger)
        except errors.RejectedRequest as refusal:
            if refusal.code != _UNAVAILABLE:
                raise
            return None


def server_of(front: Front, told: Told, allowance: Allowance) -> Any:
    """Return the gRPC server, without an address. `allowance` is for one user."""
    # All streams of a connection belong to one user. gRPC queues streams beyond this
    # number, so it leaves room for streams that the user's limits reject.
    streams_max = 2 * (allowance.watches + allowance.requests)
    options = (*OPTIONS.items(), ("grpc.max_concurrent_streams", streams_max))
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_CALLS_MAX)
    server.add_generic_rpc_handlers((ExternalScaler(front, told).handler(),))
    return server


def _user_of(certified: Mapping[str, Any]) -> User:
    """Return the user of a certificate that gRPC has verified.

    Raises `RejectedRequest`.
    """
    presented = next(iter(certified.get("x509_pem_cert", ())), None)
    certificate = None if presented is None else of_pem(presented)
    if certificate is None:
        raise errors.unauthorized(
            "Unauthorized: KEDA needs a client certificate from an authority in "
            "front.scalerClientCa"
        )
    user = certificate.user()
    if user is None:
        raise errors.unauthorized(
            "Unauthorized: the client certificate needs exactly one common name, the "
            "user, and must not have expired"
        )
    return user


def _address_of(peer: str) -> str:
    """Return the address of a client.

    gRPC writes `ipv4:192.0.2.1:50000` or `ipv6:%5B2001:db8::1%5D:50000`.
    """
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _bytes(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written


def _refusing(
    method: Callable[[Any, Any], Awaitable[Any]],
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Convert every exception to a gRPC status.

    Internal errors do not reveal details.
    """

    async def answer(request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except Exception as error:  # noqa: BLE001 - `_abort` raises
            return await _abort(context, error)

    return answer


def _refusing_stream(
    method: Callable[[Any, Any], AsyncIterator[Any]],
) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def answer(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for message in method(request, context):
                yield message
        except Exception as error:  # noqa: BLE001 - `_abort` raises
            await _abort(context, error)

    return answer


async def _abort(context: Any, error: Exception) -> None:
    if isinstance(error, errors.RejectedRequest):
        code = _CODES.get(error.code, grpc.StatusCode.UNKNOWN)
        await context.abort(code, error.status["message"])
    if isinstance(error, TooMany):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
    log.error("a call of the external scaler failed", exc_info=error)
    await context.abort(
        grpc.StatusCode.INTERNAL,
        "internal error; the log of the server has the details",
    )
