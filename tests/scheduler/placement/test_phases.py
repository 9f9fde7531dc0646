"""Spreading, scaling, and the charges of the ledger."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from scheduler.decide import apply, decide
from scheduler.fleet.replica_manifests import ledger_entry
from scheduler.model.decision import Decision, MemberPlacement
from scheduler.model.inputs import CacheView, ClusterView, FillGate, ScheduleRequest
from tests.scheduler.builders import (
    NOW,
    actions,
    bind_all,
    cluster,
    codes,
    condition,
    decided,
    deployment,
    engine,
    evicted,
    finish_releases,
    fleet,
    gang,
    gpu,
    leader,
    places,
    pool,
    put_replicas,
    report_releasing,
    settled,
    worker,
)


@dataclass(frozen=True)
class Case:
    """Clusters, existing replicas, the wanted number, and the resulting places."""

    story: str
    clusters: list[ClusterView]
    want: int
    expect: list[str]
    existing: list[str] = field(default_factory=list)
    shortfall: int = 0


def clusters(**nodes: int) -> list[ClusterView]:
    return [cluster(name, count) for name, count in nodes.items()]


CASES = [
    Case("one cluster takes both", clusters(a=2), 2, ["a/0", "a/1"]),
    Case("spreads before it packs", clusters(a=2, b=2), 2, ["a/0", "b/0"]),
    Case(
        "the third goes to the first by name",
        clusters(a=4, b=4),
        3,
        ["a/0", "a/1", "b/0"],
    ),
    Case(
        "the third is placed where nodes are free",
        clusters(a=4, b=1),
        3,
        ["a/0", "a/1", "b/0"],
    ),
    Case(
        "keeps what exists and fills the empty cluster",
        clusters(a=4, b=4),
        2,
        ["a/0", "b/0"],
        ["a/0"],
    ),
    Case(
        "the order of clusters does not matter",
        clusters(c=1, a=1, b=1),
        2,
        ["a/0", "b/0"],
    ),
    Case(
        "fills the gap in the indices",
        clusters(a=4),
        3,
        ["a/0", "a/1", "a/2"],
        ["a/0", "a/2"],
    ),
    Case("says what is missing", clusters(a=1), 2, ["a/0"], ["a/0"], 1),
    Case("places what it can", clusters(a=2, b=1), 5, ["a/0", "a/1", "b/0"], [], 2),
    Case(
        "a kept replica does not stand in its own way",
        clusters(a=1),
        1,
        ["a/0"],
        ["a/0"],
    ),
    Case(
        "the most loaded cluster gives",
        clusters(a=4, b=4),
        2,
        ["a/0", "b/0"],
        ["a/0", "a/1", "b/0"],
    ),
    Case(
        "load counts before index",
        clusters(a=4, b=4),
        2,
        ["a/0", "b/3"],
        ["a/0", "a/1", "b/3"],
    ),
    Case("the later name gives", clusters(a=4, b=4), 1, ["a/0"], ["a/0", "b/0"]),
    Case(
        "one at a time, down to one",
        clusters(a=4, b=4),
        1,
        ["a/0"],
        ["a/0", "a/1", "b/0", "b/1"],
    ),
    Case(
        "the loads are counted anew after each",
        clusters(a=4, b=4),
        2,
        ["a/0", "b/0"],
        ["a/0", "a/1", "b/0", "b/1"],
    ),
    Case("a tie goes to the lower name", clusters(b=1, a=1), 1, ["a/0"]),
    Case("zero wanted drops all", clusters(a=4), 0, [], ["a/0", "a/1"]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_replicas_spread_and_stay(case: Case) -> None:
    world = fleet(*case.clusters)
    view = deployment(want=case.want)
    put_replicas(world, view, *case.existing)
    decision = decided(world, view)
    assert (places(decision), decision.shortfall) == (case.expect, case.shortfall)


def test_names_the_order_in_which_replicas_are_removed() -> None:
    world = fleet(*clusters(a=4, b=4))
    view = deployment(want=4)
    put_replicas(world, view, "a/0", "a/1", "b/0", "b/1")
    where = {entry.name: f"{entry.cluster}/{entry.index}" for entry in world.entries()}
    gone = []
    for want in (3, 2, 1):
        decision = settled(
            world, replace(view, replicas=want), request_id=f"ask-{want}"
        )
        gone += [where[eviction.replica_name] for eviction in decision.evictions]
        finish_releases(world)
    assert gone == ["b/1", "a/1", "b/0"]


def test_another_deployments_replica_fills_the_cluster() -> None:
    world = fleet(cluster("a", 1))
    put_replicas(world, deployment(name="other"), "a/0")
    decision = decided(world, deployment())
    assert (places(decision), codes(decision)) == ([], {"InsufficientNodes": 1})


def test_a_member_without_requests_is_not_charged() -> None:
    world = fleet(cluster("a", 2))
    put_replicas(
        world, deployment(engine("main", leader(), worker(1)), name="other"), "a/0"
    )
    assert places(decided(world, deployment(want=2))) == ["a/0"]


def test_a_pool_that_disappeared_charges_nothing_until_it_is_published_again() -> None:
    world = fleet(cluster("a", 1))
    put_replicas(world, deployment(name="other"), "a/0", pools="gone")
    assert places(decided(world, deployment())) == ["a/0"]
    world.put_cluster(cluster("a", pool("gone", 1)))
    assert places(decided(world, deployment())) == []


def test_a_lost_pin_is_replaced_on_the_freed_node() -> None:
    world = fleet(cluster("a", 2))
    view = deployment(want=2)
    put_replicas(world, view, "a/0")
    lost = put_replicas(world, view, "a/1", pools="gone")
    decision = decided(world, view)
    assert (actions(decision), evicted(decision)) == (
        {"a/0": "Keep", "a/1": "Replace"},
        {lost[0]: "PinMismatch"},
    )


@pytest.mark.parametrize(
    ("story", "change"),
    [
        ("not Ready", {"ready": False}),
        ("no gateway", {"gateway_address": ""}),
        ("being deleted", {"deleting": True}),
        ("tainted", {"taints": ["x:NoSchedule"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_replica_on_an_unhealthy_cluster_is_removed_first(
    story: str, change: dict[str, Any]
) -> None:
    del story
    world = fleet(cluster("a", 4), cluster("b", 4))
    view = deployment(want=2)
    put_replicas(world, view, "a/0", "b/0")
    world.put_cluster(cluster("a", 4, **change))
    assert places(decided(world, replace(view, replicas=1))) == ["b/0"]


def test_a_replica_that_is_not_ready_is_removed_before_one_that_is() -> None:
    world = fleet(cluster("a", 4), cluster("b", 4))
    view = deployment(want=2)
    put_replicas(world, view, "a/0", ready=False)
    put_replicas(world, view, "b/0")
    assert places(decided(world, replace(view, replicas=1))) == ["b/0"]


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "the other way round"])
def test_the_first_by_name_of_two_objects_with_one_identity_stays(
    step: int,
) -> None:
    world = fleet(cluster("a", pool("x", 2), pool("y", 2)))
    view = deployment(want=1)
    order = [("m-1", "x"), ("m-2", "y")][::step]
    uids = {
        name: put_replicas(world, view, "a/0", pools=at, name=name)[0]
        for name, at in order
    }
    decision = decided(world, view)
    assert [p.replica_name for p in decision.placements] == ["m-1"]
    assert evicted(decision) == {uids["m-2"]: "DuplicateIdentity"}


@pytest.mark.parametrize(
    ("label", "index"),
    [(None, 0), ("x", 0), ("-1", 0), ("3", 3)],
    ids=lambda value: f"index {value}",
)
def test_the_index_is_read_from_its_label(label: str | None, index: int) -> None:
    labels = {
        "modelplane.ai/deployment": "m",
        **({} if label is None else {"modelplane.ai/replica-index": label}),
    }
    document = {
        "metadata": {"name": "m-1", "namespace": "ml", "labels": labels},
        "spec": {"clusterName": "a", "engines": []},
    }
    assert ledger_entry(document).index == index


def test_equal_names_in_two_namespaces_are_two_deployments() -> None:
    world = fleet(cluster("a", 1))
    put_replicas(world, deployment(namespace="other"), "a/0")
    decision = decided(world, deployment(namespace="ours"))
    assert (places(decision), decision.evictions) == ([], ())


def test_a_kept_replica_grows_before_another_is_placed() -> None:
    world = fleet(cluster("a", 6))
    small, large = (
        deployment(gang(1), want=2),
        deployment(gang(3), want=2, template="v2"),
    )
    put_replicas(world, small, "a/0")
    decision = settled(world, large)
    assert (actions(decision), decision.shortfall) == ({"a/0": "Update"}, 1)
    assert world.free("a") == {"p": 2}


def test_a_replica_that_cannot_grow_stays_as_it_is() -> None:
    world = fleet(cluster("a", 2))
    put_replicas(world, deployment(engine(copies=1)), "a/0")
    decision = settled(world, deployment(engine(copies=8), template="v2"))
    assert actions(decision) == {"a/0": "Keep"}
    assert decision.placements[0].engines[0].copies == 1
    assert decision.placements[0].template == "v1"
    assert condition(decision, "ResizeBlocked") == ("True", "ResizeBlocked")
    assert world.free("a") == {"p": 1}


def test_only_one_of_two_requests_gets_the_last_node() -> None:
    world = fleet(cluster("a", 1))
    first, second = decide(
        world,
        [
            ScheduleRequest("1", deployment(name="x")),
            ScheduleRequest("2", deployment(name="y")),
        ],
        NOW,
    )
    assert (places(first), places(second), codes(second)) == (
        ["a/0"],
        [],
        {"InsufficientNodes": 1},
    )
    assert list(world.entries()) == []


def test_applying_a_decision_twice_charges_once() -> None:
    world = fleet(cluster("a", 4))
    first = settled(world, deployment())
    version = world.version
    apply(world, first)
    again = decided(world, deployment(), request_id="ask-1")
    assert world.free("a") == {"p": 3}
    assert (world.version, actions(again)) == (version, {"a/0": "Keep"})


def test_an_old_reservation_is_freed_only_when_it_is_released() -> None:
    world = fleet(cluster("a", 1))
    decision = settled(world, deployment())
    late = NOW + 2 * world.options.reservation_ttl_seconds * 1000
    assert places(decided(world, deployment(name="other"), late)) == []
    assert world.free("a") == {"p": 0}
    assert world.release(decision.placements[0].uid)
    assert world.free("a") == {"p": 1}


def test_a_shrunk_pool_keeps_its_replicas_and_refuses_more() -> None:
    world = fleet(cluster("a", 2))
    view = deployment(want=3)
    put_replicas(world, view, "a/0", "a/1")
    world.put_cluster(cluster("a", 1))
    decision = decided(world, view)
    assert (places(decision), decision.shortfall, world.free("a")) == (
        ["a/0", "a/1"],
        1,
        {"p": -1},
    )


def test_a_held_fill_keeps_even_a_lost_pin() -> None:
    world = fleet(cluster("a", 2))
    view = deployment(cache=CacheView("Unresolved", "weights"))
    put_replicas(world, view, "a/0", pools="gone")
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_a_closed_gate_holds_like_a_cache() -> None:
    world = fleet(cluster("a", 2))
    decision = decided(
        world, deployment(), fill=FillGate(is_open=False, reason="a person said stop")
    )
    assert (places(decision), decision.message) == (
        [],
        "0 of 1 replicas scheduled. a person said stop",
    )


def test_nodes_of_an_evicted_replica_are_free_for_its_deployment_only() -> None:
    world = fleet(cluster("a", pool("p", 1), pool("q", 0)))
    view = deployment()
    put_replicas(world, view, "a/0", pools="p")
    changed = deployment(engine("renamed"))
    own, other = decide(
        world,
        [ScheduleRequest("1", changed), ScheduleRequest("2", deployment(name="other"))],
        NOW,
    )
    assert (actions(own), places(other)) == ({"a/0": "Replace"}, [])
    assert own.placements[0].after == (evicted_uid(own),)
    apply(world, own)
    assert world.free("a") == {"p": 0, "q": 0}
    finish_releases(world)
    assert world.free("a") == {"p": 0, "q": 0}
    assert world.audit() == []


def evicted_uid(decision: Decision) -> str:
    return next(iter(evicted(decision)))


def test_nodes_of_a_releasing_replica_are_reused_only_once() -> None:
    """A replica that reuses releasing nodes is charged in full once they are freed;
    otherwise a later release would be hidden.
    """
    world = fleet(cluster("a", 1))
    settled(world, deployment(), request_id="1")
    bind_all(world)
    second = settled(world, deployment(engine("second")), request_id="2").placements[0]
    assert second.reuse == (("p", 1),)
    finish_releases(world)
    assert [entry.reuse for entry in world.entries()] == [()]
    report_releasing(world, second.uid)
    assert places(decided(world, deployment(name="other"))) == []
    assert world.audit() == []


def test_a_cluster_found_full_is_tried_again_when_nodes_are_freed() -> None:
    world = fleet(cluster("a", 1))
    uid = put_replicas(world, deployment(name="other"), "a/0")[0]
    assert places(decided(world, deployment())) == []
    world.release(uid)
    assert places(decided(world, deployment())) == ["a/0"]


def test_a_cluster_found_full_is_tried_again_when_it_grows() -> None:
    world = fleet(cluster("a", 0))
    assert places(decided(world, deployment())) == []
    world.put_cluster(cluster("a", 1))
    assert places(decided(world, deployment())) == ["a/0"]


def test_full_clusters_of_a_batch_are_tried_again_in_the_next_batch() -> None:
    world = fleet(cluster("a", 1))
    decide(
        world,
        [
            ScheduleRequest("1", deployment(name="x")),
            ScheduleRequest("2", deployment(name="y")),
        ],
        NOW,
    )
    assert places(decided(world, deployment(name="z"))) == ["a/0"]


def test_a_cluster_whose_hardware_changed_is_matched_again() -> None:
    world = fleet(cluster("a", pool("p", 1, gpu("40Gi"))), cluster("b", 0))
    assert places(decided(world, deployment())) == []
    world.put_cluster(cluster("a", 1))
    assert places(decided(world, deployment())) == ["a/0"]


def test_a_terminating_replica_is_not_counted_and_its_index_not_reused() -> None:
    world = fleet(cluster("a", 4))
    view = deployment()
    uid = put_replicas(world, view, "a/0")[0]
    report_releasing(world, uid)
    decision = decided(world, view)
    assert (actions(decision), evicted(decision)) == ({"a/1": "Create"}, {})


def test_members_know_their_pods() -> None:
    assert [
        MemberPlacement("Leader", "p").pods,
        MemberPlacement("Worker", "p", worker_nodes=3).pods,
    ] == [1, 3]
