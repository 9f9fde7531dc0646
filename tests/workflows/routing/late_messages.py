"""The messages of endpoints, services and the gateway, for the test of duplicate and
late messages (`test_late_messages.py`).
"""

from collections.abc import Callable
from typing import Any

from temporalio import workflow

from api_types.base import Message
from api_types.messages.gateway_work import (
    AppliedBackend,
    ControlObserved,
    ObservedBackend,
    ObservedGateway,
    ObservedServiceRoute,
)
from api_types.messages.routing import (
    Endpoint,
    EndpointReport,
    EndpointWithdrawn,
    EntryEndpoints,
    EntrySelection,
    GatewayChanged,
    GatewayUse,
    Routed,
    ServiceEndpoints,
    ServiceReport,
)
from api_types.messages.signals import EndpointDirectorySignals, signals_of
from tests.workflows.model_replica import builders as replicas
from workflows.endpoint_directory.directory import Directory
from workflows.endpoint_directory.state import DirectoryState
from workflows.entity.registering.endpoint import PublishedEndpoint
from workflows.inference_gateway.state import GatewayState
from workflows.inference_gateway.workflow import InferenceGatewayWorkflow
from workflows.model_endpoint import EndpointState, ModelEndpointWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow
from workflows.model_service.state import ServiceState
from workflows.model_service.workflow import ModelServiceWorkflow

# A receiver's factory: its state, and how it receives a message.
Made = tuple[Callable[[], Any], Callable[[str, Any], object]]
Row = tuple[Callable[[], Made], Message | None, Message | None]
WITHDRAWN = PublishedEndpoint(
    sequence=2, reported=None, applied=AppliedBackend(backend="me-a", digest="d")
)
QWEN = EntrySelection(match_labels={"deployment": "qwen"})


def of_entity(entity: Any, *fields: str) -> Made:
    handlers = workflow._Definition.must_from_class(type(entity)).signals

    def deliver(name: str, payload: Any) -> None:
        handlers[name].bind_fn(entity)(payload)

    return lambda: entity.state.model_copy(deep=True).model_dump(
        include=set(fields)
    ), deliver


def a_replica() -> Made:
    return of_entity(
        ModelReplicaWorkflow(
            replicas.a_replica(endpoint=WITHDRAWN.model_copy(deep=True))
        ),
        "endpoint",
    )


def an_endpoint(*fields: str) -> Made:
    return of_entity(
        ModelEndpointWorkflow(
            EndpointState(uid="u", endpoint=WITHDRAWN.model_copy(deep=True))
        ),
        *fields,
    )


def a_service(*fields: str) -> Made:
    return of_entity(ModelServiceWorkflow(ServiceState(uid="u")), *fields)


def a_gateway(*fields: str) -> Made:
    return of_entity(InferenceGatewayWorkflow(GatewayState(uid="g")), *fields)


def a_directory(*received: Message) -> Made:
    directory = Directory("ml", DirectoryState(), lambda last: last + 1)
    handlers = {
        "report_endpoint": directory.report_endpoint,
        "report_service": directory.report_service,
        "routed": directory.routed,
    }
    signals = signals_of(EndpointDirectorySignals)

    def deliver(name: str, payload: Any) -> None:
        take: Any = handlers[name]
        take(signals[name].parse(payload))

    for message in received:
        deliver(
            "report_endpoint"
            if isinstance(message, EndpointReport)
            else "report_service",
            message.wire(),
        )
    directory.lists()
    return lambda: directory.carried(DirectoryState()).model_dump(
        include={"endpoints", "services"}
    ), deliver


def seen(number: int, **part: Any) -> ControlObserved:
    owner = "g" if "gateway" in part else "u"
    return ControlObserved(
        owner_uid=owner, gateway_uid="g", run=1, sequence=number, **part
    )


def gateway_changed(sequence: int, address: str) -> GatewayChanged:
    return GatewayChanged(uid="g", sequence=sequence, connected=True, address=address)


def listed(version: int, matched: int) -> ServiceEndpoints:
    return ServiceEndpoints(
        uid="u", sequence=1, version=version, entries=[EntryEndpoints(matched=matched)]
    )


def endpoint_report(sequence: int, url: str = "") -> EndpointReport:
    endpoint = (
        Endpoint(
            name="a", uid="u", labels={"deployment": "qwen"}, url=url, backend="me-a"
        )
        if url
        else None
    )
    return EndpointReport(
        owner="ModelReplica", name="a", uid="u", sequence=sequence, endpoint=endpoint
    )


def service_report(sequence: int, *entries: EntrySelection) -> ServiceReport:
    return ServiceReport(name="s", uid="u", sequence=sequence, entries=list(entries))


def used(sequence: int, *, used: bool) -> GatewayUse:
    return GatewayUse(
        kind="ModelService",
        namespace="ml",
        name="s",
        uid="u",
        sequence=sequence,
        used=used,
    )


ROUTE = ObservedServiceRoute(present=True, generation=1)
ROWS: dict[tuple[str, str], Row] = {
    ("ModelReplica", "endpoint_withdrawn"): (
        a_replica,
        EndpointWithdrawn(uid="u", sequence=1),
        EndpointWithdrawn(uid="u", sequence=2),
    ),
    ("ModelReplica", "control_observed"): (
        a_replica,
        seen(1, backend=ObservedBackend()),
        seen(2, backend=ObservedBackend(digest="d")),
    ),
    ("ModelEndpoint", "endpoint_withdrawn"): (
        lambda: an_endpoint("endpoint"),
        EndpointWithdrawn(uid="u", sequence=1),
        EndpointWithdrawn(uid="u", sequence=2),
    ),
    ("ModelEndpoint", "control_observed"): (
        lambda: an_endpoint("endpoint"),
        seen(1, backend=ObservedBackend()),
        seen(2, backend=ObservedBackend(digest="d")),
    ),
    ("ModelEndpoint", "gateway_changed"): (
        lambda: an_endpoint("gateway"),
        gateway_changed(1, "10.0.0.1"),
        gateway_changed(2, "10.0.0.2"),
    ),
    ("ModelEndpoint", "resync"): (lambda: an_endpoint("endpoint"), None, None),
    ("ModelService", "endpoints_changed"): (
        lambda: a_service("selected"),
        listed(1, 1),
        listed(2, 0),
    ),
    ("ModelService", "gateway_changed"): (
        lambda: a_service("gateway"),
        gateway_changed(1, "10.0.0.1"),
        gateway_changed(2, "10.0.0.2"),
    ),
    ("ModelService", "control_observed"): (
        lambda: a_service("observed"),
        seen(1, route=ROUTE),
        seen(2, route=ROUTE.model_copy(update={"accepted": True})),
    ),
    ("ModelService", "resync"): (lambda: a_service("report_digest"), None, None),
    ("InferenceGateway", "gateway_used"): (
        lambda: a_gateway("users"),
        used(1, used=True),
        used(2, used=False),
    ),
    ("InferenceGateway", "control_observed"): (
        lambda: a_gateway("observed", "connects"),
        seen(1, gateway=ObservedGateway(reachable=True, address="10.0.0.1")),
        seen(2, gateway=ObservedGateway(reachable=True, address="10.0.0.2")),
    ),
    ("InferenceGateway", "resync"): (lambda: a_gateway("reported"), None, None),
    ("EndpointDirectory", "report_endpoint"): (
        lambda: a_directory(service_report(1, QWEN)),
        endpoint_report(1, "http://10.0.0.1/v1"),
        endpoint_report(2),
    ),
    ("EndpointDirectory", "report_service"): (
        lambda: a_directory(endpoint_report(1, "http://10.0.0.1/v1")),
        service_report(1),
        service_report(2, QWEN),
    ),
    ("EndpointDirectory", "routed"): (
        lambda: a_directory(
            endpoint_report(1, "http://10.0.0.1/v1"), service_report(1, QWEN)
        ),
        Routed(service="s", uid="u", version=0, endpoints=["b"]),
        Routed(service="s", uid="u", version=1, endpoints=["a"]),
    ),
}
