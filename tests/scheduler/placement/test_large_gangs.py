"""Gangs that need many preemptions: a search for victims may span several decisions.

It starts only if it can succeed.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from scheduler.cel.limits import BATCH_WORK_MAX
from scheduler.decide import apply, decide, decide_and_explain, decide_some
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.nomination import AssumedGone
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.snapshots import snapshot
from scheduler.hardware import node_fitting
from scheduler.hardware.charged_devices import PoolLoad
from scheduler.hardware.node_fitting import Trial
from scheduler.model.decision import Decision
from scheduler.model.inputs import DeploymentView, EngineView, ScheduleRequest
from scheduler.model.policy import PlacementPolicy, Quota, SchedulerOptions
from scheduler.model.reasons import RELEASING, RESERVED
from scheduler.placement import cluster_victims, preempt, victim_search
from scheduler.placement.limits.device_accounting import most_beside
from scheduler.placement.trials import Trials
from scheduler.placement.victim_room import VictimRoom
from scheduler.planning.settle import settle
from scheduler.planning.whatif import Changes, plan
from tests.scheduler.builders import (
    NAMESPACE,
    NOW,
    alone,
    ask,
    at_least,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
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


def gang_engine(nodes: int) -> EngineView:
    if nodes == 1:
        return engine("x", alone(ask(count=8)))
    return engine("x", leader(ask(count=8)), worker(nodes - 1, ask(count=8)))


def gang(size: int = GANG, nodes: int = EACH, **fields: Any) -> DeploymentView:
    policy = PlacementPolicy(
        priority_class="high", preemption="LowerPriority", gang_replicas=size
    )
    return deployment(
        gang_engine(nodes),
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
def test_a_search_for_one_replica_is_continued_as_well() -> None:
    """Only one replica may be preempted, on a cluster that the first search misses."""
    world = full_fleet(OPTIONS["whole nodes"])
    for entry in list(world.entries()):
        if entry.cluster != f"c-{CLUSTERS - 1:02}":
            world.put_replica(replace(entry, min_available=100))
    copy = snapshot.load(snapshot.dump(world))
    first, last = decisions(world, gang(1, 1))
    assert (first.placements, first.more, GOES_ON in message(first)) == ((), True, True)
    assert (len(last.victims), last.more) == (1, False)
    (planned,) = settle(copy, [gang(1, 1)], NOW).decisions.values()
    assert planned.victims == last.victims


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


@pytest.mark.parametrize(
    ("preemption", "is_suggested"), [("Never", True), ("LowerPriority", False)]
)
def test_an_explanation_suggests_nothing_after_a_search_that_was_cut_short(
    monkeypatch: pytest.MonkeyPatch, preemption: str, is_suggested: bool
) -> None:
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", 1)
    big = gang()
    asked = replace(big, policy=replace(big.policy, preemption=preemption))
    (explained,) = decide_and_explain(
        full_fleet(OPTIONS["whole nodes"]),
        [ScheduleRequest("ask", asked)],
        NOW,
        to_the_end=True,
    )
    assert (explained.decision.placements, bool(explained.suggestions)) == (
        (),
        is_suggested,
    )


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
@pytest.mark.parametrize("name", OPTIONS)
def test_no_search_starts_if_no_set_of_victims_suffices(
    name: str, clusters: int, size: int, nodes: int, room: str
) -> None:
    decision = decided(full_fleet(OPTIONS[name], clusters), gang(size, nodes))
    assert room in message(decision)
    assert not decision.search_goes_on


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.usefixtures("short_searches")
def test_no_search_starts_for_a_replica_that_is_larger_than_any_pool(name: str) -> None:
    decision = decided(full_fleet(OPTIONS[name]), gang(1, NODES + 1))
    assert "no replicas of lower priority free enough nodes" in message(decision)
    assert decision.unfinished == 0


def test_the_count_adds_the_devices_of_pools_and_of_each_engine() -> None:
    """A replica needs two devices for one engine and six for the other."""
    options = SchedulerOptions(priority_classes=CLASSES, accounting="device-safe")
    world = fleet(cluster("a", pool("p0", 2), pool("p1", 2)), options=options)
    for i in range(4):
        low = deployment(engine("e", alone(ask(count=8))), name=f"low-{i}")
        put_replicas(world, low, f"a/{i}", pools=f"p{i // 2}")
    engines = (engine("x", alone(ask(count=2))), engine("y", alone(ask(count=6))))
    view = replace(gang(6), engines=engines)
    assert "make room for 4 of 6 replicas" in message(decided(world, view))


def test_pools_of_whole_nodes_are_counted_by_nodes_where_others_count_devices() -> None:
    options = SchedulerOptions(
        priority_classes=CLASSES,
        accounting="device-safe",
        class_accounting={"whole": "node"},
    )
    views = (
        cluster("a", pool("p", 2, class_name="whole")),
        cluster("b", pool("p", 2)),
    )
    world = fleet(*views, options=options)
    for name in "ab":
        low = deployment(engine("e", alone(ask(count=8)), copies=2), name=f"low-{name}")
        put_replicas(world, low, f"{name}/0", pools="p")
    # Two replicas of four devices on two whole nodes, and four on two others.
    small = deployment(
        engine("x", alone(ask(count=4))), want=7, name="big", policy=gang(7).policy
    )
    assert "make room for 6 of 7 replicas" in message(decided(world, small))
    # Three pods fit on the two nodes where devices are counted, but not on whole nodes.
    three = deployment(
        engine("x", alone(ask(count=4)), copies=3),
        want=2,
        name="big",
        policy=gang(2).policy,
    )
    assert "make room for 1 of 2 replicas" in message(decided(world, three))


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


@pytest.mark.parametrize("name", ["whole nodes", "devices"])
def test_victims_that_reuse_nodes_make_room_with_the_replicas_whose_nodes_they_reuse(
    name: str,
) -> None:
    world = fleet(cluster("a", 4), options=OPTIONS[name])
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


@pytest.mark.parametrize(
    ("name", "steps"),
    [("whole nodes", 100), ("a quota", 100), ("devices", 400), ("packed devices", 400)],
)
def test_a_gang_is_placed_on_one_cluster_with_far_more_replicas_than_it_needs(
    name: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replica of the gang searches the cluster again."""
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", steps)
    world = fleet(cluster("a", 300), options=OPTIONS[name])
    for i in range(300):
        put_replicas(
            world, deployment(engine("main", alone(ask(count=8))), name="low"), f"a/{i}"
        )
    last = list(decisions(world, gang(50, 2)))[-1]
    assert (len(last.placements), len(last.victims)) == (50, 100)
    assert world.audit() == []


def test_a_victim_returns_quota_for_clusters_without_victims() -> None:
    options = SchedulerOptions(
        priority_classes=CLASSES, quotas=(Quota(NAMESPACE, max_nodes=4),)
    )
    world = fleet(
        cluster("a", pool("small", 4, gpu("80Gi")), pool("large", 1)),
        cluster("b", pool("large", 3)),
        options=options,
    )
    low = deployment(engine("main", alone(ask(at_least("60Gi"))), copies=4), name="low")
    put_replicas(world, low, "a/0", pools="small")
    decision = decided(world, gang(4, 1))
    assert (len(decision.placements), len(decision.victims)) == (4, 1)


def test_a_gang_with_more_victims_than_a_decision_may_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decision must fit into one payload."""
    world = full_fleet(OPTIONS["whole nodes"], 4)
    for most, victims, more in ((6, 6, False), (5, 0, False)):
        monkeypatch.setattr(preempt, "VICTIMS_MAX", most)
        decision = decided(world, gang(3, 2))
        assert (len(decision.victims), decision.more) == (victims, more)
    assert "would evict more than 5 replicas at once" in message(decision)
    assert not decision.search_goes_on


def test_replicas_without_a_gang_are_preempted_for_in_several_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preempt, "VICTIMS_MAX", 5)
    world = full_fleet(OPTIONS["whole nodes"])
    policy = PlacementPolicy(priority_class="high", preemption="LowerPriority")
    view = replace(gang(3, 2), policy=policy)
    first, last = (settled(world, view, NOW + n) for n in range(2))
    assert (len(first.placements), len(first.victims), first.more) == (2, 4, True)
    assert f"{GOES_ON}: one decision preempts at most 5 replicas" in message(first)
    assert "would fit with" not in message(first)
    assert (len(last.placements), len(last.victims), last.more) == (3, 2, False)
    assert world.audit() == []


ARRANGED = (13, 7, 7, 7, 6, 6, 4)
"""Nodes of pools that hold the engines in another order than their own."""
TIGHT = (9, 7, 8, 6, 7, 9, 8)
"""Nodes of pools that hold them in no order, which only a long search finds."""


def hard_to_arrange(tight: int) -> tuple[Fleet, DeploymentView]:
    """A gang of two replicas with eight engines, and room for it on the last clusters."""
    sizes = {f"c-{n}": TIGHT for n in range(tight)} | {"z-0": ARRANGED, "z-1": ARRANGED}
    world = fleet(
        *(
            cluster(name, *(pool(f"p{p}", nodes) for p, nodes in enumerate(pools)))
            for name, pools in sizes.items()
        ),
        options=OPTIONS["whole nodes"],
    )
    for name, pools in sizes.items():
        for p, nodes in enumerate(pools):
            low = deployment(engine(copies=nodes), name=f"low-{name}-{p}")
            put_replicas(world, low, f"{name}/0", pools=f"p{p}")
    engines = [
        engine(f"e{n}", copies=nodes)
        for n, nodes in enumerate((7, 7, 7, 6, 6, 4, 7, 6))
    ]
    return world, replace(gang(2), engines=tuple(engines))


def test_a_search_without_steps_for_arrangements_is_not_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_fitting, "DECISION_STEPS_MAX", 1)
    world, view = hard_to_arrange(2)
    said = [message(search) for search in decisions(world, view)]
    limit = "the limit of 500000 search steps for one decision"
    assert [f"{GOES_ON}: it has reached {limit}" in text for text in said] == [
        True,
        True,
        True,
        False,
    ]
    assert f"preempt stopped at {limit}" in said[-1]
    assert not any("would" in text for text in said)


def test_a_continued_search_begins_at_other_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_fitting, "DECISION_STEPS_MAX", 50_000)
    world, view = hard_to_arrange(10)
    assert len(list(decisions(world, view))[-1].placements) == 2


def counted_rooms(
    monkeypatch: pytest.MonkeyPatch, count_name: str = "_most_replicas"
) -> list[str]:
    """Return a list to which each cluster is added whose replicas are counted."""
    counted: list[str] = []
    count = getattr(VictimRoom, count_name)

    def noted(room: VictimRoom, info: ClusterInfo) -> float:
        counted.append(info.name)
        found: float = count(room, info)
        return found

    monkeypatch.setattr(VictimRoom, count_name, noted)
    return counted


@pytest.mark.parametrize(
    ("name", "count_name", "most"),
    [
        ("whole nodes", "_most_replicas", 100),
        # Removing a replica from the load of a cluster takes eight times as long.
        ("devices", "_most_by_device", 100 // 8),
    ],
)
@pytest.mark.usefixtures("short_searches")
def test_the_count_before_a_search_reads_no_more_replicas_than_the_first_search(
    name: str, count_name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet has 100,000 replicas, and each refused gang would read them all."""
    world = full_fleet(OPTIONS[name])
    counted = counted_rooms(monkeypatch, count_name)
    for entry in list(world.entries()):
        world.put_replica(replace(entry, min_available=100))
    assert decided(world, gang()).search_goes_on
    assert len(counted) == most // (2 * NODES) + 1


def test_replicas_without_a_gang_are_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deployment of a thousand replicas would read as many clusters each time."""
    world, counted = full_fleet(OPTIONS["whole nodes"]), counted_rooms(monkeypatch)
    policy = PlacementPolicy(priority_class="high", preemption="LowerPriority")
    decision = decided(world, replace(gang(3, 2), policy=policy))
    assert (len(decision.placements), counted) == (3, ["c-00"])


def test_replicas_are_not_counted_where_no_pool_is_large_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, counted = full_fleet(OPTIONS["whole nodes"]), counted_rooms(monkeypatch)
    assert "make room for 0 of 10" in message(decided(world, gang(10, NODES + 1)))
    assert counted == []


@pytest.mark.usefixtures("short_searches")
def test_a_refusal_counts_only_some_of_many_replicas() -> None:
    world = full_fleet(OPTIONS["whole nodes"])
    equal = replace(gang(1), policy=PlacementPolicy(preemption="LowerPriority"))
    assert "help: at least 104 replicas have no lower priority" in message(
        decided(world, equal)
    )


@pytest.mark.usefixtures("short_searches")
def test_a_refusal_reads_only_some_of_many_replicas_that_may_be_preempted() -> None:
    world = full_fleet(OPTIONS["whole nodes"])
    for n in (0, CLUSTERS - 1):
        equal = deployment(name="equal")
        put_replicas(world, equal, f"c-{n:02}/8", pools="p0", priority=100)
    assert "help: at least 1 replicas have no lower priority" in message(
        decided(world, gang(1, NODES + 1))
    )


@pytest.mark.parametrize(("name", "unfinished"), [("a quota", 0), ("devices", 1)])
def test_a_victim_takes_more_steps_where_devices_are_counted(
    name: str, unfinished: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_victims, "_STEPS_PER_LOAD", 10_000)
    assert decided(full_fleet(OPTIONS[name]), gang()).unfinished == unfinished


@pytest.mark.parametrize("accounting", ["node", "device-safe"])
def test_an_engine_without_devices_has_room_everywhere(accounting: str) -> None:
    full = pool("p", 0)
    world = fleet(
        cluster("a", full), options=SchedulerOptions(class_accounting={"": accounting})
    )
    bound = most_beside(FleetOverlay(world, NOW), full, PoolLoad.of(full), [])
    assert bound == math.inf


def test_sparing_by_devices_takes_more_of_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Charging devices takes several times as long as charging nodes."""
    monkeypatch.setattr(preempt, "SPARING_STEPS_MAX", 400)
    tried: list[str] = []
    take = preempt.Preemption._take_instead

    def noted(preemption: preempt.Preemption, cluster: str, victims: Any) -> None:
        tried.append(cluster)
        take(preemption, cluster, victims)

    monkeypatch.setattr(preempt.Preemption, "_take_instead", noted)
    decision = decided(full_fleet(OPTIONS["devices"], 1), gang(4, 2))
    assert len(decision.victims) == 8
    # One trial, which fails and takes the victims once more.
    assert len(tried) == 2
