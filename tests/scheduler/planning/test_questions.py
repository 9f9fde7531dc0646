"""Questions that a plan answers: headroom, the cheapest cluster to add, a check before
a drain.
"""

import pytest

from scheduler.model.inputs import CacheView
from scheduler.model.policy import PlacementPolicy, SchedulerOptions
from scheduler.planning.questions import (
    Headroom,
    can_drain,
    cluster_of_class,
    headroom,
    offers,
)
from tests.scheduler.builders import (
    NOW,
    cluster,
    deployment,
    engine,
    fleet,
    gpu,
    pool,
    put_replicas,
    tolerate,
)
from tests.scheduler.planning.test_whatif import two_clusters


def test_a_drain_check_names_the_deployments_that_would_fall_short() -> None:
    world = two_clusters()
    assert not can_drain(world, "a", [deployment(want=2)], NOW).possible
    assert can_drain(world, "b", [deployment(want=2)], NOW).possible
    with pytest.raises(KeyError, match="nowhere"):
        can_drain(world, "nowhere", [], NOW)


def test_a_drain_check_names_the_replicas_that_are_not_evicted() -> None:
    """One tolerates the drain; of another one only the replica is known."""
    world = two_clusters()
    tolerant = deployment(name="tolerant", tolerations=(tolerate(),))
    put_replicas(world, tolerant, "b/0")
    put_replicas(world, deployment(name="orphan"), "b/1")
    check = can_drain(world, "b", [deployment(want=2), tolerant], NOW)
    assert [(entry.deployment, tolerates) for entry, tolerates in check.stays] == [
        ("orphan", False),
        ("tolerant", True),
    ]


@pytest.mark.slow
def test_headroom_is_the_largest_count_that_fits() -> None:
    world = two_clusters()
    found = headroom(world, deployment(want=2), NOW)
    assert (found.replicas, found.clusters) == (5, {"a": 4, "b": 1})
    assert "5 of 6 replicas scheduled" in found.message
    assert (
        headroom(world, deployment(engine(copies=3), name="other"), NOW).replicas == 1
    )
    assert headroom(fleet(cluster("a", 2000)), deployment(want=1), NOW) == Headroom(
        1000, {"a": 1000}, ""
    )


def test_headroom_preempts_no_replica() -> None:
    options = SchedulerOptions(priority_classes={"gold": 100})
    world = fleet(cluster("a", 2), options=options)
    put_replicas(world, deployment(name="low", want=2), "a/0", "a/1")
    gold = deployment(
        policy=PlacementPolicy(priority_class="gold", preemption="LowerPriority")
    )
    assert headroom(world, gold, NOW).replicas == 0


def test_the_cheapest_sufficient_offer_wins() -> None:
    choice = [
        cluster("dear", pool("p", 9, price_milli=5000)),
        cluster("cheap", pool("p", 9, price_milli=100)),
        cluster("tiny", pool("p", 1, price_milli=1)),
        cluster("wrong", pool("p", 9, gpu("24Gi"), price_milli=1)),
        cluster("unknown", pool("p", 9)),
        cluster("free", pool("p", 9, price_milli=0)),
    ]
    assert not any(
        each.enough for each in offers(fleet(), deployment(want=99), choice, NOW)[1]
    )
    missing, ranked = offers(fleet(), deployment(want=3), choice, NOW)
    assert (
        missing,
        [(each.view.name, each.placed, each.cost_milli, each.nodes) for each in ranked],
    ) == (
        3,
        [
            ("free", 3, 0, {"p": 3}),
            ("cheap", 3, 300, {"p": 3}),
            ("dear", 3, 15_000, {"p": 3}),
            ("unknown", 3, -1, {"p": 3}),
            ("tiny", 1, 1, {"p": 1}),
            ("wrong", 0, 0, {}),
        ],
    )


def test_an_offer_costs_only_the_missing_replicas() -> None:
    """Two of three fit the existing clusters; with the offer they would spread, but
    they need not.
    """
    world = fleet(cluster("a", 2))
    missing, (offer,) = offers(
        world, deployment(want=3), [cluster("b", pool("p", 9, price_milli=100))], NOW
    )
    assert (missing, offer.placed, offer.nodes, offer.cost_milli) == (
        1,
        1,
        {"p": 1},
        100,
    )
    assert offers(world, deployment(want=2), [cluster("b", 9)], NOW) == (0, ())


def test_a_class_offers_a_cluster_that_the_deployment_would_select() -> None:
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 8,
    }
    manifest = {
        "metadata": {
            "name": "h200",
            "annotations": {"modelplane.ai/price-per-node-hour": "1.5"},
        },
        "spec": {"devices": [{**device, "capacity": {"memory": {"value": "141Gi"}}}]},
    }
    picky = deployment(
        want=4,
        match_labels={"tier": "gold"},
        cache=CacheView("Present", "weights", {"site": "x"}),
    )
    missing, (offer,) = offers(fleet(), picky, [cluster_of_class(manifest, picky)], NOW)
    assert (missing, offer.view.name, offer.enough, offer.nodes, offer.cost_milli) == (
        4,
        "class/h200",
        True,
        {"h200": 4},
        6000,
    )
