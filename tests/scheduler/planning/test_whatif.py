"""Plans over the live fleet."""

from dataclasses import replace

import pytest

from scheduler.decide import decide
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots import snapshot
from scheduler.model.inputs import ScheduleRequest
from scheduler.model.policy import DrainPolicy, PlacementPolicy, Quota, SchedulerOptions
from scheduler.planning.whatif import MAINTENANCE, Changes, plan, with_changes
from tests.scheduler.builders import (
    NOW,
    bind_all,
    cluster,
    deployment,
    evicted,
    fleet,
    places,
    pool,
    settled,
)


def two_clusters() -> Fleet:
    world = fleet(
        cluster("a", pool("p", 4, price_milli=2000)),
        cluster("b", pool("p", 1, price_milli=3000)),
    )
    settled(world, deployment(want=2))
    bind_all(world)
    return world


def test_adding_and_draining_shows_moves_and_touches_nothing() -> None:
    world = two_clusters()
    packed = snapshot.dump(world)
    changes = Changes(
        clusters=(cluster("c", pool("p", 4, price_milli=1000)),), drained=("a",)
    )
    result = plan(world, changes, [deployment(want=2)], NOW)
    diff = result.deployments[0]
    assert (
        [f"{p.cluster}/{p.index}" for p in diff.before],
        [f"{p.cluster}/{p.index}" for p in diff.after],
    ) == (
        ["a/0", "b/0"],
        ["b/0", "c/0"],
    )
    assert [e.reason for e in diff.evictions] == ["Drained"]
    assert {
        at: (use.before, use.after, use.cost_before, use.cost_after)
        for at, use in result.pools.items()
    } == {
        ("a", "p"): (1, 0, 2000, 0),
        ("c", "p"): (0, 1, 0, 1000),
    }
    assert snapshot.dump(world) == packed


def test_a_cluster_that_has_the_taint_with_another_value_is_drained_already() -> None:
    """As with a live drain, which keeps the taint: a deployment that tolerates the
    value stays.
    """
    world = fleet(
        cluster("a", pool("p", 4), taints=(replace(MAINTENANCE, value="ticket-7"),)),
        cluster("b", pool("p", 4)),
    )
    changed = with_changes(world, Changes(drained=("a", "b")), NOW)
    assert {
        name: [one.value for one in info.view.taints]
        for name, info in changed.clusters.items()
    } == {"a": ["ticket-7"], "b": [""]}


def test_a_plan_without_changes_is_empty() -> None:
    assert plan(two_clusters(), Changes(), [deployment(want=2)], NOW).is_empty


def test_a_plan_equals_the_later_decisions() -> None:
    world = two_clusters()
    view = deployment(want=4)
    planned = (
        plan(world, Changes(deployments=(view,)), [deployment(want=2)], NOW)
        .deployments[0]
        .after
    )
    real = decide(world, [ScheduleRequest("real", view)], NOW)[0]
    assert [(p.cluster, p.index) for p in planned] == [
        (p.cluster, p.index) for p in real.placements
    ]


CHANGES = [
    ("a removed cluster", Changes(removed_clusters=("a",)), 1, "ClusterGone"),
    (
        "a removed deployment",
        Changes(removed_deployments=(("ml", "m"),)),
        0,
        "ScaledDown",
    ),
]


@pytest.mark.parametrize(
    ("story", "changes", "left", "reason"), CHANGES, ids=[row[0] for row in CHANGES]
)
def test_a_change_names_removed_objects(
    story: str, changes: Changes, left: int, reason: str
) -> None:
    del story
    diff = plan(two_clusters(), changes, [deployment(want=2)], NOW).deployments[0]
    assert len(diff.after) == left
    assert {e.reason for e in diff.evictions} == {reason}


def test_a_failed_zone_takes_no_new_replica() -> None:
    world = fleet(
        cluster("a", 9, labels={"zone": "x"}), cluster("b", 1, labels={"zone": "y"})
    )
    diff = plan(
        world,
        Changes(failed_domains=(("zone", "x"),), deployments=(deployment(want=3),)),
        [],
        NOW,
    ).deployments[0]
    assert ([p.cluster for p in diff.after], diff.shortfall) == (["b"], 2)


def test_another_policy_can_be_tried() -> None:
    world = fleet(cluster("a", 9))
    options = SchedulerOptions(quotas=(Quota("ml", max_nodes=2),))
    diff = plan(
        world, Changes(options=options, deployments=(deployment(want=3),)), [], NOW
    ).deployments[0]
    assert diff.shortfall == 1
    assert world.options == SchedulerOptions()


def test_steps_follow_the_budgets() -> None:
    world = fleet(cluster("a", 3), cluster("b", 3))
    view = deployment(want=3, policy=PlacementPolicy(drain=DrainPolicy(1)))
    settled(world, deployment(want=3))
    bind_all(world)
    result = plan(world, Changes(drained=("a",)), [view], NOW)
    leaving = [sum(line.startswith("-") for line in step) for step in result.steps]
    assert leaving == [1, 1]
    assert result.deployments[0].steps == 2


def test_a_plan_of_a_large_drain_is_quick() -> None:
    world = fleet(*(cluster(f"c{i:02}", 60) for i in range(20)))
    views = [deployment(name=f"d{i}", want=2) for i in range(200)]
    for i, view in enumerate(views):
        settled(world, view, request_id=str(i))
    bind_all(world)
    result = plan(world, Changes(drained=("c00",)), views, NOW)
    moved = [
        diff for diff in result.deployments if "c00" in {p.cluster for p in diff.before}
    ]
    assert moved
    assert all(
        "c00" not in {p.cluster for p in diff.after} for diff in result.deployments
    )
    assert evicted(settled(world, views[0], request_id="live")) == {}
    assert places(settled(world, views[0], request_id="live-2")) == ["c00/0", "c01/0"]
