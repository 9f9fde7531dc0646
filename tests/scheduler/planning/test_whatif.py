"""Plans over the live fleet (case 173) and the questions they answer."""

import pytest

from scheduler.decide import decide
from scheduler.fleet import snapshot
from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import CacheView, ScheduleRequest
from scheduler.model.policy import Drain, PlacementPolicy, Quota, SchedulerOptions
from scheduler.planning.questions import Headroom, can_drain, cluster_of_class, headroom, offers
from scheduler.planning.whatif import Changes, plan
from tests.scheduler.builders import (
    NOW,
    bind_all,
    cluster,
    deployment,
    engine,
    evicted,
    fleet,
    gpu,
    places,
    pool,
    settled,
    standing,
    tolerate,
)


def two_clusters() -> Fleet:
    world = fleet(cluster("a", pool("p", 4, price_milli=2000)), cluster("b", pool("p", 1, price_milli=3000)))
    settled(world, deployment(want=2))
    bind_all(world)
    return world


def test_173_adding_and_draining_shows_moves_and_touches_nothing() -> None:
    world = two_clusters()
    packed = snapshot.dump(world)
    changes = Changes(clusters=(cluster("c", pool("p", 4, price_milli=1000)),), drained=("a",))
    result = plan(world, changes, [deployment(want=2)], NOW)
    diff = result.deployments[0]
    assert ([f"{p.cluster}/{p.index}" for p in diff.before], [f"{p.cluster}/{p.index}" for p in diff.after]) == (
        ["a/0", "b/0"],
        ["b/0", "c/0"],
    )
    assert [e.reason for e in diff.evictions] == ["Drained"]
    assert {at: (use.before, use.after, use.cost_before, use.cost_after) for at, use in result.pools.items()} == {
        ("a", "p"): (1, 0, 2000, 0),
        ("c", "p"): (0, 1, 0, 1000),
    }
    assert snapshot.dump(world) == packed


def test_a_plan_without_changes_is_empty() -> None:
    assert plan(two_clusters(), Changes(), [deployment(want=2)], NOW).is_empty


def test_what_was_planned_is_what_then_happens() -> None:
    world = two_clusters()
    view = deployment(want=4)
    planned = plan(world, Changes(deployments=(view,)), [deployment(want=2)], NOW).deployments[0].after
    real = decide(world, [ScheduleRequest("real", view)], NOW)[0]
    assert [(p.cluster, p.index) for p in planned] == [(p.cluster, p.index) for p in real.placements]


CHANGES = [
    ("a removed cluster", Changes(removed_clusters=("a",)), 1, "ClusterGone"),
    ("a removed deployment", Changes(removed_deployments=(("ml", "m"),)), 0, "ScaledDown"),
]


@pytest.mark.parametrize(("story", "changes", "left", "reason"), CHANGES, ids=[row[0] for row in CHANGES])
def test_a_change_names_what_it_drops(story: str, changes: Changes, left: int, reason: str) -> None:
    del story
    diff = plan(two_clusters(), changes, [deployment(want=2)], NOW).deployments[0]
    assert len(diff.after) == left
    assert {e.reason for e in diff.evictions} == {reason}


def test_a_failed_zone_takes_no_new_replica() -> None:
    world = fleet(cluster("a", 9, labels={"zone": "x"}), cluster("b", 1, labels={"zone": "y"}))
    diff = plan(world, Changes(failed_domains=(("zone", "x"),), deployments=(deployment(want=3),)), [], NOW).deployments[0]
    assert ([p.cluster for p in diff.after], diff.shortfall) == (["b"], 2)


def test_another_policy_can_be_tried() -> None:
    world = fleet(cluster("a", 9))
    options = SchedulerOptions(quotas=(Quota("ml", max_nodes=2),))
    diff = plan(world, Changes(options=options, deployments=(deployment(want=3),)), [], NOW).deployments[0]
    assert diff.shortfall == 1
    assert world.options == SchedulerOptions()


def test_steps_follow_the_budgets() -> None:
    world = fleet(cluster("a", 3), cluster("b", 3))
    view = deployment(want=3, policy=PlacementPolicy(drain=Drain(1)))
    settled(world, deployment(want=3))
    bind_all(world)
    result = plan(world, Changes(drained=("a",)), [view], NOW)
    leaving = [sum(line.startswith("-") for line in step) for step in result.steps]
    assert leaving == [1, 1]
    assert result.deployments[0].steps == 2


def test_a_drain_check_names_who_would_stay_short() -> None:
    world = two_clusters()
    assert not can_drain(world, "a", [deployment(want=2)], NOW).possible
    assert can_drain(world, "b", [deployment(want=2)], NOW).possible
    with pytest.raises(KeyError, match="nowhere"):
        can_drain(world, "nowhere", [], NOW)


def test_18_6_4_a_drain_check_names_who_stays() -> None:
    """One tolerates the drain; of another one only the replica is known."""
    world = two_clusters()
    stoic = deployment(name="stoic", tolerations=(tolerate(),))
    standing(world, stoic, "b/0")
    standing(world, deployment(name="orphan"), "b/1")
    check = can_drain(world, "b", [deployment(want=2), stoic], NOW)
    assert [(entry.deployment, tolerates) for entry, tolerates in check.stays] == [("orphan", False), ("stoic", True)]


def test_18_6_4_headroom_is_the_largest_count_that_fits() -> None:
    world = two_clusters()
    found = headroom(world, deployment(want=2), NOW)
    assert (found.replicas, found.clusters) == (5, {"a": 4, "b": 1})
    assert "5 of 6 replicas scheduled" in found.message
    assert headroom(world, deployment(engine(copies=3), name="other"), NOW).replicas == 1
    assert headroom(fleet(cluster("a", 2000)), deployment(want=1), NOW) == Headroom(1000, {"a": 1000}, "")


def test_18_6_4_headroom_preempts_no_replica() -> None:
    options = SchedulerOptions(priority_classes={"gold": 100})
    world = fleet(cluster("a", 2), options=options)
    standing(world, deployment(name="low", want=2), "a/0", "a/1")
    gold = deployment(policy=PlacementPolicy(priority_class="gold", preemption="LowerPriority"))
    assert headroom(world, gold, NOW).replicas == 0


def test_18_6_4_the_cheapest_sufficient_offer_wins() -> None:
    choice = [
        cluster("dear", pool("p", 9, price_milli=5000)),
        cluster("cheap", pool("p", 9, price_milli=100)),
        cluster("tiny", pool("p", 1, price_milli=1)),
        cluster("wrong", pool("p", 9, gpu("24Gi"), price_milli=1)),
        cluster("unknown", pool("p", 9)),
    ]
    assert not any(each.enough for each in offers(fleet(), deployment(want=99), choice, NOW)[1])
    missing, ranked = offers(fleet(), deployment(want=3), choice, NOW)
    assert (missing, [(each.view.name, each.placed, each.cost_milli, each.nodes) for each in ranked]) == (
        3,
        [
            ("cheap", 3, 300, {"p": 3}),
            ("dear", 3, 15_000, {"p": 3}),
            ("unknown", 3, -1, {"p": 3}),
            ("tiny", 1, 1, {"p": 1}),
            ("wrong", 0, 0, {}),
        ],
    )


def test_18_6_4_an_offer_costs_what_is_missing_and_no_more() -> None:
    """Two of three fit what is there; with the offer they would spread, but they need not."""
    world = fleet(cluster("a", 2))
    missing, (offer,) = offers(world, deployment(want=3), [cluster("b", pool("p", 9, price_milli=100))], NOW)
    assert (missing, offer.placed, offer.nodes, offer.cost_milli) == (1, 1, {"p": 1}, 100)
    assert offers(world, deployment(want=2), [cluster("b", 9)], NOW) == (0, ())


def test_18_6_4_a_class_offers_a_cluster_that_the_deployment_would_select() -> None:
    device = {"name": "gpu", "claim": "DRA", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": 8}
    manifest = {
        "metadata": {"name": "h200", "annotations": {"modelplane.ai/price-per-node-hour": "1.5"}},
        "spec": {"devices": [{**device, "capacity": {"memory": {"value": "141Gi"}}}]},
    }
    picky = deployment(want=4, match_labels={"tier": "gold"}, cache=CacheView("Present", "weights", {"site": "x"}))
    missing, (offer,) = offers(fleet(), picky, [cluster_of_class(manifest, picky)], NOW)
    assert (missing, offer.view.name, offer.enough, offer.nodes, offer.cost_milli) == (4, "class/h200", True, {"h200": 4}, 6000)


def test_a_plan_of_a_large_drain_is_quick() -> None:
    world = fleet(*(cluster(f"c{i:02}", 60) for i in range(20)))
    views = [deployment(name=f"d{i}", want=2) for i in range(200)]
    for i, view in enumerate(views):
        settled(world, view, request_id=str(i))
    bind_all(world)
    result = plan(world, Changes(drained=("c00",)), views, NOW)
    moved = [diff for diff in result.deployments if "c00" in {p.cluster for p in diff.before}]
    assert moved
    assert all("c00" not in {p.cluster for p in diff.after} for diff in result.deployments)
    assert evicted(settled(world, views[0], request_id="live")) == {}
    assert places(settled(world, views[0], request_id="live-2")) == ["c00/0", "c01/0"]
