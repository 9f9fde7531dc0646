"""A strict queue reserves capacity for waiting deployments, for a limited time."""

from dataclasses import replace

import pytest

from scheduler.decide import apply, decide, decide_and_explain
from scheduler.fleet.expiries import next_expiry
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots import snapshot
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.policy import PlacementPolicy, SchedulerOptions
from scheduler.planning.trees import decision_tree
from tests.scheduler.builders import (
    NOW,
    alone,
    ask,
    at_least,
    cluster,
    codes,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    places,
    pool,
    put_replicas,
    settled,
)

STRICT = SchedulerOptions(queue_order="StrictOrder", priority_classes={"high": 10})
MINUTE = 60_000
BIG = deployment(engine(copies=4), name="big")
SMALL = deployment(name="small")
HIGH = replace(deployment(name="high"), policy=PlacementPolicy(priority_class="high"))


def half_full(options: SchedulerOptions = STRICT) -> Fleet:
    """Two of four nodes are used, so the big request waits and the small one would fit."""
    world = fleet(cluster("a", 4), options=options)
    put_replicas(world, deployment(name="old"), "a/0", "a/1")
    return world


@pytest.mark.parametrize(
    ("order", "small"),
    [("BestEffort", ["a/0"]), ("StrictOrder", [])],
    ids=["BestEffort passes", "StrictOrder waits"],
)
def test_a_small_request_behind_a_blocked_one(order: str, small: list[str]) -> None:
    world = half_full(SchedulerOptions(queue_order=order))
    assert settled(world, BIG).shortfall == 1
    assert places(decided(world, SMALL, NOW + MINUTE)) == small


def test_devices_of_a_reserved_pool_are_reserved_too() -> None:
    world = fleet(
        cluster("a", pool("p", 1, gpu(count=8))),
        options=replace(STRICT, accounting="device-safe"),
    )
    settled(world, deployment(engine("main", alone(ask(count=4))), name="old"))
    assert (
        settled(
            world,
            deployment(engine("main", alone(ask(count=8))), name="big"),
            request_id="2",
        ).shortfall
        == 1
    )
    assert places(decided(world, SMALL, NOW + MINUTE)) == []


def test_a_reservation_expires_after_hold_for_and_does_not_start_again() -> None:
    world = half_full()
    settled(world, BIG)
    assert next_expiry(world, NOW) == NOW + 5 * MINUTE + 1
    assert places(decided(world, SMALL, NOW + 5 * MINUTE)) == []
    assert settled(world, BIG, NOW + 4 * MINUTE, "again").waiting_since == NOW
    assert places(decided(world, SMALL, NOW + 5 * MINUTE + 1)) == ["a/0"]
    assert next_expiry(world, NOW + 5 * MINUTE + 1) is None


def test_the_time_until_a_reservation_expires_is_a_setting() -> None:
    world = half_full(replace(STRICT, hold_for_seconds=30))
    settled(world, BIG)
    assert [places(decided(world, SMALL, NOW + wait)) for wait in (30_000, 30_001)] == [
        [],
        ["a/0"],
    ]


def test_a_request_ahead_in_the_queue_is_not_blocked() -> None:
    world = half_full()
    settled(world, BIG)
    assert places(decided(world, HIGH)) == ["a/0"]


def test_the_first_of_two_waiting_deployments_blocks_only_the_second() -> None:
    world = half_full()
    settled(world, BIG)
    settled(world, replace(SMALL, replicas=9), NOW + 1, "later")
    world.release(next(uid for uid in world.owned("ml", "old")))
    world.release(next(uid for uid in world.owned("ml", "old")))
    assert places(decided(world, replace(SMALL, replicas=9), NOW + 2)) == []
    assert places(decided(world, BIG, NOW + 2)) == ["a/0"]


def test_only_candidate_pools_are_reserved() -> None:
    weak = pool("weak", 1, gpu("40Gi"))
    world = fleet(
        cluster("a", pool("p", 1), weak),
        cluster("b", 1, labels={"region": "eu"}),
        options=STRICT,
    )
    settled(world, replace(BIG, match_labels={}))
    modest = deployment(engine("main", alone(ask(at_least("20Gi")))), name="modest")
    assert [e.pool for p in decided(world, modest).placements for e in p.engines] == [
        "weak"
    ]
    elsewhere = fleet(
        cluster("a", 1, labels={"region": "us"}),
        cluster("b", 1, labels={"region": "eu"}),
        options=STRICT,
    )
    settled(elsewhere, replace(BIG, match_labels={"region": "us"}))
    assert places(decided(elsewhere, SMALL)) == ["b/0"]


def test_a_reservation_ends_with_the_wait() -> None:
    world = half_full()
    settled(world, BIG)
    world.release(next(iter(world.owned("ml", "old"))))
    world.release(next(iter(world.owned("ml", "old"))))
    assert settled(world, BIG, NOW + 1, "again").shortfall == 0
    assert not world.queue_reservations


def test_a_deployment_that_waits_for_a_cache_or_does_not_compile_reserves_nothing() -> (
    None
):
    world = half_full()
    broken = deployment(engine("main", alone(ask("device."))), name="broken")
    assert settled(world, broken).waiting_since == -1
    assert not world.queue_reservations


def test_a_reserved_cluster_is_named_with_the_deployment_that_waits() -> None:
    world = half_full()
    settled(world, BIG)
    refused = decided(world, SMALL)
    assert codes(refused) == {"Policy": 1}
    assert refused.message.endswith(
        "0/1 clusters are available: 1 violated StrictOrder: ml/big waits ahead."
    )
    found = decision_tree(
        decide_and_explain(world, [ScheduleRequest("why", SMALL)], NOW)[0]
    )["clusters"]["a"]
    assert found["pools"]["p"] == {
        "selectors": [],
        "reason": "InsufficientNodes",
        "detail": "engine main: needs 1, 2 free of 4, reserved for others "
        "(StrictOrder: ml/big waits ahead)",
    }


def test_a_waiting_deployment_of_another_namespace_is_not_named() -> None:
    world = half_full()
    settled(world, BIG)
    refused = decided(world, replace(SMALL, namespace="others", uid="uid-others"))
    assert refused.message.endswith(
        "1 violated StrictOrder: a deployment of another namespace waits ahead."
    )
    assert "ml" not in refused.message


def test_placed_replicas_are_kept_and_do_not_grow_into_reserved_capacity() -> None:
    world = half_full()
    settled(world, BIG)
    grown = deployment(engine(copies=2), name="old", want=2, template="v2")
    decision = decided(world, grown)
    assert places(decision) == ["a/0", "a/1"]
    assert {note.reason for note in decision.notes} == {"ResizeBlocked"}


def test_a_replica_may_be_replaced_on_the_nodes_it_releases_itself() -> None:
    world = fleet(cluster("a", 3), options=STRICT)
    put_replicas(world, SMALL, "a/0", pools="lost")
    put_replicas(world, deployment(name="old"), "a/1")
    settled(world, BIG)
    moved = decided(world, SMALL)
    assert [note.reason for note in moved.notes] == ["ReplacementBlocked"]
    renamed = deployment(engine("renamed"), name="kept")
    put_replicas(world, deployment(name="kept"), "a/0")
    replaced = decided(world, renamed)
    assert (places(replaced), replaced.notes) == (["a/0"], ())


@pytest.mark.parametrize("accounting", ["node", "device-safe"])
def test_a_batch_is_its_single_decisions_in_order(accounting: str) -> None:
    options = replace(STRICT, accounting=accounting)

    def asked() -> list[ScheduleRequest]:
        views: list[DeploymentView] = [BIG, SMALL, HIGH]
        return [ScheduleRequest(f"ask-{view.name}", view) for view in views]

    batch = decide(half_full(options), asked(), NOW)
    single = half_full(options)
    one_by_one = []
    for request in asked():
        one_by_one += decide(single, [request], NOW)
        apply(single, one_by_one[-1], request.deployment)
    assert batch == one_by_one
    assert (
        snapshot.load(snapshot.dump(single)).queue_reservations
        == single.queue_reservations
    )


def test_ending_the_strict_order_ends_all_reservations() -> None:
    world = half_full()
    settled(world, BIG)
    world.set_options(SchedulerOptions())
    assert not world.queue_reservations
    assert places(decided(world, SMALL)) == ["a/0"]
