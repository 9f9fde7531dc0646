"""The effect of edits, classes, clusters and taints on running replicas."""

from dataclasses import replace

import pytest

from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import CacheView, DeploymentView, EngineView
from scheduler.model.policy import DrainPolicy, PlacementPolicy, RolloutPolicy
from tests.scheduler.builders import (
    IS_NIC,
    NOW,
    actions,
    alone,
    ask,
    at_least,
    below,
    bind_all,
    cluster,
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
    message,
    nic,
    places,
    pool,
    pools_of,
    put_replicas,
    settled,
    worker,
)

SMALL = engine("main", alone(ask(below("200Gi"))))
LARGE = engine("main", alone(ask(at_least("200Gi"))))
TWO_POOLS = (pool("small", 2, gpu("141Gi")), pool("large", 2, gpu("200Gi")))
ALL_AT_ONCE = PlacementPolicy(RolloutPolicy("AllAtOnce"))


def without_digests(world: Fleet, uid: str) -> None:
    """Reduce a replica to the fields of its manifest."""
    entry = world.replica(uid)
    assert entry is not None
    bare = tuple(
        replace(e, members=tuple(replace(m, need="", draw=()) for m in e.members))
        for e in entry.engines
    )
    world.put_replica(replace(entry, engines=bare))


def test_an_edit_that_no_longer_fits_the_pin_moves_the_identity_to_another_pool() -> (
    None
):
    world = fleet(cluster("a", *TWO_POOLS))
    uid = put_replicas(world, deployment(SMALL), "a/0", pools="small")[0]
    name = next(world.entries()).name
    decision = decided(world, deployment(LARGE, template="v2"))
    assert (actions(decision), pools_of(decision), evicted(decision)) == (
        {"a/0": "Replace"},
        ["large"],
        {uid: "PinMismatch"},
    )
    placement = decision.placements[0]
    assert (placement.replica_name, placement.after) == (name, (uid,))
    assert placement.uid != uid


def test_an_edit_that_still_fits_the_pin_moves_nothing() -> None:
    edited = deployment(engine("main", alone(ask(at_least("100Gi")))), template="v2")
    assert pools_of(decided(fleet(cluster("a", *TWO_POOLS)), edited)) == ["small"]
    world = fleet(cluster("a", *TWO_POOLS))
    put_replicas(world, deployment(LARGE), "a/0", pools="large")
    decision = decided(world, edited)
    assert (actions(decision), pools_of(decision)) == ({"a/0": "Update"}, ["large"])
    assert decision.placements[0].engines[0].members[0].requests[0].selectors == (
        at_least("100Gi"),
    )


def test_an_edit_that_matches_nothing_deletes_nothing() -> None:
    world = fleet(cluster("a", *TWO_POOLS))
    put_replicas(world, deployment(SMALL), "a/0", pools="small")
    decision = decided(
        world, deployment(engine("main", alone(ask(at_least("999Gi")))), template="v2")
    )
    assert (actions(decision), evicted(decision)) == ({"a/0": "Keep"}, {})
    assert condition(decision, "ReplacementBlocked") == ("True", "ReplacementBlocked")
    assert decision.placements[0].template == "v1"
    assert decision.waits_for_capacity


def test_a_class_edit_moves_nothing_and_is_reported() -> None:
    world = fleet(cluster("a", 2))
    view = deployment()
    put_replicas(world, view, "a/0")
    world.put_cluster(cluster("a", pool("p", 2, gpu("140Gi"))))
    decision = decided(world, view)
    assert actions(decision) == {"a/0": "Keep"}
    assert condition(decision, "PlacementDrifted") == ("True", "Drifted")
    assert "140Gi" not in message(decision, "PlacementDrifted")


def test_a_drifted_replica_keeps_its_template() -> None:
    world = fleet(cluster("a", 2))
    put_replicas(world, deployment(), "a/0")
    world.put_cluster(cluster("a", pool("p", 2, gpu("140Gi"))))
    assert decided(world, deployment(template="v2")).placements[0].template == "v1"


def test_a_placement_without_digests_is_compared_by_its_claims() -> None:
    world = fleet(cluster("a", 2))
    view = deployment()
    without_digests(world, put_replicas(world, view, "a/0")[0])
    world.put_cluster(cluster("a", pool("p", 2, gpu("140Gi"))))
    assert [note.reason for note in decided(world, view).notes] == ["Drifted"]
    edited = deployment(engine("main", alone(ask(at_least("142Gi")))), template="v2")
    assert [note.reason for note in decided(world, edited).notes] == [
        "ReplacementBlocked"
    ]


def test_a_new_request_is_an_edit_of_a_placement_without_digests() -> None:
    world = fleet(cluster("a", 2))
    view = deployment(engine("main", alone(ask(), ask(IS_NIC, name="nic"))))
    without_digests(world, put_replicas(world, deployment(), "a/0")[0])
    assert [note.reason for note in decided(world, view).notes] == [
        "ReplacementBlocked"
    ]


def test_a_request_missing_in_a_placement_counts_as_synthetic_if_the_pool_has_such_a_device() -> (
    None
):
    both = (gpu(), nic(claim="Synthetic"))
    world = fleet(cluster("a", pool("p", 2, *both)))
    view = deployment(engine("main", alone(ask(), ask(IS_NIC, name="nic"))))
    without_digests(world, put_replicas(world, view, "a/0")[0])
    assert actions(decided(world, view)) == {"a/0": "Keep"}
    world.put_cluster(cluster("a", pool("p", 2, gpu("140Gi"), nic(claim="Synthetic"))))
    assert [note.reason for note in decided(world, view).notes] == ["Drifted"]


def test_a_leader_that_starts_to_claim_is_an_edit() -> None:
    world = fleet(cluster("a", 2))
    put_replicas(world, deployment(engine("main", leader(), worker(1))), "a/0")
    view = deployment(
        engine("main", leader(ask(count=5), ask(count=5, name="more")), worker(1)),
        template="v2",
    )
    assert [note.reason for note in decided(world, view).notes] == [
        "ReplacementBlocked"
    ]


# Two engines on a pool each: e0 wants at least 141Gi of "old", whose class became
# 140Gi; e1 wants "new".
EDITS = [
    ("e1 no longer fits its pin", at_least("200Gi"), {"a/0": "Replace"}, []),
    ("e1 still fits its pin", at_least("100Gi"), {"a/0": "Keep"}, ["Drifted"]),
    ("e1 is as it was", at_least("141Gi"), {"a/0": "Keep"}, ["Drifted"]),
]


@pytest.mark.parametrize(
    "order", [(0, 1), (1, 0)], ids=["drifted first", "edited first"]
)
@pytest.mark.parametrize(
    ("story", "selector", "action", "notes"), EDITS, ids=[row[0] for row in EDITS]
)
def test_drift_under_one_engine_hides_no_edit_of_another(
    story: str,
    selector: str,
    action: dict[str, str],
    notes: list[str],
    order: tuple[int, int],
) -> None:
    del story

    def asks(*selectors: str) -> DeploymentView:
        engines = [
            engine(f"e{i}", alone(ask(text))) for i, text in enumerate(selectors)
        ]
        return deployment(
            *(engines[i] for i in order),
            template="v2" if selector in selectors else "v1",
        )

    world = fleet(
        cluster(
            "a",
            pool("old", 1, gpu()),
            pool("new", 1, gpu()),
            pool("large", 2, gpu("200Gi")),
        )
    )
    before = asks(at_least("141Gi"), at_least("141Gi"))
    put_replicas(world, before, "a/0", pools=[("old", "new")[i] for i in order])
    world.put_cluster(
        cluster(
            "a",
            pool("old", 1, gpu("140Gi")),
            pool("new", 1, gpu()),
            pool("large", 2, gpu("200Gi")),
        )
    )
    decision = decided(world, asks(at_least("141Gi"), selector))
    assert (actions(decision), [note.reason for note in decision.notes]) == (
        action,
        notes,
    )


RESHAPED: list[tuple[str, EngineView, EngineView]] = [
    ("a single pod becomes a gang", engine(), gang(1)),
    ("an engine is renamed", engine("main"), engine("other")),
    (
        "a role changes",
        engine("main", leader(ask()), worker(1)),
        engine("main", worker(1), leader(ask())),
    ),
]


@pytest.mark.parametrize(
    ("story", "before", "after"), RESHAPED, ids=[row[0] for row in RESHAPED]
)
def test_a_changed_set_of_engines_or_members_replaces(
    story: str, before: EngineView, after: EngineView
) -> None:
    del story
    world = fleet(cluster("a", 4))
    uid = put_replicas(world, deployment(before), "a/0")[0]
    decision = decided(world, deployment(after, template="v2"))
    assert (actions(decision), evicted(decision)) == (
        {"a/0": "Replace"},
        {uid: "TemplateChanged"},
    )


def test_engines_in_another_order_change_nothing() -> None:
    world = fleet(cluster("a", 4))
    put_replicas(world, deployment(engine("x"), engine("y")), "a/0")
    assert actions(decided(world, deployment(engine("y"), engine("x")))) == {
        "a/0": "Keep"
    }


def test_a_lost_cluster_is_replaced_elsewhere_under_a_new_name() -> None:
    world = fleet(cluster("a", 1), cluster("b", 1))
    view = deployment()
    uid = put_replicas(world, view, "a/0")[0]
    world.remove_cluster("a")
    decision = decided(world, view)
    entry = world.replica(uid)
    assert (actions(decision), evicted(decision)) == (
        {"b/0": "Create"},
        {uid: "ClusterGone"},
    )
    assert entry is not None
    assert decision.placements[0].replica_name != entry.name


def test_a_missing_cluster_counts_as_deleted_unless_its_account_is_awaited() -> None:
    world = fleet()
    view = deployment(want=2)
    _, gone = put_replicas(world, view, "a/0", "b/0")
    world.awaited = frozenset({"a"})
    decision = decided(world, view)
    assert actions(decision) == {"a/0": "Keep"}
    assert evicted(decision) == {gone: "ClusterGone"}


def test_a_cluster_in_trouble_keeps_its_replica_without_an_address() -> None:
    world = fleet(cluster("a", 1, ready=False, gateway_address=""))
    view = deployment()
    put_replicas(world, view, "a/0")
    decision = decided(world, view)
    assert [(p.action, p.gateway_address) for p in decision.placements] == [
        ("Keep", "")
    ]


def test_relabelling_a_cluster_moves_nothing() -> None:
    world = fleet(cluster("a", 2, labels={"region": "us"}))
    view = deployment(match_labels={"region": "us"})
    put_replicas(world, view, "a/0")
    world.put_cluster(cluster("a", 2, labels={"region": "eu"}))
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_a_selector_that_does_not_compile_keeps_all_placements() -> None:
    world = fleet(cluster("a", 4))
    put_replicas(world, deployment(want=3), "a/0", "a/1", "a/2")
    broken = deployment(
        engine("main", alone(ask("device.driver =="))), want=4, template="v2"
    )
    decision = decided(world, broken)
    assert actions(decision) == {"a/0": "Keep", "a/1": "Keep", "a/2": "Keep"}
    assert {p.template for p in decision.placements} == {"v1"}
    assert condition(decision) == ("False", "InvalidNodeSelector")
    assert "engine main, member Standalone, request gpu, selector 1" in message(
        decision
    )


def test_a_typo_in_a_function_name_does_not_compile_either() -> None:
    world = fleet(cluster("a", 4))
    typo = 'device.capacity["gpu.nvidia.com"].memory.isGreterThan(quantity("1Gi"))'
    assert condition(decided(world, deployment(engine("main", alone(ask(typo)))))) == (
        "False",
        "InvalidNodeSelector",
    )


def test_a_selector_without_clusters_keeps_running_replicas_and_places_no_more() -> (
    None
):
    world = fleet(cluster("a", 4, labels={"region": "us"}))
    view = deployment(want=2, match_labels={"region": "mars"})
    put_replicas(world, view, "a/0", "a/1")
    both = decided(world, view)
    assert (actions(both), both.shortfall) == ({"a/0": "Keep", "a/1": "Keep"}, 0)
    three = decided(world, replace(view, replicas=3))
    assert (three.shortfall, condition(three)) == (1, ("False", "InsufficientCapacity"))
    assert "1 didn't match clusterSelector" in message(three)


def test_removing_a_taint_moves_nothing_back() -> None:
    world = fleet(cluster("a", 1, taints=["x:NoExecute"]), cluster("b", 1))
    view = deployment()
    put_replicas(world, view, "a/0")
    settled(world, view)
    bind_all(world)
    finish_releases(world)
    world.put_cluster(cluster("a", 1))
    assert actions(decided(world, view, request_id="2")) == {"b/0": "Keep"}


def updated(world: Fleet, view: DeploymentView, request_id: str) -> list[str]:
    decision = settled(world, view, request_id=request_id)
    return [place for place, action in actions(decision).items() if action == "Update"]


def test_a_rolling_update_changes_one_replica_at_a_time() -> None:
    world = fleet(cluster("a", 4))
    view = deployment(want=4)
    put_replicas(world, view, "a/0", "a/1", "a/2", "a/3")
    new = replace(view, template="v2")
    seen = []
    for step in range(4):
        seen += updated(world, new, f"step-{step}")
        assert updated(world, new, f"again-{step}") == []
        bind_all(world)
    assert sorted(seen) == ["a/0", "a/1", "a/2", "a/3"]
    assert not decided(world, new, request_id="end").more


def test_a_waiting_rollout_announces_further_steps() -> None:
    world = fleet(cluster("a", 4))
    view = deployment(want=2)
    put_replicas(world, view, "a/0", "a/1")
    assert decided(world, replace(view, template="v2")).more


def test_replicas_that_serve_no_traffic_change_first() -> None:
    world = fleet(cluster("a", 4))
    view = deployment(want=3)
    put_replicas(world, view, "a/0", "a/2")
    put_replicas(world, view, "a/1", ready=False, serving=False)
    assert updated(world, replace(view, template="v2"), "1") == ["a/1"]


ROLLOUTS = [
    ("AllAtOnce changes all", RolloutPolicy("AllAtOnce"), 4),
    ("half of four", RolloutPolicy(max_unavailable="50%"), 2),
    ("a percentage is rounded down", RolloutPolicy(max_unavailable="74%"), 2),
    ("a percentage of less than one is one", RolloutPolicy(max_unavailable="20%"), 1),
    ("two", RolloutPolicy(max_unavailable=2), 2),
    ("the partition keeps the lower ranks", RolloutPolicy("AllAtOnce", partition=3), 1),
    ("paused", RolloutPolicy("AllAtOnce", paused=True), 0),
]


@pytest.mark.parametrize(
    ("story", "rollout", "count"), ROLLOUTS, ids=[row[0] for row in ROLLOUTS]
)
def test_a_budget_limits_each_step(
    story: str, rollout: RolloutPolicy, count: int
) -> None:
    del story
    world = fleet(cluster("a", 4))
    view = deployment(want=4, policy=PlacementPolicy(rollout))
    put_replicas(world, view, "a/0", "a/1", "a/2", "a/3")
    assert len(updated(world, replace(view, template="v2"), "1")) == count


@pytest.mark.parametrize(
    ("surge", "created"), [("26%", 2), ("25%", 1), ("1%", 1), ("0%", 0)]
)
def test_a_surge_in_percent_is_rounded_up(surge: str, created: int) -> None:
    world = fleet(cluster("a", 8))
    view = deployment(
        want=4,
        policy=PlacementPolicy(RolloutPolicy(max_surge=surge, max_unavailable=0)),
    )
    put_replicas(world, view, *(f"a/{index}" for index in range(4)))
    found = list(actions(decided(world, replace(view, template="v2"))).values())
    assert found.count("Create") == created


def test_a_surge_places_the_new_before_it_evicts_the_old() -> None:
    world = fleet(cluster("a", 3))
    view = deployment(
        want=2, policy=PlacementPolicy(RolloutPolicy(max_surge=1, max_unavailable=0))
    )
    put_replicas(world, view, "a/0", "a/1")
    new = replace(view, template="v2")
    first = settled(world, new, request_id="1")
    assert (actions(first), evicted(first)) == (
        {"a/0": "Keep", "a/1": "Keep", "a/2": "Create"},
        {},
    )
    waiting = settled(world, new, request_id="2")
    assert (actions(waiting), evicted(waiting)) == (
        {"a/0": "Keep", "a/1": "Keep", "a/2": "Keep"},
        {},
    )
    bind_all(world)
    ready = settled(world, new, request_id="3")
    assert list(evicted(ready).values()) == ["RolledOut"]
    finish_releases(world)
    for step in range(4):
        settled(world, new, request_id=f"more-{step}")
        bind_all(world)
        finish_releases(world)
    assert {entry.template for entry in world.entries()} == {"v2"}
    assert len(list(world.entries())) == 2


def test_reshaped_replicas_are_replaced_one_at_a_time() -> None:
    world = fleet(cluster("a", 4))
    put_replicas(world, deployment(engine("old"), want=2), "a/0", "a/1")
    new = deployment(engine("new"), want=2, template="v2")
    first = settled(world, new, request_id="1")
    assert sorted(actions(first).values()) == ["Keep", "Replace"]
    finish_releases(world)
    assert sorted(actions(settled(world, new, request_id="2")).values()) == [
        "Keep",
        "Keep",
    ]
    bind_all(world)
    assert sorted(actions(settled(world, new, request_id="3")).values()) == [
        "Keep",
        "Replace",
    ]


def test_a_drain_budget_evicts_one_at_a_time() -> None:
    world = fleet(cluster("a", 3), cluster("b", 3))
    view = deployment(want=3, policy=PlacementPolicy(drain=DrainPolicy(1)))
    put_replicas(world, view, "a/0", "a/1", "a/2")
    world.put_cluster(cluster("a", 3, taints=["maintenance:NoExecute"]), NOW)
    first = settled(world, view, request_id="1")
    assert (len(first.evictions), places(first)[-1], first.more) == (1, "b/0", True)
    assert settled(world, view, request_id="2").evictions == ()
    bind_all(world)
    assert len(settled(world, view, request_id="3").evictions) == 1


def test_after_the_drain_deadline_the_budget_no_longer_counts() -> None:
    world = fleet(cluster("a", 3), cluster("b", 1))
    view = deployment(
        want=3, policy=PlacementPolicy(drain=DrainPolicy(1, deadline_seconds=60))
    )
    put_replicas(world, view, "a/0", "a/1", "a/2")
    world.put_cluster(cluster("a", 3, taints=["maintenance:NoExecute"]), NOW)
    before, after = (decided(world, view, NOW + ms) for ms in (59_999, 60_000))
    assert (len(before.evictions), before.drain_deadline) == (1, NOW + 60_000)
    assert (len(after.evictions), after.drain_deadline) == (3, 0)


def test_without_a_drain_budget_all_are_evicted_at_once() -> None:
    world = fleet(cluster("a", 3))
    view = deployment(want=3)
    put_replicas(world, view, "a/0", "a/1", "a/2")
    world.put_cluster(cluster("a", 3, taints=["maintenance:NoExecute"]), NOW)
    assert len(decided(world, view).evictions) == 3


def test_a_cluster_that_is_being_deleted_keeps_its_replicas() -> None:
    world = fleet(cluster("a", 3))
    view = deployment()
    put_replicas(world, view, "a/0")
    world.put_cluster(cluster("a", 3, deleting=True))
    assert actions(decided(world, view)) == {"a/0": "Keep"}
    assert places(decided(world, deployment(name="new"))) == []


def test_a_blocked_replacement_frees_no_nodes_for_other_replicas() -> None:
    """Each replica frees one node and its successor needs two: together they would free
    enough, but one at a time neither does.
    """
    world = fleet(cluster("a", 2))
    put_replicas(world, deployment(engine("old"), want=2), "a/0", "a/1")
    larger = deployment(
        engine("new", copies=2), want=2, template="v2", policy=ALL_AT_ONCE
    )
    decision = settled(world, larger)
    assert (actions(decision), evicted(decision)) == (
        {"a/0": "Keep", "a/1": "Keep"},
        {},
    )
    assert [note.reason for note in decision.notes] == [
        "ReplacementBlocked",
        "ReplacementBlocked",
    ]
    assert world.audit() == []


def test_a_claim_that_turns_synthetic_under_a_pin_follows_the_class() -> None:
    nic_request = ask('device.driver == "nic.example.com"', name="nic")
    world = fleet(cluster("a", pool("p", 2, gpu(), nic())))
    view = deployment(engine("main", alone(ask(), nic_request)))
    put_replicas(world, view, "a/0")
    world.put_cluster(cluster("a", pool("p", 2, gpu(), nic(claim="Synthetic"))))
    decision = decided(world, view)
    assert actions(decision) == {"a/0": "Update"}
    assert [r.name for r in decision.placements[0].engines[0].members[0].requests] == [
        "gpu"
    ]


def test_an_edit_under_a_missing_cache_still_reaches_running_replicas_and_evicts_none() -> (
    None
):
    world = fleet(cluster("a", 2))
    view = deployment(cache=CacheView("Absent", "weights"))
    put_replicas(world, view, "a/0")
    assert actions(decided(world, replace(view, template="v2"))) == {"a/0": "Update"}


def test_a_rolled_out_fleet_is_a_fixed_point() -> None:
    world = fleet(cluster("a", 4))
    view = deployment(want=2, policy=ALL_AT_ONCE)
    put_replicas(world, view, "a/0", "a/1")
    new = replace(view, template="v2")
    settled(world, new, request_id="1")
    again = decided(world, new, request_id="2")
    assert set(actions(again).values()) == {"Keep"}
    assert (again.evictions, again.victims) == ((), ())


def test_nodes_that_a_replica_frees_by_shrinking_are_free_in_the_next_decision() -> (
    None
):
    """Its pods exist until the smaller ones have replaced them."""
    world = fleet(cluster("a", 6))
    put_replicas(world, deployment(engine(copies=4)), "a/0")
    smaller = deployment(engine(copies=3), want=2, template="v2")
    first = settled(world, smaller)
    assert (actions(first), first.shortfall) == ({"a/0": "Update"}, 1)
    bind_all(world)
    assert actions(settled(world, smaller, request_id="ask-2")) == {
        "a/0": "Keep",
        "a/1": "Create",
    }
