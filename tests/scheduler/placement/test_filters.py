"""Which clusters are candidates at all (cases 84 to 102)."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.fleet.manifests import cluster_view
from scheduler.model.inputs import CacheView, ClusterView, Taint, Toleration
from tests.scheduler.builders import (
    actions,
    cluster,
    codes,
    condition,
    decided,
    deployment,
    evicted,
    fleet,
    message,
    places,
    pool,
    put_replicas,
    taint,
    tolerate,
)

US, EU = {"region": "us"}, {"region": "eu"}


def test_84_no_clusters() -> None:
    decision = decided(fleet(), deployment())
    assert (places(decision), condition(decision)) == ([], ("False", "NoClusters"))


@pytest.mark.parametrize(
    ("story", "view", "code"),
    [
        ("85 not Ready", cluster("a", 1, ready=False), "NotReady"),
        ("85 no gateway", cluster("a", 1, gateway_address=""), "NoGateway"),
        ("99 stk-61 being deleted", cluster("a", 1, deleting=True), "Deleting"),
        ("no pools", cluster("a"), "NoPools"),
        ("not accounted for after a restart", cluster("a", 1, accounted=False), "NotReady"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cluster_that_cannot_take_replicas_says_why(story: str, view: ClusterView, code: str) -> None:
    del story
    decision = decided(fleet(view), deployment())
    assert (places(decision), codes(decision)) == ([], {code: 1})


@pytest.mark.parametrize("status", [None, "Unknown", "False", "true"], ids=lambda status: f"85 Ready is {status}")
def test_only_the_exact_true_is_ready(status: str | None) -> None:
    conditions = [] if status is None else [{"type": "Ready", "status": status}]
    assert not cluster_view({"metadata": {"name": "a"}, "status": {"conditions": conditions}}).ready


def test_86_the_deployments_selector_chooses() -> None:
    world = fleet(cluster("a", 1, labels=US), cluster("b", 1, labels=EU))
    assert places(decided(world, deployment(match_labels=US, want=2))) == ["a/0"]


def test_87_deployment_and_cache_selectors_both_hold() -> None:
    world = fleet(
        cluster("a", 1, labels=US, cache_storage_class="rwx"),
        cluster("b", 1, labels={**US, "tier": "gpu"}, cache_storage_class="rwx"),
        cluster("c", 1, labels={"tier": "gpu"}, cache_storage_class="rwx"),
    )
    cache = CacheView("Present", "weights", {"tier": "gpu"})
    assert places(decided(world, deployment(match_labels=US, cache=cache))) == ["b/0"]


def test_88_selectors_that_exclude_each_other_leave_nothing() -> None:
    world = fleet(cluster("a", 1, labels=US, cache_storage_class="rwx"), cluster("b", 1, labels=EU, cache_storage_class="rwx"))
    decision = decided(world, deployment(match_labels=US, cache=CacheView("Present", "weights", EU)))
    assert codes(decision) == {"LabelMismatch": 1, "CacheFootprint": 1}
    assert condition(decision) == ("False", "NoClusters")
    assert "1 didn't match clusterSelector" in message(decision)
    assert "1 are outside ModelCache weights's footprint" in message(decision)


UNRESOLVED = CacheView("Unresolved", "weights")
ABSENT = CacheView("Absent", "weights")


def test_89_a_cache_that_is_not_read_yet_holds_new_replicas() -> None:
    decision = decided(fleet(cluster("a", 1)), deployment(cache=UNRESOLVED))
    assert places(decision) == []
    assert condition(decision, "ModelCacheResolved") == ("False", "ModelCacheUnresolved")


def test_90_an_absent_cache_keeps_what_runs_and_warns() -> None:
    world = fleet(cluster("a", 1))
    view = deployment(cache=ABSENT)
    put_replicas(world, view, "a/0")
    decision = decided(world, view)
    assert actions(decision) == {"a/0": "Keep"}
    assert decision.placements[0].gateway_address == "a.example"
    assert condition(decision, "ModelCacheResolved") == ("False", "ModelCacheNotFound")


def test_91_a_held_fill_places_nothing_beside_placed_replicas() -> None:
    world = fleet(cluster("a", 4))
    view = deployment(cache=UNRESOLVED, want=3)
    put_replicas(world, view, "a/0")
    assert (places(decided(world, view)), decided(world, view).shortfall) == (["a/0"], 2)


def test_92_no_schedule_refuses_new_and_keeps_old() -> None:
    world = fleet(cluster("a", 4, taints=["gpu:NoSchedule"]), cluster("b", 4))
    assert places(decided(world, deployment())) == ["b/0"]
    view = deployment(name="old")
    put_replicas(world, view, "a/0")
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_93_a_toleration_of_the_key_admits() -> None:
    world = fleet(cluster("a", 1, taints=["gpu=x:NoSchedule"]))
    assert places(decided(world, deployment(tolerations=(tolerate("gpu"),)))) == ["a/0"]


@pytest.mark.parametrize(
    ("story", "nodes", "tolerations", "want", "shortfall"),
    [
        ("94 drained, another is free", 1, (), ["b/0"], 0),
        ("94 drained, nothing is free", 0, (), [], 1),
        ("94 tolerated", 1, (tolerate("drain"),), ["a/0"], 0),
        ("95 a toleration of the other effect does not help", 1, (tolerate("drain", effect="NoSchedule"),), ["b/0"], 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_execute_evicts(story: str, nodes: int, tolerations: tuple[Toleration, ...], want: list[str], shortfall: int) -> None:
    del story
    world = fleet(cluster("a", 4, taints=["drain:NoExecute"]), cluster("b", nodes))
    view = deployment(tolerations=tolerations)
    uids = put_replicas(world, view, "a/0")
    decision = decided(world, view)
    assert (places(decision), decision.shortfall) == (want, shortfall)
    assert evicted(decision) == ({} if want == ["a/0"] else {uids[0]: "Drained"})


MATCHES = [
    ("97 equal value", "on", Toleration("k", "Equal", "on"), True),
    ("97 other value", "off", Toleration("k", "Equal", "on"), False),
    ("97 neither has a value", "", Toleration("k"), True),
    ("97 the taint alone has a value", "on", Toleration("k"), False),
    ("98 Exists without key", "on", Toleration("", "Exists"), True),
    ("98 Exists with another key", "on", Toleration("other", "Exists"), False),
    ("Exists ignores the value", "on", Toleration("k", "Exists", "off"), True),
    ("Equal without key matches nothing", "on", Toleration("", "Equal", "on"), False),
]


@pytest.mark.parametrize(("story", "value", "toleration", "admitted"), MATCHES, ids=[row[0] for row in MATCHES])
def test_tolerations_match_as_in_kubernetes(story: str, value: str, toleration: Toleration, admitted: bool) -> None:
    del story
    world = fleet(cluster("a", 1, taints=[Taint("k", value, "NoSchedule")]))
    assert places(decided(world, deployment(tolerations=(toleration,)))) == (["a/0"] if admitted else [])


def test_96_every_taint_needs_a_toleration() -> None:
    world = fleet(cluster("a", 1, taints=["one:NoSchedule", "two:NoSchedule"]))
    decision = decided(world, deployment(tolerations=(tolerate("one"),)))
    assert decision.diagnosis.groups[0].text == "had untolerated taint {two:NoSchedule}"


@pytest.mark.parametrize(
    ("taints", "kept"),
    [(["on:NoSchedule", "off:NoExecute"], False), (["off:NoSchedule", "on:NoExecute"], True)],
    ids=["only NoSchedule tolerated: dropped", "only NoExecute tolerated: kept"],
)
def test_a_partly_tolerated_cluster_keeps_a_replica_unless_no_execute_is_left(taints: list[str], kept: bool) -> None:
    world = fleet(cluster("a", 1, taints=taints))
    view = deployment(tolerations=(tolerate("on"),))
    put_replicas(world, view, "a/0")
    assert places(decided(world, view)) == (["a/0"] if kept else [])


def test_100_a_cluster_that_cannot_stage_takes_no_replica_with_a_cache() -> None:
    world = fleet(cluster("a", 1), cluster("b", 1, cache_storage_class="rwx"))
    decision = decided(world, deployment(cache=CacheView("Present", "weights"), want=2))
    assert places(decision) == ["b/0"]
    assert codes(decision)["CacheIncapable"] == 1
    assert places(decided(world, deployment())) == ["a/0"]


def test_102_a_pool_whose_class_is_missing_takes_nothing_new_and_keeps_its_pins() -> None:
    world = fleet(cluster("a", pool("p", 4, class_missing=True)))
    assert codes(decided(world, deployment())) == {"NoPoolMatches": 1}
    view = deployment(name="old")
    put_replicas(world, view, "a/0")
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_filters_are_counted_under_the_first_that_fails() -> None:
    broken = cluster("a", 1, labels=EU, ready=False, gateway_address="", taints=["x:NoSchedule"])
    world = fleet(broken)
    fixes: list[dict[str, Any]] = [{"labels": US}, {"ready": True}, {"gateway_address": "a"}, {"taints": ()}]
    seen = []
    for fix in fixes:
        seen.append(next(iter(codes(decided(world, deployment(match_labels=US))))))
        broken = replace(broken, **fix)
        world.put_cluster(broken)
    assert seen == ["LabelMismatch", "NotReady", "NoGateway", "Tainted"]
    assert places(decided(world, deployment(match_labels=US))) == ["a/0"]


def test_a_taint_keeps_the_time_it_was_first_seen() -> None:
    world = fleet(cluster("a", 1, taints=["x:NoExecute"]), now=1000)
    world.put_cluster(cluster("a", 2, taints=["x:NoExecute", "y:NoSchedule"]), 2000)
    view = world.cluster("a")
    assert view is not None
    assert {t.key: t.since for t in view.taints} == {"x": 1000, "y": 2000}
    assert taint("x:NoExecute") == view.taints[0]
