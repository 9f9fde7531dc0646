"""Whole rollouts under a partition.

Each decision is applied, released replicas end, and new ones become Ready.
"""

from dataclasses import replace
from itertools import product

import pytest

from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import DeploymentView
from scheduler.model.policy import PlacementPolicy, RolloutPolicy
from tests.scheduler.builders import (
    actions,
    alone,
    ask,
    at_least,
    bind_all,
    cluster,
    decided,
    deployment,
    engine,
    finish_releases,
    fleet,
    put_replicas,
    settled,
)

STEPS_MAX = 40


def a_deployment(
    rollout: RolloutPolicy, want: int, *, reshaped: bool = False
) -> DeploymentView:
    """The second template of a deployment; a reshaped one cannot be updated in place."""
    return deployment(
        engine("new" if reshaped else "main"),
        want=want,
        template="v2",
        policy=PlacementPolicy(rollout),
    )


def standing(world: Fleet) -> list[str]:
    """The templates of the replicas that are not being released."""
    return sorted(
        entry.template for entry in world.entries() if entry.state != "Releasing"
    )


def rolled_out(
    world: Fleet, view: DeploymentView, steps: int = STEPS_MAX, name: str = ""
) -> int:
    """Decide until nothing changes, or for a number of steps.

    Return the smallest number of replicas that had the old template meanwhile.
    """
    fewest = standing(world).count("v1")
    for step in range(steps):
        decision = settled(world, view, request_id=f"{name}{view.replicas}-{step}")
        fewest = min(fewest, standing(world).count("v1"))
        assert world.audit() == []
        finish_releases(world)
        if (
            set(actions(decision).values()) <= {"Keep"}
            and not decision.evictions
            and all(entry.ready for entry in world.entries())
        ):
            break
        bind_all(world)
    return fewest


def running(*places: str) -> Fleet:
    """Two clusters; the new one, `0`, comes first by name."""
    world = fleet(cluster("0", 8), cluster("a", 8))
    put_replicas(world, deployment(want=len(places)), *places)
    return world


@pytest.mark.parametrize(
    ("surge", "partition", "reshaped"),
    [*product((0, 1, 2, "50%"), range(5), (False, True))],
)
def test_the_partition_keeps_as_many_on_the_old_template_in_every_step(
    surge: int | str, partition: int, *, reshaped: bool
) -> None:
    world = running("a/0", "a/1", "a/2")
    kept_old = min(partition, 3)
    view = a_deployment(
        RolloutPolicy(max_surge=surge, partition=partition), 3, reshaped=reshaped
    )
    assert rolled_out(world, view) == kept_old
    assert standing(world) == ["v1"] * kept_old + ["v2"] * (3 - kept_old)
    again = decided(world, view, request_id="again")
    assert (set(actions(again).values()), again.evictions, again.more) == (
        {"Keep"},
        (),
        False,
    )


def test_the_first_replicas_by_cluster_and_index_stay() -> None:
    world = running("a/0", "a/1", "a/2")
    rolled_out(world, a_deployment(RolloutPolicy(max_surge=1, partition=1), 3))
    assert [(e.cluster, e.index) for e in world.entries() if e.template == "v1"] == [
        ("a", 0)
    ]


SCALES = [
    ("up while it rolls", 2, 5, 2),
    ("down while it rolls", 2, 2, 2),
    ("down to fewer than the partition", 2, 1, 1),
    ("down at the end", STEPS_MAX, 2, 2),
    ("up at the end", STEPS_MAX, 6, 2),
]


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("surge", [0, 1, 2])
@pytest.mark.parametrize(
    ("story", "steps", "want", "kept_old"), SCALES, ids=[row[0] for row in SCALES]
)
def test_the_partition_holds_while_the_deployment_is_scaled(
    story: str, steps: int, want: int, kept_old: int, surge: int, *, reshaped: bool
) -> None:
    del story
    world = running("a/0", "a/1", "a/2", "a/3")
    view = a_deployment(
        RolloutPolicy(max_surge=surge, partition=2), 4, reshaped=reshaped
    )
    assert rolled_out(world, view, steps) >= 2
    assert rolled_out(world, replace(view, replicas=want), name="scaled-") == kept_old
    assert standing(world) == ["v1"] * kept_old + ["v2"] * (want - kept_old)


def test_an_edit_of_selectors_alone_keeps_to_the_partition() -> None:
    world = running("a/0", "a/1", "a/2")
    view = deployment(
        engine("main", alone(ask(at_least("100Gi")))),
        want=3,
        policy=PlacementPolicy(RolloutPolicy(max_surge=1, partition=1)),
    )
    for step in range(STEPS_MAX):
        settled(world, view, request_id=str(step))
        finish_releases(world)
        bind_all(world)
    found = {
        (entry.cluster, entry.index): entry.engines[0].members[0].requests[0].selectors
        for entry in world.entries()
    }
    assert [
        where for where, selectors in found.items() if selectors == (at_least("141Gi"),)
    ] == [("a", 0)]


@pytest.mark.parametrize("want", [0, 1])
def test_a_scale_down_during_a_surge_leaves_no_surplus_replica(
    want: int,
) -> None:
    world = running("a/0")
    put_replicas(
        world, deployment(template="v2"), *(f"0/{index}" for index in range(want + 1))
    )
    decision = settled(world, a_deployment(RolloutPolicy(max_surge=1), want))
    assert [placement.template for placement in decision.placements] == [
        "v2"
    ] * want or decision.more
    for step in range(4):
        finish_releases(world)
        if not decision.more:
            break
        decision = settled(
            world,
            a_deployment(RolloutPolicy(max_surge=1), want),
            request_id=f"more-{step}",
        )
    assert standing(world) == ["v2"] * want


def test_a_lower_partition_lets_more_replicas_change() -> None:
    world = running("a/0", "a/1", "a/2")
    rolled_out(world, a_deployment(RolloutPolicy(max_surge=1, partition=2), 3))
    rolled_out(world, a_deployment(RolloutPolicy(max_surge=1), 3), name="lower-")
    assert standing(world) == ["v2"] * 3


def test_a_replica_that_serves_no_traffic_is_removed_before_one_that_the_partition_keeps() -> (
    None
):
    world = running("a/0", "a/1")
    broken = next(entry for entry in world.entries() if entry.index == 0)
    rolled_out(world, a_deployment(RolloutPolicy(partition=1), 2))
    world.observe(broken.uid, ready=False, serving=False)
    settled(world, a_deployment(RolloutPolicy(partition=1), 1), request_id="scaled")
    assert standing(world) == ["v2"]


@pytest.mark.parametrize(("serving", "evicted"), [(True, []), (False, ["a/1"])])
def test_a_rollout_evicts_no_replica_that_serves_before_its_successor_is_ready(
    evicted: list[str], *, serving: bool
) -> None:
    """A replica on a cluster that does not answer is not Ready, but serves."""
    world = running("a/0", "a/1", "a/2")
    (degraded,) = (e.uid for e in world.entries() if (e.cluster, e.index) == ("a", 1))
    world.observe(degraded, ready=False, serving=serving)
    view = a_deployment(RolloutPolicy(max_surge=1, max_unavailable=0), 3, reshaped=True)
    first = settled(world, view, request_id="1")
    second = settled(world, view, request_id="2")
    gone = {e.uid for e in world.entries() if e.state == "Releasing"}
    assert gone == ({degraded} if evicted else set()), (first, second)
    bind_all(world)
    settled(world, view, request_id="3")
    gone = {e.uid for e in world.entries() if e.state == "Releasing"}
    assert degraded in gone
