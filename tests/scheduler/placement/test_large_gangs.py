"""Gangs that need many preemptions: a search for victims may span several decisions.

It starts only if it can succeed.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from scheduler.cel.limits import BATCH_WORK_MAX
from scheduler.decide import apply, decide, decide_some
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.nomination import AssumedGone
from scheduler.hardware.node_fitting import Trial
from scheduler.model.decision import Decision
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.policy import PlacementPolicy, Quota, SchedulerOptions
from scheduler.model.reasons import RELEASING, RESERVED
from scheduler.placement import preempt, victim_search
from scheduler.placement.trials import Trials
from scheduler.planning.settle import settle
from scheduler.planning.whatif import Changes, plan
from tests.scheduler.builders import (
    NAMESPACE,
    NOW,
    ask,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    leader,
    message,
    pool,
    put_replicas,
    settled,
    worker,
)

CLUSTERS, NODES, GANG, EACH = 20, 4, 10, 3
CLASSES = {"high": 100}
GOES_ON = "The search for replicas to preempt continues"


@pytest.fixture
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches end early, so that a small fleet counts as large."""
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", 100)


def full_fleet(options: SchedulerOptions, clusters: int = CLUSTERS) -> Fleet:
    """A fleet of two pools per cluster, with a replica of low priority on each node."""
    world = fleet(
        *(
            cluster(f"c-{n:02}", pool("p0", NODES), pool("p1", NODES))
            for n in range(clusters)
        ),
        options=options,
    )
    for n in range(clusters):
        for i in range(2 * NODES):
            put_replicas(
                world,
                deployment(name=f"low-{n}-{i % 3}"),
                f"c-{n:02}/{i}",
                pools=f"p{i // NODES}",
                since=i,
            )
    return world


def gang(size: int = GANG, nodes: int = EACH, **fields: Any) -> DeploymentView:
    policy = PlacementPolicy(
        priority_class="high", preemption="LowerPriority", gang_replicas=size
    )
    return deployment(
        engine("x", leader(ask(count=8)), worker(nodes - 1, ask(count=8))),
        want=size,
        name="big",
        policy=policy,
        **fields,
    )


def decisions(world: Fleet, view: DeploymentView) -> Iterator[Decision]:
    """Decide a deployment until its search for victims has ended, without other events."""
    while True:
        (decision,) = decide(world, [ScheduleRequest("ask", view)], NOW)
        apply(world, decision, view)
        yield decision
        if not decision.search_goes_on:
            return


OPTIONS = {
    "whole nodes": SchedulerOptions(priority_classes=CLASSES),
    "a quota": SchedulerOptions(
        priority_classes=CLASSES, quotas=(Quota(NAMESPACE, max_nodes=1_000),)
    ),
    "devices": SchedulerOptions(priority_classes=CLASSES, accounting="device-safe"),
    "packed devices": SchedulerOptions(
        priority_classes=CLASSES, accounting="device-packed", packed_enforced=True
    ),
}


@pytest.mark.parametrize(
    ("name", "unfinished"),
    [("whole nodes", 1), ("a quota", 2), ("devices", 2), ("packed devices", 2)],
)
@pytest.mark.usefixtures("short_searches")
def test_a_gang_that_fits_by_preemption_is_placed_within_a_few_decisions(
    name: str, unfinished: int
) -> None:
    world = full_fleet(OPTIONS[name])
    *searches, last = decisions(world, gang())
    assert [
        (len(search.placements), search.victims, search.more) for search in searches
    ] == [(0, (), True)] * unfinished
    assert (len(last.placements), last.more, world.unfinished_searches) == (
        GANG,
        False,
        {},
    )
    assert world.audit() == []


@pytest.mark.usefixtures("short_searches")
def test_no_nodes_are_suggested_before_a_search_has_ended() -> None:
    (first, *_) = decisions(full_fleet(OPTIONS["whole nodes"]), gang())
    assert GOES_ON in message(first)
    assert "would fit with" not in message(first)


def test_a_search_without_result_ends_and_reports_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", 1)
    world = full_fleet(OPTIONS["devices"])
    searches = list(decisions(world, gang()))
    assert [search.unfinished for search in searches] == [1, 2, 3, 0]
    assert (
        "stopped after examining 64 replicas; it runs again when the fleet changes"
        in message(searches[-1])
    )
    assert (world.unfinished_searches, searches[-1].more) == ({}, False)


def test_a_gang_for_which_the_longest_search_found_nothing_does_not_hold_up_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For ten minutes a change of the fleet starts a short search only, and each batch
    ends after the work of a few long ones.
    """
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", 1)
    world = full_fleet(OPTIONS["devices"])
    assert len(list(decisions(world, gang()))) == 4
    later = NOW + victim_search.SEARCH_AGAIN_MS
    assert [decided(world, gang(), now).unfinished for now in (later - 1, later)] == [
        0,
        1,
    ]
    settled(world, gang(), later)
    assert world.ended_searches == {}


def test_a_batch_ends_after_long_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", BATCH_WORK_MAX)
    world = full_fleet(OPTIONS["whole nodes"])
    requests = [
        ScheduleRequest(f"ask-{n}", replace(gang(), name=f"big-{n}")) for n in range(3)
    ]
    assert len(decide_some(world, requests, NOW)) == 3
    monkeypatch.setattr(preempt, "_WORK_PER_STEP", BATCH_WORK_MAX)
    assert len(decide_some(world, requests, NOW)) == 1


@pytest.mark.parametrize(
    ("clusters", "size", "nodes", "room"),
    [
        pytest.param(
            2, 10, 2, "make room for 8 of 10 replicas", id="one replica too many"
        ),
        pytest.param(
            3,
            10,
            NODES + 1,
            "make room for 0 of 10 replicas",
            id="no pool is large enough",
        ),
    ],
)
@pytest.mark.usefixtures("short_searches")
def test_no_search_starts_if_no_set_of_victims_suffices(
    clusters: int, size: int, nodes: int, room: str
) -> None:
    decision = decided(full_fleet(OPTIONS["whole nodes"], clusters), gang(size, nodes))
    assert room in message(decision)
    assert not decision.search_goes_on


def test_replicas_of_the_same_priority_make_no_room() -> None:
    world = full_fleet(OPTIONS["whole nodes"], 3)
    put_replicas(world, deployment(name="equal"), "c-00/8", pools="p0", priority=100)
    world.put_cluster(cluster("c-00", pool("p0", NODES + 1), pool("p1", NODES)))
    assert "make room for 6 of 7 replicas" in message(decided(world, gang(7, NODES)))


@pytest.mark.usefixtures("short_searches")
def test_a_plan_searches_as_long_as_the_last_decision_would() -> None:
    world = full_fleet(OPTIONS["devices"])
    (decision,) = settle(world, [gang()], NOW).decisions.values()
    assert (len(decision.placements), world.unfinished_searches) == (GANG, {})
    result = plan(world, Changes(deployments=(gang(),)), [], NOW)
    assert sum(line.startswith("+") for step in result.steps for line in step) == GANG


def test_returned_quota_reopens_only_clusters_that_it_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang of many replicas would try every full cluster again for each of its
    victims.
    """
    tried = Counter[str]()
    on = Trials.on

    def counted(trials: Trials, info: ClusterInfo, *gone: AssumedGone) -> Trial:
        tried[info.name] += 1
        return on(trials, info, *gone)

    world = full_fleet(OPTIONS["a quota"], 8)
    monkeypatch.setattr(Trials, "on", counted)
    last = list(decisions(world, gang(6)))[-1]
    unused = {f"c-{n:02}" for n in range(8)} - {
        placement.cluster for placement in last.placements
    }
    assert unused
    assert max(tried[name] for name in unused) < 40


def test_a_victim_stays_if_the_nodes_of_the_others_suffice() -> None:
    """A continued search takes the first good set, and spares victims afterwards."""
    world = fleet(cluster("a", 6), options=OPTIONS["whole nodes"])
    put_replicas(world, deployment(engine(copies=4), name="large"), "a/0", since=1)
    put_replicas(world, deployment(engine(copies=2), name="small"), "a/0", since=2)
    world.unfinished_searches[NAMESPACE, "big"] = 1
    decision = decided(world, gang(2, 2))
    assert [victim.deployment for victim in decision.victims] == ["large"]


def test_victims_that_reuse_nodes_make_room_with_the_replicas_whose_nodes_they_reuse() -> (
    None
):
    world = fleet(cluster("a", 4), options=OPTIONS["whole nodes"])
    put_replicas(
        world, deployment(engine(copies=4), name="low"), "a/0", state=RELEASING
    )
    put_replicas(
        world,
        deployment(engine(copies=2), name="low"),
        "a/1",
        state=RESERVED,
        reuse=(("p", 2),),
    )
    assert world.free("a") == {"p": 0}
    assert len(decided(world, gang(2, 2)).placements) == 2


def test_sparing_is_not_tried_without_unused_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each trial places all replicas of the cluster again: with 1,400 victims that
    takes seconds.
    """
    tried: list[str] = []
    monkeypatch.setattr(
        preempt.Preemption,
        "_take_instead",
        lambda _, cluster, __: tried.append(cluster),
    )
    decision = decided(full_fleet(OPTIONS["whole nodes"], 1), gang(4, 2))
    assert (len(decision.victims), tried) == (8, [])
