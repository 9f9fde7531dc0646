"""New replicas of a large decision wait for parts of its victims."""

from itertools import combinations

import pytest

from scheduler import from_wire, to_wire
from scheduler.decide import apply, decide
from scheduler.fleet import waits
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots import snapshot
from scheduler.hardware.template import charges
from scheduler.model.decision import Decision, Placement
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.policy import PlacementPolicy, SchedulerOptions
from scheduler.model.reasons import RELEASING, RESERVED
from tests.scheduler.builders import (
    NOW,
    alone,
    ask,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    pool,
    put_replicas,
)

CLASSES = {"high": 100}


@pytest.fixture(autouse=True)
def small_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small decision count as large."""
    monkeypatch.setattr(waits, "WAITS_MAX", 5)


def full_fleet(
    sizes: tuple[int, ...], accounting: str = "node", free: int = 0
) -> Fleet:
    """One cluster with a replica of low priority of each size, in nodes."""
    world = fleet(
        cluster("a", pool("p", sum(sizes) + free)),
        options=SchedulerOptions(priority_classes=CLASSES, accounting=accounting),
    )
    for n, nodes in enumerate(sizes):
        low = deployment(
            engine("e", alone(ask(count=8)), copies=nodes), name=f"low-{n}"
        )
        put_replicas(world, low, "a/0", pools="p", since=n)
    return world


def wanted(replicas: int, nodes: int) -> DeploymentView:
    return deployment(
        engine("e", alone(ask(count=8)), copies=nodes),
        want=replicas,
        name="big",
        policy=PlacementPolicy(priority_class="high", preemption="LowerPriority"),
    )


def new_ones(decision: Decision) -> list[Placement]:
    return [placement for placement in decision.placements if placement.after]


@pytest.mark.parametrize(
    ("sizes", "free", "replicas", "nodes"),
    [
        ((1,) * 12, 0, 6, 2),
        ((1,) * 12, 3, 5, 3),
        ((5, 1, 4, 2, 3), 0, 5, 3),
        ((7, 7), 1, 5, 3),
        ((2, 1, 1, 2, 1, 1, 2), 1, 2, 5),
    ],
)
def test_the_parts_of_some_replicas_free_the_nodes_that_they_reuse(
    sizes: tuple[int, ...], free: int, replicas: int, nodes: int
) -> None:
    world = full_fleet(sizes, free=free)
    size = {entry.uid: charges(entry.engines)["p"] for entry in world.entries()}
    decision = decided(world, wanted(replicas, nodes))
    assert len(decision.placements) == replicas
    for count in range(1, replicas + 1):
        for started in combinations(decision.placements, count):
            gone = {uid for placement in started for uid in placement.after}
            reused = sum(dict(placement.reuse).get("p", 0) for placement in started)
            assert sum(size[uid] for uid in gone) >= reused
    placed = new_ones(decision)
    total = sum(len(placement.after) for placement in placed)
    assert total < len(decision.victims) + len(placed)


@pytest.mark.parametrize("accounting", ["node", "device-safe"])
def test_each_victim_is_awaited(accounting: str) -> None:
    decision = decided(full_fleet((1,) * 12, accounting), wanted(6, 2))
    assert sorted(uid for p in decision.placements for uid in p.after) == sorted(
        victim.uid for victim in decision.victims
    )
    assert [len(placement.after) for placement in decision.placements] == [2] * 6


def test_later_decisions_repeat_the_parts_of_replicas_that_have_not_started() -> None:
    world, view = full_fleet((1,) * 12), wanted(6, 2)
    decision = decided(world, view)
    apply(world, from_wire(Decision, to_wire(decision)), view)
    world = snapshot.load(snapshot.dump(world))
    gone = decision.placements[0].after[0]
    world.release(gone)
    (again,) = decide(world, [ScheduleRequest("again", view)], NOW)
    assert [placement.after for placement in again.placements] == [
        tuple(uid for uid in placement.after if uid != gone)
        for placement in decision.placements
    ]
    first = decision.placements[0].uid
    world.bind(first, NOW)
    bound = world.replica(first)
    assert bound is not None
    assert bound.after == ()


def test_a_later_request_of_the_batch_sees_the_parts() -> None:
    world, view = full_fleet((1,) * 12), wanted(6, 2)
    first, again = decide(
        world, [ScheduleRequest("ask", view), ScheduleRequest("again", view)], NOW
    )
    assert [p.after for p in again.placements] == [p.after for p in first.placements]


def test_replicas_whose_nodes_a_victim_was_to_reuse_are_awaited_by_all() -> None:
    world = full_fleet((1,) * 4, free=4)
    four = deployment(engine("e", alone(ask(count=8)), copies=4), name="low")
    put_replicas(world, four, "a/7", pools="p", state=RELEASING, name="left")
    reuse = (("p", 4),)
    put_replicas(world, four, "a/8", pools="p", state=RESERVED, reuse=reuse, since=9)
    left = next(e.uid for e in world.entries() if e.state == RELEASING)
    decision = decided(world, wanted(4, 2))
    assert len(decision.victims) == 5
    assert [left in placement.after for placement in decision.placements] == [True] * 4
    assert {uid for p in decision.placements for uid in p.after} == {
        left,
        *(victim.uid for victim in decision.victims),
    }


def test_a_later_replica_does_not_wait_for_the_victims_of_earlier_ones() -> None:
    world, view = full_fleet((1,) * 12), wanted(4, 2)
    decision = decided(world, view)
    apply(world, decision, view)
    (more,) = decide(world, [ScheduleRequest("more", wanted(6, 2))], NOW)
    victims = {victim.uid for victim in more.victims}
    added = [p for p in more.placements if p.action == "Create"]
    assert (len(added), len(victims)) == (2, 4)
    assert {uid for placement in added for uid in placement.after} == victims


def test_nodes_of_replicas_that_left_earlier_are_awaited_by_all() -> None:
    """The ledger does not know which of these nodes a new replica reuses."""
    world = full_fleet((1,) * 10, free=2)
    leaving = deployment(engine("e", alone(ask(count=8)), copies=2), name="big")
    put_replicas(world, leaving, "a/7", pools="p", state=RELEASING, name="leaving")
    decision = decided(world, wanted(6, 2))
    (left,) = (entry.uid for entry in world.entries() if entry.state == RELEASING)
    assert [left in placement.after for placement in decision.placements] == [True] * 6
    assert sum(len(placement.after) for placement in decision.placements) == 16


def test_small_decisions_wait_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of a small decision is recorded as before."""
    monkeypatch.setattr(waits, "WAITS_MAX", 100)
    world, view = full_fleet((1,) * 12), wanted(6, 2)
    decision = decided(world, view)
    assert sorted(len(placement.after) for placement in decision.placements) == [
        2,
        4,
        6,
        8,
        10,
        12,
    ]
    apply(world, decision, view)
    assert {entry.after for entry in world.entries()} == {()}
