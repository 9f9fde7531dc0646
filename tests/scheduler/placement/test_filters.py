"""Which clusters are candidates at all."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.fleet.manifests import cluster_view
from scheduler.model.inputs import (
    CacheView,
    ClusterTaint,
    ClusterToleration,
    ClusterView,
)
from tests.scheduler.builders import (
    NOW,
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


def test_no_clusters() -> None:
    decision = decided(fleet(), deployment())
    assert (places(decision), condition(decision)) == ([], ("False", "NoClusters"))


@pytest.mark.parametrize(
    ("story", "view", "code"),
    [
        ("not Ready", cluster("a", 1, ready=False), "NotReady"),
        ("no gateway", cluster("a", 1, gateway_address=""), "NoGateway"),
        ("being deleted", cluster("a", 1, deleting=True), "Deleting"),
        ("no pools", cluster("a"), "NoPools"),
        (
            "not accounted for after a restart",
            cluster("a", 1, accounted=False),
            "NotReady",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cluster_that_cannot_take_replicas_says_why(
    story: str, view: ClusterView, code: str
) -> None:
    del story
    decision = decided(fleet(view), deployment())
    assert (places(decision), codes(decision)) == ([], {code: 1})


@pytest.mark.parametrize(
    "status",
    [None, "Unknown", "False", "true"],
    ids=lambda status: f"Ready is {status}",
)
def test_only_the_exact_true_is_ready(status: str | None) -> None:
    conditions = [] if status is None else [{"type": "Ready", "status": status}]
    assert not cluster_view(
        {"metadata": {"name": "a"}, "status": {"conditions": conditions}}
    ).ready


def test_the_deployments_selector_chooses() -> None:
    world = fleet(cluster("a", 1, labels=US), cluster("b", 1, labels=EU))
    assert places(decided(world, deployment(match_labels=US, want=2))) == ["a/0"]


def test_deployment_and_cache_selectors_both_hold() -> None:
    world = fleet(
        cluster("a", 1, labels=US, cache_storage_class="rwx"),
        cluster("b", 1, labels={**US, "tier": "gpu"}, cache_storage_class="rwx"),
        cluster("c", 1, labels={"tier": "gpu"}, cache_storage_class="rwx"),
    )
    cache = CacheView("Present", "weights", {"tier": "gpu"})
    assert places(decided(world, deployment(match_labels=US, cache=cache))) == ["b/0"]


def test_selectors_that_exclude_each_other_leave_nothing() -> None:
    world = fleet(
        cluster("a", 1, labels=US, cache_storage_class="rwx"),
        cluster("b", 1, labels=EU, cache_storage_class="rwx"),
    )
    decision = decided(
        world, deployment(match_labels=US, cache=CacheView("Present", "weights", EU))
    )
    assert codes(decision) == {"LabelMismatch": 1, "CacheFootprint": 1}
    assert condition(decision) == ("False", "NoClusters")
    assert "1 didn't match clusterSelector" in message(decision)
    assert "1 are outside ModelCache weights's footprint" in message(decision)


UNRESOLVED = CacheView("Unresolved", "weights")
ABSENT = CacheView("Absent", "weights")


def test_a_cache_that_is_not_read_yet_holds_new_replicas() -> None:
    decision = decided(fleet(cluster("a", 1)), deployment(cache=UNRESOLVED))
    assert places(decision) == []
    assert condition(decision, "ModelCacheResolved") == (
        "False",
        "ModelCacheUnresolved",
    )


def test_an_absent_cache_keeps_running_replicas_and_warns() -> None:
    world = fleet(cluster("a", 1))
    view = deployment(cache=ABSENT)
    put_replicas(world, view, "a/0")
    decision = decided(world, view)
    assert actions(decision) == {"a/0": "Keep"}
    assert decision.placements[0].gateway_address == "a.example"
    assert condition(decision, "ModelCacheResolved") == ("False", "ModelCacheNotFound")


def test_a_held_fill_adds_no_replicas_to_placed_ones() -> None:
    world = fleet(cluster("a", 4))
    view = deployment(cache=UNRESOLVED, want=3)
    put_replicas(world, view, "a/0")
    assert (places(decided(world, view)), decided(world, view).shortfall) == (
        ["a/0"],
        2,
    )


def test_no_schedule_refuses_new_and_keeps_old() -> None:
    world = fleet(cluster("a", 4, taints=["gpu:NoSchedule"]), cluster("b", 4))
    assert places(decided(world, deployment())) == ["b/0"]
    view = deployment(name="old")
    put_replicas(world, view, "a/0")
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_a_toleration_of_the_key_admits() -> None:
    world = fleet(cluster("a", 1, taints=["gpu=x:NoSchedule"]))
    assert places(decided(world, deployment(tolerations=(tolerate("gpu"),)))) == ["a/0"]


@pytest.mark.parametrize(
    ("story", "nodes", "tolerations", "want", "shortfall"),
    [
        ("drained, another is free", 1, (), ["b/0"], 0),
        ("drained, nothing is free", 0, (), [], 1),
        ("tolerated", 1, (tolerate("drain"),), ["a/0"], 0),
        (
            "a toleration of the other effect does not help",
            1,
            (tolerate("drain", effect="NoSchedule"),),
            ["b/0"],
            0,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_execute_evicts(
    story: str,
    nodes: int,
    tolerations: tuple[ClusterToleration, ...],
    want: list[str],
    shortfall: int,
) -> None:
    del story
    world = fleet(cluster("a", 4, taints=["drain:NoExecute"]), cluster("b", nodes))
    view = deployment(tolerations=tolerations)
    uids = put_replicas(world, view, "a/0")
    decision = decided(world, view)
    assert (places(decision), decision.shortfall) == (want, shortfall)
    assert evicted(decision) == ({} if want == ["a/0"] else {uids[0]: "Drained"})


MATCHES = [
    ("equal value", "on", ClusterToleration("k", "Equal", "on"), True),
    ("other value", "off", ClusterToleration("k", "Equal", "on"), False),
    ("neither has a value", "", ClusterToleration("k"), True),
    ("the taint alone has a value", "on", ClusterToleration("k"), False),
    ("Exists without key", "on", ClusterToleration("", "Exists"), True),
    ("Exists with another key", "on", ClusterToleration("other", "Exists"), False),
    ("Exists ignores the value", "on", ClusterToleration("k", "Exists", "off"), True),
    (
        "Equal without key matches nothing",
        "on",
        ClusterToleration("", "Equal", "on"),
        False,
    ),
]


@pytest.mark.parametrize(
    ("story", "value", "toleration", "admitted"),
    MATCHES,
    ids=[row[0] for row in MATCHES],
)
def test_tolerations_match_as_in_kubernetes(
    story: str, value: str, toleration: ClusterToleration, admitted: bool
) -> None:
    del story
    world = fleet(cluster("a", 1, taints=[ClusterTaint("k", value, "NoSchedule")]))
    assert places(decided(world, deployment(tolerations=(toleration,)))) == (
        ["a/0"] if admitted else []
    )


def test_every_taint_needs_a_toleration() -> None:
    world = fleet(cluster("a", 1, taints=["one:NoSchedule", "two:NoSchedule"]))
    decision = decided(world, deployment(tolerations=(tolerate("one"),)))
    assert decision.diagnosis.groups[0].text == "had untolerated taint {two:NoSchedule}"


@pytest.mark.parametrize(
    ("taints", "kept"),
    [
        (["on:NoSchedule", "off:NoExecute"], False),
        (["off:NoSchedule", "on:NoExecute"], True),
    ],
    ids=["only NoSchedule tolerated: dropped", "only NoExecute tolerated: kept"],
)
def test_a_partly_tolerated_cluster_keeps_a_replica_unless_no_execute_is_left(
    taints: list[str], kept: bool
) -> None:
    world = fleet(cluster("a", 1, taints=taints))
    view = deployment(tolerations=(tolerate("on"),))
    put_replicas(world, view, "a/0")
    assert places(decided(world, view)) == (["a/0"] if kept else [])


def test_a_cluster_that_cannot_stage_takes_no_replica_with_a_cache() -> None:
    world = fleet(cluster("a", 1), cluster("b", 1, cache_storage_class="rwx"))
    decision = decided(world, deployment(cache=CacheView("Present", "weights"), want=2))
    assert places(decision) == ["b/0"]
    assert codes(decision)["CacheIncapable"] == 1
    assert places(decided(world, deployment())) == ["a/0"]


def test_a_pool_whose_class_is_missing_takes_nothing_new_and_keeps_its_pins() -> None:
    world = fleet(cluster("a", pool("p", 4, class_missing=True)))
    assert codes(decided(world, deployment())) == {"NoPoolMatches": 1}
    view = deployment(name="old")
    put_replicas(world, view, "a/0")
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_an_unusable_pool_takes_nothing_new_and_keeps_its_pins() -> None:
    world = fleet(cluster("a", pool("p", 4, unusable="its driver is missing")))
    assert codes(decided(world, deployment())) == {"NoPoolMatches": 1}
    view = deployment(name="old")
    put_replicas(world, view, "a/0")
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_a_cluster_that_lacks_a_feature_takes_no_replica_that_uses_it() -> None:
    lacking = cluster("a", 1, missing_features=("dataParallel", "modelNames"))
    world = fleet(lacking, cluster("b", 1, missing_features=("modelNames",)))
    ranks = ("inferencePools", "dataParallel")
    decision = decided(world, deployment(features=ranks, want=2))
    assert places(decision) == ["b/0"]
    assert codes(decision)["FeatureMissing"] == 1
    assert (
        "1 lack dataParallel (dataParallel needs InferencePool "
        "(inference.networking.k8s.io/v1) with several targetPorts: install"
    ) in message(decision)
    assert places(decided(world, deployment(want=2))) == ["a/0", "b/0"]


def test_a_replica_stays_where_a_feature_was_removed() -> None:
    world = fleet(cluster("a", 1, missing_features=("dataParallel",)))
    view = deployment(name="old", features=("dataParallel",))
    put_replicas(world, view, "a/0")
    assert actions(decided(world, view)) == {"a/0": "Keep"}


def test_a_feature_that_is_installed_again_admits_replicas() -> None:
    world = fleet(cluster("a", 1, missing_features=("dataParallel",)))
    view = deployment(features=("dataParallel",))
    assert places(decided(world, view)) == []
    world.put_cluster(cluster("a", 1), NOW)
    assert places(decided(world, view)) == ["a/0"]


def test_filters_are_counted_under_the_first_that_fails() -> None:
    broken = cluster(
        "a", 1, labels=EU, ready=False, gateway_address="", taints=["x:NoSchedule"]
    )
    world = fleet(broken)
    fixes: list[dict[str, Any]] = [
        {"labels": US},
        {"ready": True},
        {"gateway_address": "a"},
        {"taints": ()},
    ]
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
