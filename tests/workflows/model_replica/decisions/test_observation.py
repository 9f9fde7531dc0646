"""Conclusions from a replica's observations.

Ready by counts, serving above a floor, and messages for users who wait.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from api_types.messages.cluster_work import (
    Applied,
    AppliedEngine,
    AppliedObject,
    ClusterFacts,
)
from api_types.messages.observations import (
    ObservedObject,
    ObservedPool,
    ObservedReplica,
    ObservedRoute,
    ObservedWorkload,
)
from tests.workflows.model_replica.builders import CLUSTER, a_replica
from workflows.model_replica.decisions.observation import (
    drift,
    drift_message,
    endpoint_url,
    engine_phase,
    holds_floor,
    model_problem,
    observed_status,
    overdue,
    routing_problem,
    workload_of,
)
from workflows.model_replica.decisions.status import endpoint

W = "qwen-1a2b3c4d"
NEW, OLD = "hash-new", "hash-old"


def an_engine(
    name: str = "main", copies: int = 1, kind: str = "Deployment"
) -> AppliedEngine:
    return AppliedEngine(
        name=name,
        kind=kind,
        workload_name=f"{W}-{name}",
        copies=copies,
        template_hash=NEW,
        template_hashes=[NEW],
    )


def applied(*engines: AppliedEngine, surface: str = "pool") -> Applied:
    return Applied(
        hash="h",
        workload_name=W,
        workload_namespace="ml",
        engines=list(engines or [an_engine()]),
        routing_surface=surface,
        picker_guards=surface == "pool",
    )


def a_workload(
    name: str = "main", copies: int = 1, kind: str = "Deployment", **counts: Any
) -> ObservedWorkload:
    whole = dict.fromkeys(
        ("desired", "updated", "ready", "available", "total", "pods_ready"), copies
    )
    return ObservedWorkload(
        name=f"{W}-{name}",
        kind=kind,
        **{"current": True, "hashes": [NEW], **whole, **counts},
    )


PICKER = ObservedWorkload(
    name=f"{W}-epp",
    kind="Deployment",
    current=True,
    desired=1,
    ready=1,
    available=1,
)


def seen(
    *workloads: ObservedWorkload,
    route: bool = True,
    pool: bool = True,
    picker: ObservedWorkload | None = PICKER,
) -> ObservedReplica:
    return ObservedReplica(
        workloads=[*workloads, *([picker] if picker else [])],
        routes=[
            ObservedRoute(
                name=W, accepted=route, message="" if route else "no such backend"
            )
        ],
        pools=[ObservedPool(name=f"{W}-pool", accepted=pool)],
    )


@dataclass(frozen=True)
class Counts:
    """The observation of one engine, and the message about it."""

    story: str
    workload: ObservedWorkload
    says: str
    engine: AppliedEngine = field(default_factory=lambda: an_engine(copies=2))


READINESS = [
    Counts("all copies of the newest template", a_workload(copies=2), ""),
    Counts(
        "available, but one copy is of the old template",
        a_workload(copies=2, updated=1),
        "1 up to date",
    ),
    Counts(
        "70 Available with nothing available",
        a_workload(copies=1, available=0),
        "1 of 1 copies ready",
        an_engine(),
    ),
    Counts(
        "the controller has not seen the newest spec",
        a_workload(copies=2, current=False),
        "2 of 2 copies ready",
    ),
    Counts(
        "an old copy is still there",
        a_workload(copies=2, total=3),
        "2 of 2 copies ready",
    ),
    Counts(
        "a gang that was ready before the change",
        a_workload(copies=2, kind="LeaderWorkerSet", hashes=[OLD]),
        "2 of 2 copies ready",
        an_engine(copies=2, kind="LeaderWorkerSet"),
    ),
    Counts(
        "the obstacle to the pods is named",
        a_workload(
            copies=2,
            ready=0,
            available=0,
            blocker="2 of 2 pods unschedulable: cannot allocate all claims",
        ),
        "0 of 2 copies ready, 2 up to date: 2 of 2 pods unschedulable: cannot allocate all claims",
    ),
]


@pytest.mark.parametrize("case", READINESS, ids=lambda case: case.story)
def test_an_engine_is_ready_by_counts_at_the_newest_template(case: Counts) -> None:
    problem = model_problem(applied(case.engine), seen(case.workload))
    assert case.says in problem
    assert bool(problem) is bool(case.says)


def test_an_engine_past_its_deadline_is_named_and_can_still_become_ready() -> None:
    late = seen(a_workload(overdue=True, ready=0))
    assert overdue(applied(), late) == ["main"]
    assert model_problem(applied(), late) != ""
    assert model_problem(applied(), seen(a_workload(overdue=True))) == ""


def test_every_unready_engine_is_named() -> None:
    problem = model_problem(
        applied(an_engine("a"), an_engine("b")), seen(a_workload("a", ready=0))
    )
    assert (
        problem
        == f"engine a has 0 of 1 copies ready, 1 up to date; Deployment {W}-b does not exist yet"
    )


ROUTING = [
    (
        "the picker is not ready",
        {"picker": PICKER.model_copy(update={"ready": 0, "available": 0})},
        "the endpoint picker is not ready",
    ),
    (
        "the picker is not there",
        {"picker": None},
        "the endpoint picker is not ready",
    ),
    (
        "the route is not accepted",
        {"route": False},
        f"HTTPRoute {W} is not accepted by the gateway: no such backend",
    ),
    (
        "the pool is not accepted",
        {"pool": False},
        f"InferencePool {W}-pool is not accepted by the gateway",
    ),
    ("all of it stands", {}, ""),
]


@pytest.mark.parametrize(
    ("story", "parts", "says"), ROUTING, ids=[story for story, _, _ in ROUTING]
)
def test_a_replica_is_routed_only_with_a_route_a_pool_and_a_picker(
    story: str, parts: dict[str, Any], says: str
) -> None:
    assert routing_problem(applied(), seen(a_workload(), **parts)) == says, story


@pytest.mark.parametrize(
    ("counts", "serves"),
    [
        pytest.param({"desired": 2, "available": 2, "ready": 1}, True, id="one of two"),
        pytest.param({"ready": 2, "available": 1}, True, id="during an update"),
        pytest.param({"ready": 1, "available": 0}, True, id="ready again"),
        pytest.param({"ready": 0}, False, id="none ready"),
    ],
)
def test_a_replica_serves_as_long_as_one_picker_is_ready(
    counts: dict[str, int], serves: bool
) -> None:
    view = seen(a_workload(), picker=PICKER.model_copy(update=counts))
    assert holds_floor(applied(), view, UNIFIED) == serves


def test_without_a_picker_only_a_plain_service_serves() -> None:
    view = seen(a_workload(), picker=None)
    assert not holds_floor(applied(), view, UNIFIED)
    assert holds_floor(applied(surface="service"), view, UNIFIED)


def test_a_replica_is_ready_when_gateways_know_all_its_pickers() -> None:
    new = PICKER.model_copy(update={"available": 0})
    assert routing_problem(applied(), seen(a_workload(), picker=new)) == (
        "the endpoint picker is not ready"
    )
    surging = PICKER.model_copy(update={"ready": 2, "available": 2})
    assert routing_problem(applied(), seen(a_workload(), picker=surging)) == ""


def test_a_service_routes_when_an_endpoint_behind_it_is_ready() -> None:
    view = seen(a_workload())
    assert (
        routing_problem(applied(surface="service"), view)
        == f"Service {W} has no ready endpoint"
    )
    assert (
        routing_problem(
            applied(surface="service"), view.model_copy(update={"endpoints_ready": 1})
        )
        == ""
    )


UNIFIED = [{"name": "main"}]
PAIR = [{"name": "prefill", "phase": "Prefill"}, {"name": "decode", "phase": "Decode"}]
FLOOR: list[tuple[str, list[dict[str, str]], ObservedReplica, bool]] = [
    (
        "one of three copies died",
        UNIFIED,
        seen(a_workload(copies=3, ready=2, pods_ready=2)),
        True,
    ),
    (
        "the last copy died",
        UNIFIED,
        seen(a_workload(copies=3, ready=0, pods_ready=0)),
        False,
    ),
    (
        "the last prefill pod died",
        PAIR,
        seen(a_workload("prefill", pods_ready=0), a_workload("decode")),
        False,
    ),
    (
        "one of each phase is left",
        PAIR,
        seen(
            a_workload("prefill", 3, pods_ready=1),
            a_workload("decode", 2, pods_ready=1),
        ),
        True,
    ),
    (
        "there is no picker",
        UNIFIED,
        seen(a_workload(), picker=None),
        False,
    ),
    ("the route is refused", UNIFIED, seen(a_workload(), route=False), False),
]


@pytest.mark.parametrize(
    ("story", "engines", "view", "holds"),
    FLOOR,
    ids=[story for story, *_ in FLOOR],
)
def test_a_serving_replica_continues_to_serve_above_a_floor(
    story: str, engines: list[dict[str, str]], view: ObservedReplica, *, holds: bool
) -> None:
    made = applied(*(an_engine(engine["name"]) for engine in engines))
    assert holds_floor(made, view, engines) is holds, story


@pytest.mark.parametrize(
    ("address", "url"),
    [
        pytest.param("10.0.0.1", "http://10.0.0.1/ml-team/r-1a2b3/v1", id="IPv4"),
        pytest.param(
            "2001:db8::1",
            "http://[2001:db8::1]/ml-team/r-1a2b3/v1",
            id="IPv6 in brackets",
        ),
    ],
)
def test_the_address_of_a_replica(address: str, url: str) -> None:
    assert endpoint_url(address, "ml-team", "r-1a2b3") == url
    assert endpoint_url(address, "ml-team", "r-1a2b3", "https") == url.replace(
        "http", "https"
    )


def test_the_scheme_is_set_by_the_operator() -> None:
    facts = ClusterFacts(gateway_address="10.0.0.1", gateway_scheme="https")
    state = a_replica(cluster=CLUSTER.model_copy(update={"facts": facts}), serving=True)
    assert endpoint(state) == "https://10.0.0.1/ml/qwen-eu-0/v1"


def test_a_shared_copy_never_counts_as_drift() -> None:
    ours = AppliedObject(key="model-route", id="v/Route/ml/qwen", digest="d1")
    copy = AppliedObject(key="secret-hub", id="v1/Secret/ml/mpx-hub")
    made = applied().model_copy(update={"inventory": [copy, ours]})
    assert (
        drift(made, ObservedReplica(objects=[ObservedObject(id=ours.id, digest="d1")]))
        == []
    )
    assert drift(
        made, ObservedReplica(objects=[ObservedObject(id=ours.id, digest="d2")])
    ) == [ours]


def test_an_object_in_another_version_of_its_api_is_no_drift() -> None:
    ours = AppliedObject(
        key="resource-claim-main",
        id="resource.k8s.io/v1beta2/ResourceClaimTemplate/ml/claim",
        digest="d1",
    )
    made = applied().model_copy(update={"inventory": [ours]})
    seen = ObservedObject(
        id="resource.k8s.io/v1/ResourceClaimTemplate/ml/claim", digest="d1"
    )
    assert drift(made, ObservedReplica(objects=[seen])) == []
    other = seen.model_copy(
        update={"id": "example.com/v1/ResourceClaimTemplate/ml/claim"}
    )
    assert drift(made, ObservedReplica(objects=[other])) == [ours]


def test_drift_names_modified_and_missing_objects() -> None:
    inventory = [
        AppliedObject(
            key="model-serving-main", id="apps/v1/Deployment/ml/qwen-main", digest="d1"
        ),
        AppliedObject(
            key="model-route",
            id="gateway.networking.k8s.io/v1/HTTPRoute/ml/qwen",
            digest="d1",
        ),
        AppliedObject(key="model-service", id="v1/Service/ml/qwen", digest="d1"),
    ]
    view = ObservedReplica(
        objects=[
            ObservedObject(id=inventory[0].id, digest="d2"),
            ObservedObject(id=inventory[1].id, digest="d1"),
        ]
    )
    made = applied().model_copy(update={"inventory": inventory})
    assert (
        drift_message(made, view)
        == "Deployment/qwen-main was modified, Service/qwen is missing"
    )


@pytest.mark.parametrize(
    ("counts", "phase"),
    [
        ({}, "Ready"),
        ({"updated": 1}, "Updating"),
        ({"ready": 1}, "Degraded"),
        ({"ready": 0, "updated": 2}, "Starting"),
    ],
    ids=[
        "all ready",
        "old and new side by side",
        "one of two died",
        "nothing answers yet",
    ],
)
def test_an_engine_shows_its_progress(counts: dict[str, Any], phase: str) -> None:
    made = applied(an_engine(copies=2))
    view = seen(a_workload(copies=2, **counts))
    workload = workload_of(made.engines[0], view)
    assert workload
    assert engine_phase(made.engines[0], workload, model_problem(made, view)) == phase
    (engine,) = observed_status(made, view, "")["engines"]
    assert engine["phase"] == phase
