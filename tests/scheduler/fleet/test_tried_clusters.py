"""Outcomes of trials are kept across decisions and dropped where something changed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler.decide import apply, decide
from scheduler.fleet.caches import tried_clusters
from scheduler.fleet.caches.tried_clusters import TriedClusters
from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.fleet.fleet import Fleet
from scheduler.hardware import node_fitting
from scheduler.hardware.node_fitting import Trial
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.policy import (
    AffinityTerm,
    PlacementPolicy,
    Quota,
    SchedulerOptions,
)
from scheduler.placement.score import PROFILES, WEIGHTED, ClusterScorer
from scheduler.placement.trials import Trials
from tests.scheduler.builders import (
    NOW,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    message,
    places,
    pool,
    put_replicas,
)

Change = Callable[[Fleet], None]
NAMES = ("a", "b", "c", "d")
RESIDENT = deployment(engine(copies=3), name="resident")
WEIGHTS = {"spread": 3, "binpack": 2, "cost": 1}


def options(profile: str) -> SchedulerOptions:
    return SchedulerOptions(
        profile=profile, weights=WEIGHTS if profile == WEIGHTED else {}
    )


def full_fleet(profile: str = "default") -> Fleet:
    """Return four clusters of five nodes; a replica holds three nodes of each."""
    pools = pool("p", 3, price_milli=2), pool("q", 2, price_milli=1)
    world = fleet(*(cluster(name, *pools) for name in NAMES), options=options(profile))
    for name in NAMES:
        put_replicas(world, RESIDENT, f"{name}/0")
    return world


def asked(*copies: int, name: str = "asked", **fields: object) -> DeploymentView:
    engines = (engine(f"e{n}", copies=count) for n, count in enumerate(copies))
    return deployment(*engines, name=name, **fields)  # type: ignore[arg-type]


def rebuilt(world: Fleet) -> Fleet:
    """Return a fleet with the same state that has decided nothing."""
    other = fleet(
        *(info.view for info in world.clusters.values()), options=world.options
    )
    for entry in world.entries():
        other.put_replica(entry)
    return other


def release(world: Fleet) -> None:
    world.release(next(iter(world.on_cluster("c"))))


def shrink(world: Fleet) -> None:
    entry = next(iter(world.on_cluster("c").values()))
    placed = entry.engines[0]
    world.put_replica(replace(entry, engines=(replace(placed, copies=1),)))


def publish_more_nodes(world: Fleet) -> None:
    view = world.clusters["c"].view
    world.put_cluster(
        replace(view, pools=(view.pools[0], replace(view.pools[1], nodes=5)))
    )


def add_a_cluster(world: Fleet) -> None:
    world.put_cluster(cluster("bb", pool("p", 3), pool("q", 2)))


def count_devices(world: Fleet) -> None:
    world.set_options(replace(world.options, accounting="device-safe"))


def change_often(world: Fleet) -> None:
    """More changes than the log keeps."""
    release(world)
    for _ in range(20_001):
        world.ledger.changes.add((None, None))


CHANGES = (
    release,
    shrink,
    publish_more_nodes,
    add_a_cluster,
    count_devices,
    change_often,
)


@pytest.mark.parametrize("profile", [*PROFILES, WEIGHTED])
@pytest.mark.parametrize("change", CHANGES)
def test_a_refused_request_is_placed_when_capacity_returns(
    profile: str, change: Change
) -> None:
    world, view = full_fleet(profile), asked(2, 1)
    assert places(decided(world, view)) == []
    change(world)
    decision = decided(world, view)
    assert len(places(decision)) == 1
    assert decision == decided(rebuilt(world), view)


@pytest.mark.parametrize("profile", [*PROFILES, WEIGHTED])
def test_a_placement_does_not_take_nodes_of_another(profile: str) -> None:
    """Two clusters have room for one replica each, so the third decision finds none."""
    world = full_fleet(profile)
    for name in ("c", "d"):
        world.release(next(iter(world.on_cluster(name))))
    for number, expected in enumerate((1, 1, 0)):
        view = asked(2, 3, name=f"asked-{number}")
        decision, again = decided(world, view), decided(rebuilt(world), view)
        assert len(places(decision)) == expected
        assert decision == again
        apply(world, decision)


@pytest.mark.parametrize("profile", [*PROFILES, WEIGHTED])
def test_replicas_of_one_decision_see_each_other(profile: str) -> None:
    """The cluster has room for two replicas, and the second one needs other pools."""
    world = full_fleet(profile)
    world.put_cluster(cluster("c", pool("p", 6), pool("q", 4)))
    decision = decided(world, asked(2, 1, want=3))
    assert places(decision) == ["c/0", "c/1"]
    assert world.audit() == []
    apply(world, decision)
    assert min(world.free("c").values()) >= 0


@pytest.mark.parametrize("profile", [*PROFILES, WEIGHTED])
def test_replicas_of_one_batch_see_each_other(profile: str) -> None:
    world = full_fleet(profile)
    world.release(next(iter(world.on_cluster("c"))))
    requests = [
        ScheduleRequest(f"ask-{n}", asked(2, 3, name=f"asked-{n}")) for n in range(2)
    ]
    for _ in range(2):
        assert [len(places(decision)) for decision in decide(world, requests, NOW)] == [
            1,
            0,
        ]


def test_changed_weights_apply_at_once() -> None:
    free = cluster("a", pool("p", 9, price_milli=9))
    cheap = cluster("b", pool("p", 3, price_milli=1))
    weighted = SchedulerOptions(profile=WEIGHTED, weights={"free": 9, "cost": 1})
    world = fleet(free, cheap, options=weighted)
    assert places(decided(world, asked(1))) == ["a/0"]
    world.set_options(replace(world.options, weights={"free": 1, "cost": 9}))
    assert places(decided(world, asked(1))) == ["b/0"]


def test_a_new_cluster_moves_the_clusters_to_avoid() -> None:
    world = fleet(*(cluster(name, 9) for name in NAMES))
    apply(world, decided(world, deployment(name="loud", labels={"app": "loud"})))
    avoids = (AffinityTerm({"app": "loud"}),)
    view = asked(1, policy=PlacementPolicy(anti_affinity=avoids))
    assert places(decided(world, view)) == ["b/0"]
    world.put_cluster(cluster("0", 9))
    world.put_cluster(replace(world.clusters["0"].view, ready=False))
    assert places(decided(world, view)) == ["b/0"]


def test_nodes_that_leave_for_a_deployment_are_free_for_it_alone() -> None:
    world, mine, other = (
        fleet(cluster("a", 5)),
        asked(3, 2, name="mine"),
        asked(3, 2, name="other"),
    )
    put_replicas(world, mine, "a/0", state="Releasing")
    assert places(decided(world, other)) == []
    assert places(decided(world, mine)) == ["a/1"]
    assert places(decided(world, other)) == []


def test_the_ends_of_the_weighted_scale_are_those_of_each_decision() -> None:
    """Next to the expensive cluster the prices of the others hardly differ."""
    views = (
        cluster("a", pool("p", 2, price_milli=10), labels={"cheap": "yes"}),
        cluster("b", pool("p", 11, price_milli=0), labels={"cheap": "yes"}),
        cluster("c", pool("p", 5, price_milli=1000)),
    )
    weighted = SchedulerOptions(profile=WEIGHTED, weights={"cost": 2, "binpack": 1})
    world = fleet(*views, options=weighted)
    assert places(decided(world, asked(1))) == ["a/0"]
    assert places(decided(world, asked(1, match_labels={"cheap": "yes"}))) == ["b/0"]
    assert places(decided(world, asked(1))) == ["a/0"]


def test_a_class_that_loses_its_devices_blocks_the_engine() -> None:
    world = fleet(cluster("a", pool("p", 1)))
    assert places(decided(world, asked(1))) == ["a/0"]
    world.put_cluster(cluster("a", pool("p", 1, gpu("24Gi"))))
    assert "1 had no pool for engine e0" in message(decided(world, asked(1)))


def test_the_log_of_published_clusters_is_kept_short() -> None:
    world = full_fleet()
    decided(world, asked(1))
    for _ in range(20_001):
        world.index.changes.add(0)
    decided(world, asked(1))
    assert world.index.changes.since(0) is None


def test_one_decision_under_a_quota_stops_at_the_quota() -> None:
    limited = SchedulerOptions(quotas=(Quota("ml", max_nodes=5),))
    world = fleet(*(cluster(name, pool("p", 9)) for name in NAMES), options=limited)
    decision = decided(
        world, asked(1, 1, want=4, policy=PlacementPolicy(profile="balanced"))
    )
    assert len(places(decision)) == 2
    assert "over quota (used 4 of 5 nodes, needs 2 more)" in message(decision)


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """Return the names of the clusters that a method is called for, in order."""
    seen: list[str] = []
    method = getattr(owner, name)

    def count(self: object, *args: object) -> object:
        seen.extend(arg.name for arg in args if isinstance(arg, ClusterInfo))
        return method(self, *args)

    monkeypatch.setattr(owner, name, count)
    return seen


@pytest.mark.parametrize(
    ("accounting", "copies"),
    [("node", (4,)), ("node", (2, 1)), ("node", (9,) * 8), ("device-safe", (50,))],
)
def test_a_refusal_tries_only_clusters_that_changed(
    accounting: str,
    copies: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = full_fleet()
    world.set_options(replace(world.options, accounting=accounting))
    tried = counted(monkeypatch, Trials, "_by_capacity")
    decided(world, asked(*copies))
    assert set(tried) == set(NAMES)
    tried.clear()
    decided(world, asked(*copies, name="other"))
    assert tried == []
    world.put_cluster(replace(world.clusters["b"].view, labels={"x": "y"}))
    decided(world, asked(*copies, name="another"))
    assert tried == ["b"]


@pytest.mark.parametrize("profile", [*PROFILES, WEIGHTED])
def test_a_placement_scores_only_clusters_that_changed(
    profile: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = fleet(
        *(cluster(name, pool("p", 9)) for name in NAMES), options=options(profile)
    )
    first = decided(world, asked(1, 1, name="first"))
    apply(world, first)
    changed = {placement.cluster for placement in first.placements}
    tried = counted(monkeypatch, Trials, "_by_capacity")
    scored = counted(monkeypatch, ClusterScorer, "_value")
    decided(world, asked(1, 1, name="second"))
    assert {*tried, *scored} <= changed
    assert len(tried) <= 1


def test_the_templates_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full_fleet()
    monkeypatch.setattr(tried_clusters, "_KEPT_MAX", 500)
    tried = counted(monkeypatch, Trials, "_by_capacity")

    def tries(number: int) -> bool:
        tried.clear()
        decided(world, asked(4, number))
        return bool(tried)

    found = [tries(number) for number in (1, 2, 1, 3, 1, 2)]
    assert found == [True, True, False, True, False, True]


def test_a_search_that_was_cut_short_continues_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search takes 24 steps on each cluster, so that the budget is spent on the second one."""
    monkeypatch.setattr(node_fitting, "DECISION_STEPS_MAX", 40)
    world = fleet(
        *(cluster(name, pool("p", 11), pool("q", 11), pool("r", 11)) for name in NAMES)
    )
    said = [message(decided(world, asked(6, 6, 6, 4, 4, 3, 2, 2))) for _ in range(5)]
    assert ["violated the limit of" in text for text in said] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert "4 had too few free nodes for engine e7" in said[-1]


def test_forgetting_a_cluster_removes_every_trace_of_it() -> None:
    fits, full = Trial((1,)), Trial(failed=0)
    made = TriedClusters(8)
    made.add({0: fits, 1: full, 2: full, 3: fits})
    made.add_gaps({1: 2, 2: 4})
    made.column("cost").put({0: 9, 3: 8})
    made.forget(ClusterSet(0b11010))
    assert (made.known, made.fitting) == (0b0101, 0b0001)
    assert (made.trials, made.failing, made.gaps) == (
        {0: fits},
        {full: 0b0100},
        {4: 0b0100},
    )
    assert (made.column("cost").values, made.column("cost").known) == ({0: 9}, 0b0001)
    assert [made.trial(rank) for rank in (0, 2)] == [fits, full]
