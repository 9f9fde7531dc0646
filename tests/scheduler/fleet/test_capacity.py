"""Placement under the observations of capacity adapters."""

import pytest

from scheduler.decide import decide_and_explain
from scheduler.explain.cluster_report import PoolDetail
from scheduler.fleet.capacity import observed_limit
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.manifests import cluster_view
from scheduler.model.inputs import ClusterView, PoolObservation, ScheduleRequest
from scheduler.model.policy import SchedulerOptions
from tests.scheduler.builders import (
    NOW,
    actions,
    cluster,
    condition,
    decided,
    deployment,
    engine,
    fleet,
    message,
    places,
    pool,
    put_replicas,
    settled,
)


def seen(nodes: int = 4, **fields: int) -> ClusterView:
    return cluster(
        "a",
        pool("p", nodes, observed=PoolObservation(**{"observed_at": NOW, **fields})),
    )


def explained(world: Fleet, now: int = NOW) -> PoolDetail:
    """Return the report of the only pool for one more replica."""
    (found,) = decide_and_explain(
        world, [ScheduleRequest("why", deployment(name="next"))], now
    )
    return found.clusters["a"].pools["p"]


def test_with_fewer_nodes_than_declared_the_third_replica_is_rejected() -> None:
    world = fleet(seen(schedulable=2))
    decision = settled(world, deployment(want=3))
    assert (places(decision), decision.shortfall) == (["a/0", "a/1"], 1)
    assert "0 free on a/p" in message(decision)
    assert explained(world) == PoolDetail(
        "ObservedCapacity", "engine main: needs 1, 0 observed free of 2 declared free"
    )


def test_nodes_that_the_autoscaler_may_add_count() -> None:
    assert (
        len(places(decided(fleet(seen(schedulable=1, growable=2)), deployment(want=4))))
        == 3
    )


def test_more_nodes_than_declared_are_not_used() -> None:
    assert (
        len(places(decided(fleet(seen(nodes=2, schedulable=9)), deployment(want=4))))
        == 2
    )


def test_a_queue_limits_only_charges_it_has_not_admitted() -> None:
    world = fleet(seen(queue_free=1, admitted=2))
    put_replicas(world, deployment(name="x", want=2), "a/0", "a/1")
    assert len(places(decided(world, deployment(want=4)))) == 1


def test_a_snapshot_that_is_too_old_is_ignored() -> None:
    world = fleet(seen(schedulable=1))
    limit = world.options.observed_limit_seconds * 1000
    assert len(places(decided(world, deployment(want=4), NOW + limit))) == 1
    assert len(places(decided(world, deployment(want=4), NOW + limit + 1))) == 4
    assert explained(world, NOW + limit) == PoolDetail(
        "ObservedCapacity", "engine main: needs 1, 0 observed free of 3 declared free"
    )
    assert explained(world, NOW + limit + 1) == PoolDetail(
        "", "the observed capacity is stale and ignored"
    )


def test_a_pool_found_full_by_observation_is_tried_again_when_the_observation_is_old() -> (
    None
):
    world = fleet(seen(schedulable=0))
    assert places(decided(world, deployment())) == []
    assert places(decided(world, deployment(), NOW + 10**9)) == ["a/0"]


def test_lost_capacity_is_reported_and_moves_nothing() -> None:
    world = fleet(seen(schedulable=1))
    view = deployment(want=2)
    put_replicas(world, view, "a/0", "a/1")
    decision = decided(world, view)
    assert actions(decision) == {"a/0": "Keep", "a/1": "Keep"}
    assert condition(decision, "CapacityLost") == ("True", "CapacityLost")
    assert "2 nodes of a/p are charged, but only 1 exist" in message(
        decision, "CapacityLost"
    )


def test_the_observation_is_part_of_the_published_pool() -> None:
    observed = {
        "schedulable": 3,
        "growable": 1,
        "queueFree": 2,
        "admitted": 1,
        "observedAt": 5,
    }
    manifest = {
        "metadata": {"name": "a"},
        "status": {
            "gpuPools": [{"name": "p", "nodes": 4, "devices": [], "observed": observed}]
        },
    }
    assert cluster_view(manifest).pools[0].observed == PoolObservation(3, 1, 0, 2, 1, 5)


@pytest.mark.parametrize(
    ("nodes", "reason", "detail"),
    [
        (5, "InsufficientNodes", "engine main: needs 7, 3 free of 5"),
        (6, "InsufficientNodes", "engine main: needs 7, 3 free of 6"),
        (
            7,
            "ObservedCapacity",
            "engine main: needs 7, 3 observed free of 7 declared free",
        ),
        (
            8,
            "ObservedCapacity",
            "engine main: needs 7, 3 observed free of 8 declared free",
        ),
    ],
)
def test_the_observation_is_the_reason_if_the_declared_nodes_suffice(
    nodes: int, reason: str, detail: str
) -> None:
    request = ScheduleRequest("why", deployment(engine(copies=7)))
    (found,) = decide_and_explain(fleet(seen(nodes, schedulable=3)), [request], NOW)
    assert found.clusters["a"].pools["p"] == PoolDetail(reason, detail)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"schedulable": 7, "growable": 11}, 13),
        ({"schedulable": 3}, -2),
        ({"schedulable": 0}, -5),
        ({"queue_free": 7}, 2),
        ({"queue_free": 7, "admitted": 3}, 5),
        ({"queue_free": 7, "admitted": 5}, 7),
        ({"queue_free": 7, "admitted": 13}, 7),
        ({"queue_free": 0}, -5),
        ({"schedulable": 7, "growable": 11, "queue_free": 17, "admitted": 3}, 13),
        ({"schedulable": 17, "growable": 11, "queue_free": 7, "admitted": 3}, 5),
        ({}, None),
    ],
)
def test_five_charged_nodes_are_subtracted_once(
    fields: dict[str, int], limit: int | None
) -> None:
    observed = {"observed_at": NOW, "schedulable": -1, "queue_free": -1, **fields}
    offered = pool("p", 100, observed=PoolObservation(**observed))
    assert observed_limit(offered, 5, NOW, SchedulerOptions()) == limit
    assert observed_limit(pool("p", 100), 5, NOW, SchedulerOptions()) is None
