"""Duplicate and late messages, receiver by receiver.

Each message arrives twice, and once more after a later one. Each row has two messages
of one sender in the order of sending, and the receiver's final state. These tests need
no server.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import pytest
from temporalio import workflow

from api_types.base import Message
from api_types.messages.caches import (
    CacheChanged,
    CacheOnCluster,
    CacheReport,
    CacheUse,
)
from api_types.messages.clouds import CloudDelete, CloudOrder, CloudReport
from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import (
    ClassChanged,
    ClassUse,
    Delete,
    ReplicaChanged,
    SetLabels,
    SetTemplate,
    StartedReplicas,
)
from api_types.messages.observations import Observed, ObservedCache, ObservedCluster
from api_types.messages.scheduling import (
    Bound,
    Evict,
    Forget,
    Forgotten,
    Occupied,
    PlacementResponse,
    Released,
    ReplicaEviction,
    ReportClass,
    Resync,
    Revoke,
    Revoked,
)
from api_types.messages.signals import (
    CloudClusterSignals,
    EndpointDirectorySignals,
    FleetSchedulerSignals,
    InferenceClassSignals,
    InferenceClusterSignals,
    InferenceGatewaySignals,
    ModelCacheSignals,
    ModelDeploymentSignals,
    ModelEndpointSignals,
    ModelReplicaSignals,
    ModelServiceSignals,
    StackUpgradesSignals,
    signals_of,
)
from api_types.messages.upgrades import UpgradeRequest, UpgradeTurn
from api_types.messages.versions import MessageVersion, ObservationOrder
from api_types.names import FLEET_SCHEDULER_ID, STACK_UPGRADES_ID, cloud_cluster_id
from scheduler import to_wire
from tests.scheduler.builders import cluster, deployment
from tests.workflows.environment.protocol_fleet import ReportedCluster
from tests.workflows.environment.serverless import Serverless, id_of
from tests.workflows.fleet_scheduler.cycle import run_cycle
from tests.workflows.fleet_scheduler.requests import place
from tests.workflows.inference_cluster import builders as clusters
from tests.workflows.model_cache import builders as caches
from tests.workflows.model_deployment.exchange import (
    ENTRY,
    NOW,
    a_controller,
    named,
    state_of,
)
from tests.workflows.model_replica import builders as replicas
from tests.workflows.routing.late_messages import ROWS as ROUTING
from tests.workflows.routing.late_messages import Made
from workflows.cloud_cluster.workflow import CloudClusterWorkflow
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.inference_class import ClassState, InferenceClassWorkflow
from workflows.inference_cluster.stack_state import StackState, TurnState
from workflows.inference_cluster.workflow import InferenceClusterWorkflow
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_deployment.orders import (
    SendDeploymentSignals,
    StartReplicaWorkflows,
)
from workflows.model_deployment.state import DeploymentState, TrackedReplica
from workflows.model_deployment.workflow import ModelDeploymentWorkflow
from workflows.model_replica.decisions.status import account_of
from workflows.model_replica.reducers import messages
from workflows.model_replica.workflow import ModelReplicaWorkflow
from workflows.stack_upgrades.state import UpgradesState
from workflows.stack_upgrades.turns import UpgradeTurns

KINDS = (
    InferenceClassSignals,
    InferenceClusterSignals,
    ModelCacheSignals,
    ModelDeploymentSignals,
    ModelReplicaSignals,
    FleetSchedulerSignals,
    EndpointDirectorySignals,
    InferenceGatewaySignals,
    ModelEndpointSignals,
    ModelServiceSignals,
    StackUpgradesSignals,
    CloudClusterSignals,
)
LABELLED = {
    "template": {"spec": {"engines": []}, "metadata": {"labels": {"team": "a"}}}
}
WITH_CACHE = {"template": {"spec": {"modelCacheRef": {"name": "weights"}}}}
TRACKED = TrackedReplica(
    uid="r",
    name="qwen-0",
    cluster="eu",
    index=0,
    entry=ENTRY,
    started=True,
    bound=True,
    generation=1,
)


class Received(NamedTuple):
    """The state of a receiver, and how it receives a message."""

    kept: Callable[[], Any]
    deliver: Callable[[str, Any], object]


def of_entity(entity: Any, *fields: str) -> Received:
    """Return some fields of an entity's state."""
    handlers = workflow._Definition.must_from_class(type(entity)).signals

    def deliver(name: str, payload: Any) -> None:
        handlers[name].bind_fn(entity)(payload)

    return Received(
        lambda: entity.state.model_copy(deep=True).model_dump(include=set(fields)),
        deliver,
    )


def a_replica(*fields: str, **state: Any) -> Received:
    return of_entity(ModelReplicaWorkflow(replicas.a_replica(**state)), *fields)


def a_deployment(*fields: str, **state: Any) -> Received:
    made = DeploymentState(
        **{
            "uid": "d",
            "generation": 1,
            "adopted": True,
            "replicas": {"r": TRACKED},
            **state,
        }
    )
    return of_entity(ModelDeploymentWorkflow(made), *fields)


def a_cluster(*fields: str, **state: Any) -> Received:
    return of_entity(InferenceClusterWorkflow(clusters.a_cluster(**state)), *fields)


def a_class(*fields: str) -> Received:
    return of_entity(InferenceClassWorkflow(ClassState()), *fields)


def a_cache(*fields: str, **state: Any) -> Received:
    return of_entity(ModelCacheWorkflow(CacheState(**{"uid": "c", **state})), *fields)


def a_cloud_cluster() -> Received:
    """Return the desired state at a cloud."""
    return of_entity(CloudClusterWorkflow(), "order", "classes", "deletion")


def cloud_order(number: int) -> CloudOrder:
    return CloudOrder(
        uid="u",
        sequence=number,
        generation=number,
        manifest={"spec": {"nodePools": [{"name": f"pool-{number}"}]}},
    )


def a_scheduler(*received: tuple[str, Message]) -> Received:
    """Return the ledger, the published clusters and the queue."""
    cache = SchedulerCache(SchedulerState(), lambda: 0)
    cache.fleet.put_cluster(cluster("a", 4))
    for name, message in received:
        run_cycle(cache, (name, message.wire()))

    def kept() -> Any:
        entries = sorted((entry.uid, entry.state) for entry in cache.fleet.entries())
        nodes = {
            name: sum(pool.nodes for pool in info.view.pools)
            for name, info in cache.fleet.clusters.items()
        }
        return entries, nodes, list(cache.state.unplaced), list(cache.state.classes)

    return Received(kept, lambda name, payload: run_cycle(cache, (name, payload)))


def observed(number: int, **seen: Any) -> Observed:
    return Observed(
        owner_uid="u",
        order=ObservationOrder(cluster_uid="u", run=1, sequence=number),
        digest="",
        **seen,
    )


def template(generation: int, sequence: int, team: str) -> SetTemplate:
    return SetTemplate(
        uid="u",
        generation=generation,
        sequence=sequence,
        spec={"engines": []},
        labels={"team": team},
    )


def class_changed(generation: int, sequence: int, price: int) -> ClassChanged:
    return ClassChanged(
        name="h100-8x",
        uid="k",
        generation=generation,
        sequence=sequence,
        spec={"devices": []},
        price_milli=price,
    )


def answer(number: int, message: str) -> PlacementResponse:
    return PlacementResponse(
        request_id=f"d/1/{number}", epoch=1, generation=1, message=message
    )


def eviction(uid: str) -> ReplicaEviction:
    return ReplicaEviction(
        uid=uid, name=f"qwen-{uid}", cluster="eu", reason="preempted"
    )


def placed(want: int, number: int) -> tuple[str, Message]:
    return "place", place(deployment(want=want), number, sequence=number)


def entry_of(want: int, number: int) -> dict[str, Any]:
    """Return the placements that the scheduler reserves for a request, in wire form, by uid."""
    cache = SchedulerCache(SchedulerState(), lambda: 0)
    cache.fleet.put_cluster(cluster("a", 4))
    run_cycle(
        cache, ("place", place(deployment(want=want), number, sequence=number).wire())
    )
    return {entry.uid: to_wire(entry) for entry in cache.fleet.entries()}


def turns_of_upgrades() -> Received:
    """Return the upgrading and the waiting clusters."""
    turns = UpgradeTurns(UpgradesState(), lambda last: last + 1, lambda *_: None)

    def deliver(_: str, payload: Any) -> None:
        turns.request(UpgradeRequest.model_validate(payload), NOW)
        turns.advance(NOW)

    return Received(
        lambda: turns.carried(UpgradesState()).model_dump(include={"requests"}), deliver
    )


def asks_for_turn(sequence: int, **fields: Any) -> UpgradeRequest:
    return UpgradeRequest(cluster="eu", uid="u", turn=1, sequence=sequence, **fields)


(UID,) = entry_of(1, 1)
USED = CacheUse(workflow_id="modelreplica/ml/a", uid="a", sequence=1, cluster="eu")
SITE = caches.a_site(sequence=1)


def _received(made: Callable[[], Made]) -> Received:
    return Received(*made())


IDS = {
    "CloudCluster": cloud_cluster_id("eu", "u"),
    "FleetScheduler": FLEET_SCHEDULER_ID,
    "EndpointDirectory": "endpointdirectory/ml",
    "StackUpgrades": STACK_UPGRADES_ID,
    "InferenceGateway": "inferencegateway/default",
}


class Case(NamedTuple):
    """The receiver, and two messages of one sender."""

    receiver: Callable[[], Received]
    first: Message | None
    second: Message | None


CASES: dict[tuple[str, str], Case] = {
    ("ModelReplica", "set_template"): Case(
        lambda: a_replica("spec", "generation", "labels"),
        template(2, 1, "red"),
        template(2, 2, "blue"),
    ),
    ("ModelReplica", "set_template of another generation"): Case(
        lambda: a_replica("spec", "generation", "labels"),
        template(2, 1, "red"),
        template(3, 2, "blue"),
    ),
    ("ModelReplica", "set_labels"): Case(
        lambda: a_replica("labels"),
        SetLabels(uid="u", sequence=1, labels={"team": "red"}),
        SetLabels(uid="u", sequence=2),
    ),
    ("ModelReplica", "set_labels and a template"): Case(
        lambda: a_replica("labels", "generation"),
        SetLabels(uid="u", sequence=1, labels={"team": "red"}),
        template(2, 2, "blue"),
    ),
    ("ModelReplica", "delete"): Case(
        lambda: a_replica("deletion_timestamp"), Delete(uid="u"), Delete(uid="u")
    ),
    ("ModelReplica", "cluster_changed"): Case(
        lambda: a_replica("cluster"),
        replicas.CLUSTER.model_copy(update={"sequence": 2, "connected": False}),
        replicas.CLUSTER.model_copy(update={"sequence": 3}),
    ),
    ("ModelReplica", "cache_report"): Case(
        lambda: a_replica(
            "cache", "cache_claim", spec={"modelCacheRef": {"name": "weights"}}
        ),
        CacheReport(
            cache="weights",
            uid="c",
            sequence=1,
            cluster="eu",
            phase="Ready",
            claim="old",
        ),
        CacheReport(
            cache="weights",
            uid="c",
            sequence=2,
            cluster="eu",
            phase="Ready",
            claim="new",
        ),
    ),
    ("ModelReplica", "cache_changed"): Case(
        lambda: a_replica(
            "cache_claim",
            "cache_registered",
            spec={"modelCacheRef": {"name": "weights"}},
            cache_claim="kept",
        ),
        CacheChanged(cache="weights", uid="c", sequence=1, present=False),
        CacheChanged(cache="weights"),
    ),
    ("ModelReplica", "observed"): Case(
        lambda: a_replica("observed"),
        observed(1, replica=replicas.observed(ready=0)),
        observed(2, replica=replicas.observed()),
    ),
    ("ModelReplica", "resync"): Case(
        lambda: a_replica("reported", "spec", "generation"), Resync(epoch=1), None
    ),
    ("ModelDeployment", "placed"): Case(
        lambda: a_deployment("answer", "returned", request_id="d/1/2", last_request=2),
        answer(1, "late"),
        answer(2, "newest"),
    ),
    ("ModelDeployment", "replica_changed"): Case(
        lambda: a_deployment("replicas"),
        ReplicaChanged(name="qwen-0", uid="r", sequence=1, phase="Ready", ready=True),
        ReplicaChanged(name="qwen-0", uid="r", sequence=2, phase="Degraded"),
    ),
    ("ModelDeployment", "replica_changed when it is gone"): Case(
        lambda: a_deployment("replicas", "unknown"),
        ReplicaChanged(name="qwen-0", uid="r", sequence=1, phase="Terminating"),
        ReplicaChanged(name="qwen-0", uid="r", sequence=2, phase="Gone"),
    ),
    ("ModelDeployment", "revoke"): Case(
        lambda: a_deployment("revoked"),
        Revoke(uid="x", epoch=1),
        Revoke(uid="r", epoch=1),
    ),
    ("ModelDeployment", "evict"): Case(
        lambda: a_deployment("replicas", "returned"),
        Evict(epoch=1, eviction=eviction("x")),
        Evict(epoch=1, eviction=eviction("r")),
    ),
    ("ModelDeployment", "released"): Case(
        lambda: a_deployment(
            "replicas",
            replicas={
                "r": TRACKED.model_copy(update={"started": False, "after": ["x", "y"]})
            },
        ),
        Released(uid="x"),
        Released(uid="y"),
    ),
    ("ModelDeployment", "forgotten"): Case(
        lambda: a_deployment(
            "released", epoch=2, release_check_at="2026-01-01T00:00:00+00:00"
        ),
        Forgotten(uid="d", epoch=1),
        Forgotten(uid="d", epoch=2),
    ),
    ("ModelDeployment", "resync"): Case(
        lambda: a_deployment("epoch", "replicas"), Resync(epoch=5), Resync(epoch=6)
    ),
    ("ModelDeployment", "cache_changed"): Case(
        lambda: a_deployment("cache", spec=WITH_CACHE),
        CacheChanged(
            cache="weights", uid="c", sequence=1, match_labels={"tier": "iron"}
        ),
        CacheChanged(
            cache="weights", uid="c", sequence=2, match_labels={"tier": "gold"}
        ),
    ),
    ("InferenceCluster", "class_changed"): Case(
        lambda: a_cluster("classes"), class_changed(2, 1, 100), class_changed(2, 2, 200)
    ),
    ("InferenceCluster", "class_changed of another generation"): Case(
        lambda: a_cluster("classes"), class_changed(2, 1, 100), class_changed(3, 2, 100)
    ),
    ("InferenceCluster", "cache_staged"): Case(
        lambda: a_cluster("caches"),
        CacheOnCluster(cache="ml/a", uid="c", sequence=1),
        CacheOnCluster(cache="ml/a", uid="c", sequence=2, staged=False),
    ),
    ("InferenceCluster", "observed"): Case(
        lambda: a_cluster("observed", "unreachable_since"),
        observed(1, cluster=ObservedCluster(reachable=False, error="no answer")),
        observed(2, cluster=ObservedCluster(gateway_address="10.0.0.1")),
    ),
    ("InferenceCluster", "resync"): Case(
        lambda: a_cluster("epoch"), Resync(epoch=5), Resync(epoch=6)
    ),
    ("InferenceCluster", "upgrade_turn"): Case(
        lambda: a_cluster("stack", stack=StackState(turn=TurnState(number=7))),
        UpgradeTurn(uid="u", turn=7, sequence=1, holders=["us"]),
        UpgradeTurn(uid="u", turn=7, sequence=2, granted=True),
    ),
    ("StackUpgrades", "request_upgrade"): Case(
        turns_of_upgrades, asks_for_turn(1), asks_for_turn(2, wanted=False)
    ),
    ("InferenceClass", "class_wanted"): Case(
        lambda: a_class("clusters"),
        ClassUse(cluster="eu", uid="u", sequence=1),
        ClassUse(cluster="eu", uid="u", sequence=2, used=False),
    ),
    ("InferenceClass", "resync"): Case(
        lambda: a_class("epoch"), Resync(epoch=5), Resync(epoch=6)
    ),
    ("ModelCache", "cache_wanted"): Case(
        lambda: a_cache("users"),
        USED,
        USED.model_copy(update={"sequence": 2, "used": False}),
    ),
    ("ModelCache", "cluster_changed"): Case(
        lambda: a_cache(
            "stagings",
            stagings={
                "eu-1": caches.a_staging(
                    site=SITE, site_version=MessageVersion(uid="u", sequence=1)
                )
            },
        ),
        caches.a_site(sequence=2, labels={"tier": "iron"}),
        caches.a_site(sequence=3),
    ),
    ("ModelCache", "observed"): Case(
        lambda: a_cache(
            "stagings", uid="u", stagings={"eu-1": caches.a_staging(caches.a_copy())}
        ),
        observed(1, cache=caches.observed(job="Failed")),
        observed(2, cache=ObservedCache(cluster="eu-1")),
    ),
    ("FleetScheduler", "place"): Case(a_scheduler, placed(2, 1)[1], placed(1, 2)[1]),
    ("FleetScheduler", "bound"): Case(
        lambda: a_scheduler(placed(1, 1)),
        Bound(entries=entry_of(1, 1)),
        Bound(entries={**entry_of(1, 1), **entry_of(1, 7)}),
    ),
    ("FleetScheduler", "released"): Case(
        lambda: a_scheduler(placed(1, 1), ("bound", Bound(entries=entry_of(1, 1)))),
        Released(uid="x"),
        Released(uid=UID),
    ),
    ("FleetScheduler", "revoked"): Case(
        lambda: a_scheduler(placed(1, 1)),
        Revoked(uid="x", deployment_uid="u"),
        Revoked(uid=UID, deployment_uid=deployment().uid),
    ),
    ("FleetScheduler", "report_cluster"): Case(
        a_scheduler,
        ReportedCluster("eu", {"p": 2}).report(1),
        ReportedCluster("eu", {"p": 5}).report(2),
    ),
    ("FleetScheduler", "report_class"): Case(
        a_scheduler,
        ReportClass(name="k", generation=1, spec={}),
        ReportClass(name="k", generation=2, spec={}),
    ),
    ("InferenceCluster", "cloud_reported"): Case(
        lambda: a_cluster(
            "cloud",
            spec={"cluster": {"source": "GKE", "gke": {"region": "europe-west4"}}},
        ),
        CloudReport(uid="u", sequence=1, phase="Creating", message="creates"),
        CloudReport(uid="u", sequence=2, phase="Ready", usable=True, ready=True),
    ),
    ("CloudCluster", "apply"): Case(a_cloud_cluster, cloud_order(1), cloud_order(2)),
    ("CloudCluster", "delete"): Case(
        a_cloud_cluster,
        CloudDelete(uid="u", sequence=1),
        CloudDelete(uid="u", sequence=2, skip_cluster=True),
    ),
    ("FleetScheduler", "forget"): Case(
        lambda: a_scheduler(
            ("report_cluster", ReportedCluster("eu", {"p": 2}).report(1, "second"))
        ),
        Forget(kind="InferenceCluster", name="eu", uid="first"),
        Forget(kind="InferenceCluster", name="eu", uid="second"),
    ),
}
CASES |= {
    key: Case(partial(_received, made), first, second)
    for key, (made, first, second) in ROUTING.items()
}
# Users send these signals. `entity/test_door.py` tests `scale` and `set_spec`.
OF_USERS = {
    "set_spec",
    "scale",
    "record_event",
    "retry_now",
    "keep",
    "set_policy",
    "cancel_requested",
}
# Each of these has its own test below, or only requests a check.
APART = {
    ("InferenceCluster", "occupied"),
    ("ModelReplica", "force"),
    ("ModelCache", "secrets_changed"),
    ("ModelReplica", "secrets_changed"),
    ("ModelDeployment", "check_replicas"),
    *((kind.kind, "delivery") for kind in KINDS),
}
# Deletion and force of objects that no other entity deletes.
BY_USERS = {
    ("InferenceCluster", "force_finalizer"),
    *((kind.kind, name) for kind in KINDS for name in ("delete", "force")),
} - {
    ("ModelReplica", "delete"),
    ("ModelReplica", "force"),
    ("CloudCluster", "delete"),
}


def test_every_message_between_entities_is_in_the_table() -> None:
    sent = {(kind.kind, name) for kind in KINDS for name in signals_of(kind)} - BY_USERS
    assert {(kind, name.split(" ")[0]) for kind, name in CASES} | APART == {
        each for each in sent if each[1] not in OF_USERS
    }


@pytest.mark.parametrize("row", CASES, ids=" ".join)
def test_a_duplicate_or_late_message_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, row: tuple[str, str]
) -> None:
    case, name = CASES[row], row[1].split(" ")[0]
    temporal = Serverless(monkeypatch, IDS.get(row[0]) or id_of(row[0]))
    late, doubled = case.receiver(), case.receiver()
    first, second = (
        None if message is None else message.wire()
        for message in (case.first, case.second)
    )
    other = "set_template" if row[1].endswith("a template") else name
    late.deliver(name, first)
    late.deliver(other, second)
    meant = late.kept()
    temporal.now += timedelta(seconds=1)
    late.deliver(other, second)
    assert late.kept() == meant, "twice"
    late.deliver(name, first)
    assert late.kept() == meant, "late"
    temporal.now = NOW
    for sent, message in (
        (name, first),
        (name, first),
        (other, second),
        (other, second),
    ):
        doubled.deliver(sent, message)
    assert doubled.kept() == meant, "each twice"


def test_a_late_answer_with_replicas_makes_a_cluster_ask_again_and_an_outdated_one_is_void(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {
        "watch_cluster": None,
        "signal_many": SignalBatchResult(),
        "broadcast": None,
    }
    cluster = InferenceClusterWorkflow(clusters.a_cluster(caches=["ml/weights"]))
    cluster.delete(Delete(by="ann").wire())
    assert not asyncio.run(cluster.tear_down())
    before = Occupied(
        cluster="eu",
        uid="u",
        sequence=cluster.state.sequence,
        replicas=["ml/qwen-eu-0"],
    )
    none = before.model_copy(update={"replicas": []})
    for message in (before, none, none, before):
        cluster.occupied(message.wire())
    temporal.now += timedelta(seconds=1)
    assert not asyncio.run(cluster.tear_down())
    assert (cluster.state.sequence > before.sequence, cluster.state.occupied) == (
        True,
        None,
    )
    for message in (none, before):
        cluster.occupied(message.wire())
    assert cluster.state.occupied is None
    cluster.occupied(
        none.model_copy(update={"sequence": cluster.state.sequence}).wire()
    )
    assert cluster.state.occupied == []


def test_a_forwarded_force_skips_one_step_of_each_replica_however_often_it_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelreplica/ml/qwen-eu-0")
    controller = a_controller(
        deletion_timestamp=NOW.isoformat(), replicas={"r": TRACKED}, forced="step"
    )
    (sent,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, SendDeploymentSignals)
        and order.signals[0].signal == "force"
    ]
    state_of(controller).forced = "step"
    (again,) = named(controller.next_orders({}), "force")
    replica = ModelReplicaWorkflow(
        replicas.a_replica(deletion_timestamp=NOW.isoformat())
    )
    forced = []
    for payload in (
        sent.signals[0].payload,
        sent.signals[0].payload,
        again,
        sent.signals[0].payload,
    ):
        replica.force(payload)
        forced.append(replica.state.forced)
        # The awaited step is skipped.
        replica.state.forced = ""
    assert (sent.recorded, forced) == (True, ["step", "", "step", ""])


def test_labels_of_a_successor_are_newer_for_adopted_replicas_even_if_the_clock_went_back() -> (
    None
):
    ahead = int(NOW.timestamp() * 1000) + 3_600_000
    account = account_of(
        replicas.a_replica(template_sequence=ahead, uid="u"), gone=False
    )
    controller = a_controller()
    state_of(controller).spec = {**(state_of(controller).spec or {}), **LABELLED}
    controller.replicas.adopt({"modelreplica/ml/qwen-eu-0": account.wire()})
    (payload,) = [
        signal.payload
        for order in controller.replicas.update_labels()
        if isinstance(order, SendDeploymentSignals)
        for signal in order.signals
    ]
    replica = replicas.a_replica(template_sequence=ahead, uid="u")
    assert messages.set_labels(replica, SetLabels.model_validate(payload))
    assert replica.labels["team"] == "a"


def test_a_late_request_does_not_replace_a_newer_waiting_one() -> None:
    cache = SchedulerCache(SchedulerState(), lambda: 0)
    cache.fleet.put_cluster(cluster("a", 4))
    older, newer = (
        place(deployment(want=want), number, sequence=number)
        for want, number in ((3, 1), (1, 2))
    )
    assert [
        decided.wanted
        for decided in run_cycle(
            cache, ("place", newer.wire()), ("place", older.wire())
        )
    ] == [1]
    assert len(list(cache.fleet.entries())) == 1


def test_a_repeated_request_gets_its_first_answer_whatever_has_changed_since() -> None:
    cache = SchedulerCache(SchedulerState(), lambda: 0)
    cache.fleet.put_cluster(cluster("a", 4))
    request = place(deployment(want=2), sequence=1)
    run_cycle(cache, ("place", request.wire()))
    before, entries = cache.answers[request.request_id], list(cache.fleet.entries())
    assert len(before["placements"]) == 2
    cache.fleet.put_cluster(cluster("a", 4, taints=["gone:NoExecute"]))
    assert run_cycle(cache, ("place", request.wire())) == [request]
    assert (cache.answers[request.request_id], list(cache.fleet.entries())) == (
        before,
        entries,
    )


def test_messages_of_deployments_and_classes_are_numbered_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = a_controller(
        replicas={"r": TRACKED.model_copy(update={"started": False, "restarted": True})}
    )
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    orders = controller.replicas.started(start, StartedReplicas())
    (sent,) = named(orders, "set_template")
    state_of(controller).spec = {**(state_of(controller).spec or {}), **LABELLED}
    (labelled,) = named(controller.replicas.update_labels(), "set_labels")
    numbers = [start.replicas[0].sequence, sent["sequence"], labelled["sequence"]]
    assert (numbers[0] > 0, numbers) == (True, sorted(set(numbers)))
    Serverless(monkeypatch, "inferenceclass/h100-8x")
    entity = InferenceClassWorkflow(
        ClassState(uid="k", generation=1, spec={"devices": []})
    )
    reports = [entity._cluster_report().sequence for _ in range(2)]
    assert (reports[0] > 0, reports) == (True, sorted(set(reports)))
