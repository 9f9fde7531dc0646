"""Profiles, constraints, quotas and network domains."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.decide import apply, decide
from scheduler.model.inputs import (
    CacheView,
    ClusterView,
    DeploymentView,
    EngineView,
    ScheduleRequest,
)
from scheduler.model.policy import (
    AffinityTerm,
    PlacementPolicy,
    Quota,
    SchedulerOptions,
    SpreadConstraint,
)
from tests.scheduler.builders import (
    NOW,
    actions,
    alone,
    ask,
    at_least,
    bind_all,
    cluster,
    codes,
    condition,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    leader,
    message,
    places,
    pool,
    pools_of,
    put_replicas,
    settled,
    worker,
)

ANY = engine("main", alone(ask(at_least("1Gi"))))


def with_profile(name: str, *engines: EngineView, **fields: Any) -> DeploymentView:
    return deployment(
        *(engines or (ANY,)), policy=PlacementPolicy(profile=name), **fields
    )


@pytest.mark.parametrize(
    ("profile", "want"),
    [("dense", "a/0"), ("balanced", "b/0"), ("default", "a/0")],
    ids=lambda v: f"162 {v}",
)
def test_packing_and_balancing_compare_free_nodes(profile: str, want: str) -> None:
    world = fleet(cluster("a", 50), cluster("b", 50))
    put_replicas(world, deployment(engine(copies=40), name="other"), "a/0")
    assert places(decided(world, with_profile(profile))) == [want]


def test_balancing_prefers_the_next_cluster_as_one_fills() -> None:
    world = fleet(cluster("a", 4), cluster("b", 10))
    assert places(decided(world, with_profile("balanced", want=4))) == [
        "a/0",
        "a/1",
        "b/0",
        "b/1",
    ]
    packed = decided(world, with_profile("dense", want=6))
    assert places(packed) == ["a/0", "a/1", "a/2", "a/3", "b/0", "b/1"]


def test_the_cheaper_pool_is_taken_where_both_fit() -> None:
    pools = (
        pool("h200", 4, gpu("141Gi"), price_milli=40_000),
        pool("l4", 4, gpu("24Gi"), price_milli=900),
    )
    assert pools_of(decided(fleet(cluster("a", *pools)), with_profile("cheap"))) == [
        "l4"
    ]
    assert pools_of(decided(fleet(cluster("a", *pools)), with_profile("default"))) == [
        "h200"
    ]


def test_an_unknown_price_comes_after_every_known_one() -> None:
    world = fleet(
        cluster("a", pool("p", 4)), cluster("b", pool("p", 4, price_milli=90_000))
    )
    assert places(decided(world, with_profile("cheap", want=5))) == [
        "a/0",
        "b/0",
        "b/1",
        "b/2",
        "b/3",
    ]


def test_other_profiles_keep_large_devices_free_for_engines_that_need_them() -> None:
    pools = (pool("h200", 4, gpu("141Gi")), pool("l4", 4, gpu("24Gi")))
    assert pools_of(decided(fleet(cluster("a", *pools)), with_profile("balanced"))) == [
        "l4"
    ]


def test_staged_weights_attract() -> None:
    clusters = (
        cluster("a", 4, cache_storage_class="rwx"),
        cluster("b", 4, cache_storage_class="rwx"),
    )
    cache = CacheView("Present", "w", phases={"a": "Hydrating", "b": "Ready"})
    assert places(decided(fleet(*clusters), with_profile("near", cache=cache))) == [
        "b/0"
    ]


def test_a_required_cache_keeps_replicas_off_clusters_without_it() -> None:
    clusters = (
        cluster("a", 4, cache_storage_class="rwx"),
        cluster("b", 1, cache_storage_class="rwx"),
    )
    cache = CacheView("Present", "w", phases={"a": "Hydrating", "b": "Ready"})
    decision = decided(
        fleet(*clusters),
        deployment(want=2, cache=cache, policy=PlacementPolicy(cache_required="Ready")),
    )
    assert places(decision) == ["b/0"]
    assert "1 violated cacheRequired: ModelCache w is not Ready" in message(decision)


def test_the_resilient_profile_spreads_over_regions_first() -> None:
    region = {"modelplane.ai/region": "us"}
    world = fleet(
        cluster("a", 4, labels=region),
        cluster("b", 4, labels=region),
        cluster("c", 4, labels={"modelplane.ai/region": "eu"}),
    )
    assert places(decided(world, with_profile("resilient", want=2))) == ["a/0", "c/0"]


def zoned(**nodes: int) -> list[ClusterView]:
    return [
        cluster(name, count, labels={"zone": name}) for name, count in nodes.items()
    ]


def spread(want: int, **fields: Any) -> DeploymentView:
    rule = SpreadConstraint("zone", **fields)
    return deployment(want=want, policy=PlacementPolicy(topology_spread=(rule,)))


def test_replicas_stay_even_over_zones() -> None:
    world = fleet(*zoned(x=9, y=9, z=9))
    assert places(decided(world, spread(4))) == ["x/0", "x/1", "y/0", "z/0"]


def test_a_full_zone_blocks_a_required_spread_but_not_a_preferred_one() -> None:
    world = fleet(*zoned(x=9, y=9, z=0))
    hard = decided(world, spread(4))
    assert (places(hard), hard.shortfall) == (["x/0", "y/0"], 2)
    assert "2 violated topology spread over zone" in message(hard)
    soft = decided(world, spread(4, when_unsatisfiable="ScheduleAnyway"))
    assert places(soft) == ["x/0", "x/1", "y/0", "y/1"]


def test_a_cluster_without_the_label_fails_a_required_spread() -> None:
    world = fleet(cluster("a", 9), *zoned(x=9))
    assert places(decided(world, spread(2, max_skew=5))) == ["x/0", "x/1"]


def test_too_few_domains_count_as_empty_ones() -> None:
    world = fleet(*zoned(x=9, y=9))
    assert len(places(decided(world, spread(6, min_domains=3)))) == 2


def apart(name: str, **fields: Any) -> DeploymentView:
    policy = PlacementPolicy(anti_affinity=(AffinityTerm({"app": "big"}),))
    return deployment(name=name, labels={"app": "big"}, policy=policy, **fields)


def test_deployments_with_anti_affinity_never_share_a_domain() -> None:
    world = fleet(cluster("a", 9), cluster("b", 9))
    assert places(settled(world, apart("one"))) == ["a/0"]
    assert places(settled(world, apart("two"))) == ["b/0"]
    third = decided(world, apart("three"))
    assert (places(third), codes(third)) == ([], {"Policy": 2})


def test_anti_affinity_of_one_deployment_binds_the_other_too() -> None:
    world = fleet(cluster("a", 9), cluster("b", 9))
    settled(world, apart("one"))
    silent = deployment(name="silent", labels={"app": "big"})
    assert places(decided(world, silent)) == ["b/0"]
    assert places(
        decided(world, deployment(name="other", labels={"app": "small"}))
    ) == ["a/0"]


def test_anti_affinity_reaches_over_a_domain() -> None:
    world = fleet(
        cluster("a", 9, labels={"zone": "x"}),
        cluster("b", 9, labels={"zone": "x"}),
        cluster("c", 9, labels={"zone": "y"}),
    )
    policy = PlacementPolicy(anti_affinity=(AffinityTerm({"app": "big"}, "zone"),))
    view = deployment(want=3, labels={"app": "big"}, policy=policy)
    assert places(decided(world, view)) == ["a/0", "c/0"]


def near(name: str, labels: dict[str, str]) -> DeploymentView:
    return deployment(
        name=name,
        want=2,
        labels=labels,
        policy=PlacementPolicy(affinity=(AffinityTerm({"app": "x"}),)),
    )


def test_affinity_needs_a_matching_replica_and_exempts_the_first_of_its_own_group() -> (
    None
):
    world = fleet(cluster("a", 9), cluster("b", 9))
    assert places(decided(world, near("alone", {"app": "y"}))) == []
    assert places(settled(world, near("group", {"app": "x"}))) == ["a/0", "a/1"]
    assert places(decided(world, near("joins", {"app": "y"}))) == ["a/0", "a/1"]


def test_a_preference_orders_but_never_rejects() -> None:
    world = fleet(cluster("a", 1), cluster("b", 1))
    settled(
        world, deployment(engine("main", alone(ask(at_least("999Gi")))), name="nothing")
    )
    put_replicas(
        world,
        deployment(name="friend", labels={"app": "x"}),
        "b/0",
        labels=(("app", "x"),),
        state="Bound",
    )
    world.put_cluster(cluster("b", 2))
    policy = PlacementPolicy(affinity=(AffinityTerm({"app": "x"}, weight=10),))
    assert places(decided(world, deployment(want=2, policy=policy))) == ["a/0", "b/0"]
    assert places(decided(world, deployment(want=1, policy=policy))) == ["b/0"]


QUOTA_8 = SchedulerOptions(quotas=(Quota("ml", max_nodes=8),))


def test_a_namespace_at_its_quota_places_nothing_and_keeps_running_replicas() -> None:
    world = fleet(cluster("a", 20), options=QUOTA_8)
    settled(world, deployment(want=8, name="first"))
    decision = decided(world, deployment())
    assert places(decision) == []
    assert "1 were over quota (used 8 of 8 nodes, needs 1 more)" in message(decision)
    assert set(
        actions(
            decided(world, deployment(want=8, name="first"), request_id="2")
        ).values()
    ) == {"Keep"}
    assert places(decided(world, deployment(namespace="other"))) == ["a/0"]


def test_a_quota_counts_placements_of_the_same_decision() -> None:
    world = fleet(cluster("a", 20), options=QUOTA_8)
    assert len(places(decided(world, deployment(engine(copies=3), want=5)))) == 2


def test_a_quota_blocks_growth() -> None:
    world = fleet(cluster("a", 20), options=QUOTA_8)
    put_replicas(world, deployment(engine(copies=4)), "a/0")
    decision = decided(world, deployment(engine(copies=9), template="v2"))
    assert condition(decision, "ResizeBlocked") == ("True", "ResizeBlocked")


def test_a_drained_replica_does_not_block_its_successor() -> None:
    world = fleet(
        cluster("a", 20, taints=["x:NoExecute"]),
        cluster("b", 20),
        options=SchedulerOptions(quotas=(Quota("ml", max_nodes=1),)),
    )
    put_replicas(world, deployment(), "a/0")
    assert actions(decided(world, deployment())) == {"b/0": "Create"}


def test_a_replacement_does_not_count_twice_against_a_quota() -> None:
    world = fleet(
        cluster("a", 20), options=SchedulerOptions(quotas=(Quota("ml", max_nodes=1),))
    )
    put_replicas(world, deployment(engine("old")), "a/0")
    assert actions(decided(world, deployment(engine("new"), template="v2"))) == {
        "a/0": "Replace"
    }


QUOTAS = [
    ("devices", Quota("ml", max_devices=4), 4),
    ("another class", Quota("ml", max_nodes=0, class_name="b200"), 9),
    ("this class", Quota("ml", max_nodes=2, class_name="h200"), 2),
    ("clusters elsewhere", Quota("ml", max_nodes=0, match_labels={"region": "eu"}), 9),
    (
        "devices of a kind",
        Quota("ml", max_nodes=3, device_selector=at_least("100Gi")),
        3,
    ),
    ("priority too low", Quota("ml", priority_floor=10), 0),
    ("no limit", Quota("ml"), 9),
]


@pytest.mark.parametrize(
    ("story", "quota", "count"), QUOTAS, ids=[row[0] for row in QUOTAS]
)
def test_a_quota_applies_only_to_its_pools(
    story: str, quota: Quota, count: int
) -> None:
    del story
    world = fleet(
        cluster("a", pool("p", 9, class_name="h200"), labels={"region": "us"}),
        options=SchedulerOptions(quotas=(quota,)),
    )
    assert len(places(decided(world, deployment(want=9)))) == count


DOMAINS = (
    pool("u", 3, network_domain="ib-1"),
    pool("v", 2, network_domain="ib-2"),
    pool("w", 3, network_domain="ib-2"),
)
SPLIT = (
    engine("prefill", copies=3, phase="Prefill"),
    engine("decode", copies=2, phase="Decode"),
)


def split(policy: str) -> DeploymentView:
    return deployment(
        *SPLIT,
        serving_mode="PrefillDecode",
        policy=PlacementPolicy(network_domain=policy),
    )


@pytest.mark.parametrize(
    ("policy", "want"),
    [("Ignore", ["u", "v"]), ("Required", ["w", "v"]), ("Preferred", ["w", "v"])],
    ids=lambda v: f"170 {v}",
)
def test_engines_that_transfer_state_share_a_network(
    policy: str, want: list[str]
) -> None:
    assert pools_of(decided(fleet(cluster("a", *DOMAINS)), split(policy))) == want


def test_without_one_network_a_rule_rejects_but_a_preference_does_not() -> None:
    apart_pools = (
        pool("u", 3, network_domain="ib-1"),
        pool("v", 2, network_domain="ib-2"),
    )
    required = decided(fleet(cluster("a", *apart_pools)), split("Required"))
    assert (places(required), codes(required)) == ([], {"Policy": 1})
    assert "violated networkDomain: Required" in message(required)
    assert pools_of(decided(fleet(cluster("a", *apart_pools)), split("Preferred"))) == [
        "u",
        "v",
    ]


def test_a_network_is_preferred_only_for_engines_that_exchange_data() -> None:
    """Cluster a has no two pools in one network, b has."""
    apart = cluster(
        "a", pool("u", 3, network_domain="ib-1"), pool("v", 2, network_domain="ib-2")
    )
    world = fleet(apart, cluster("b", *DOMAINS[1:]))
    unified = deployment(
        *(replace(each, phase="") for each in SPLIT),
        policy=PlacementPolicy(network_domain="Preferred"),
    )
    assert places(decided(world, split("Preferred"))) == ["b/0"]
    assert places(decided(world, unified)) == ["a/0"]


def test_another_preference_does_not_prefer_a_network() -> None:
    apart = cluster(
        "a", pool("u", 3, network_domain="ib-1"), pool("v", 2, network_domain="ib-2")
    )
    policy = PlacementPolicy(affinity=(AffinityTerm({"app": "none"}, weight=1),))
    for profile in ("default", "balanced"):
        world = fleet(
            apart, cluster("b", *DOMAINS[1:]), options=SchedulerOptions(profile=profile)
        )
        view = deployment(*SPLIT, serving_mode="PrefillDecode", policy=policy)
        assert places(decided(world, view)) == places(
            decided(world, replace(view, policy=PlacementPolicy()))
        )


SPANNING = engine("main", leader(ask()), worker(3), span_pools=True)


def test_an_engine_that_may_span_uses_pools_of_one_network() -> None:
    pools = (
        pool("u", 1, network_domain="ib-1"),
        pool("v", 3, network_domain="ib-2"),
        pool("w", 1, network_domain="ib-2"),
    )
    decision = decided(fleet(cluster("a", *pools)), deployment(SPANNING))
    assert [m.pool for e in decision.placements[0].engines for m in e.members] == [
        "w",
        "v",
    ]
    assert len(decision.placements[0].engines) == 1
    assert (
        places(
            decided(
                fleet(cluster("a", *pools)),
                deployment(replace(SPANNING, span_pools=False)),
            )
        )
        == []
    )


def test_without_one_network_an_engine_does_not_span() -> None:
    pools = (pool("v", 3, network_domain="ib-1"), pool("w", 1, network_domain="ib-2"))
    decision = decided(fleet(cluster("a", *pools)), deployment(SPANNING))
    assert (places(decision), codes(decision)) == ([], {"Policy": 1})


TWO_NETWORKS = (
    pool("u", 4, network_domain="x"),
    pool("v", 1, network_domain="y"),
    pool("w", 3, network_domain="y"),
)


def spans(name: str, workers: int) -> EngineView:
    return engine(name, leader(ask()), worker(workers), span_pools=True)


@pytest.mark.parametrize("accounting", ["node", "device-safe"])
def test_each_spanning_engine_has_its_own_network(
    accounting: str,
) -> None:
    world = fleet(
        cluster("a", *TWO_NETWORKS), options=SchedulerOptions(accounting=accounting)
    )
    members = alone(ask(count=8)).requests
    whole = [
        replace(each, members=tuple(replace(m, requests=members) for m in each.members))
        for each in (spans("e", 3), spans("f", 3))
    ]
    decision = decided(world, deployment(*whole))
    assert [m.pool for e in decision.placements[0].engines for m in e.members] == [
        "u",
        "u",
        "v",
        "w",
    ]


def test_a_network_preference_yields_before_a_spanning_engine_is_rejected() -> None:
    world = fleet(cluster("a", *TWO_NETWORKS))
    policy = PlacementPolicy(network_domain="Preferred")
    wants = deployment(
        spans("prefill", 3),
        engine("decode", copies=4),
        serving_mode="PrefillDecode",
        policy=policy,
    )
    assert [
        m.pool for e in decided(world, wants).placements[0].engines for m in e.members
    ] == ["v", "w", "u"]


def test_a_spanning_engine_stays_and_is_charged_pool_by_pool() -> None:
    world = fleet(
        cluster(
            "a", pool("v", 3, network_domain="ib"), pool("w", 1, network_domain="ib")
        )
    )
    settled(world, deployment(SPANNING))
    assert world.free("a") == {"v": 0, "w": 0}
    assert actions(decided(world, deployment(SPANNING), request_id="2")) == {
        "a/0": "Keep"
    }


def test_a_claimless_leader_of_a_spanning_engine_needs_a_worker_that_claims() -> None:
    synthetic = engine("main", leader(), worker(1), span_pools=True)
    world = fleet(cluster("a", pool("p", 2, gpu(claim="Synthetic"))))
    assert places(decided(world, deployment(synthetic))) == []


@pytest.mark.parametrize("profile", ["dense", "cheap", "balanced"])
def test_another_scoring_rule_moves_no_placed_replica(profile: str) -> None:
    rule = SchedulerOptions(profile=profile)
    views = [
        cluster(name, pool("p", nodes, price_milli=price))
        for name, nodes, price in (("a", 6, 9), ("b", 4, 1), ("c", 9, 5))
    ]
    models = [
        deployment(name=name, want=want)
        for name, want in (("one", 2), ("two", 3), ("three", 1))
    ]
    world = fleet(*views)
    before = [sorted(places(settled(world, model))) for model in models]
    bind_all(world)
    empty = fleet(*views, options=rule)
    assert [sorted(places(settled(empty, model))) for model in models] != before
    world.set_options(rule)
    again = [decided(world, model, request_id="2") for model in models]
    assert [sorted(places(decision)) for decision in again] == before
    assert all(
        set(actions(decision).values()) == {"Keep"} and not decision.evictions
        for decision in again
    )


def test_a_rule_of_one_deployment_makes_no_cluster_full_for_another() -> None:
    world = fleet(
        cluster(
            "a",
            pool("u", 3, network_domain="ib-1"),
            pool("v", 2, network_domain="ib-2"),
        )
    )
    assert places(decided(world, split("Required"))) == []
    assert places(decided(world, split("Ignore"))) == ["a/0"]


def test_gang_replicas_are_placed_together_or_not_at_all() -> None:
    view = deployment(want=4, policy=PlacementPolicy(gang_replicas=2))
    for nodes, placed in ((3, 2), (1, 0)):
        world = fleet(cluster("a", nodes))
        requests = [
            ScheduleRequest("1", view),
            ScheduleRequest("2", deployment(name="next", want=nodes)),
        ]
        groups, single = decide(world, requests, NOW)
        # Nodes that were given on trial to a gang that does not fit are free for the
        # next request.
        assert (len(places(groups)), len(places(single))) == (placed, nodes - placed)
        apply(world, groups, view)
        assert (world.audit(), world.free("a")) == ([], {"p": nodes - placed})


def test_an_unknown_profile_is_the_default() -> None:
    assert places(
        decided(fleet(cluster("a", 1)), replace(with_profile("fancy"), replicas=1))
    ) == ["a/0"]


@pytest.mark.parametrize(
    ("weights", "placed"),
    [
        ({"cost": 1}, "c/0"),
        ({"free": 1}, "a/0"),
        ({"free": 5, "cost": 1}, "a/0"),
        ({"free": 1, "cost": 5}, "c/0"),
        ({"free": 5, "cost": 6}, "b/0"),
    ],
    ids=str,
)
def test_weighted_functions_add_up(weights: dict[str, int], placed: str) -> None:
    """On `a` most is free and expensive, on `c` least and cheap; `b` is nearly the best
    in both.
    """
    options = SchedulerOptions(profile="weighted", weights=weights)
    views = [
        cluster(name, pool("p", 10, price_milli=price))
        for name, price in (("a", 100), ("b", 30), ("c", 10))
    ]
    world = fleet(*views, options=options)
    for name, used in (("b", 2), ("c", 8)):
        put_replicas(
            world, deployment(name=f"old-{name}"), *(f"{name}/{i}" for i in range(used))
        )
    assert places(decided(world, deployment())) == [placed]


def test_equal_sums_are_decided_in_the_order_of_weights_then_by_name() -> None:
    options = SchedulerOptions(profile="weighted", weights={"spread": 1, "cost": 1})
    world = fleet(
        *(cluster(name, pool("p", 4, price_milli=5)) for name in ("b", "a")),
        options=options,
    )
    assert places(decided(world, deployment(want=3))) == ["a/0", "a/1", "b/0"]
