"""How much may change in one decision, and from which number of nodes on pods always
fit.
"""

from typing import Any

import pytest

from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import Pods
from scheduler.model.inputs import LedgerEntry
from scheduler.model.policy import PlacementPolicy, RolloutPolicy, SchedulerOptions
from scheduler.placement.limits.device_accounting import is_safe
from scheduler.placement.retain import RetainedReplica
from scheduler.placement.rollout import (
    RolloutBudget,
    amount,
    budget_of,
    changeable,
    in_flight,
    unavailable_limit,
)
from tests.scheduler.builders import NOW, deployment, fleet


@pytest.mark.parametrize(
    ("value", "total", "down", "up"),
    [
        (3, 10, 3, 3),
        (0, 10, 0, 0),
        (-1, 10, 0, 0),
        ("7", 10, 7, 7),
        ("25%", 10, 2, 3),
        ("25%", 8, 2, 2),
        ("1%", 100, 1, 1),
        ("1%", 99, 0, 1),
        ("1%", 101, 1, 2),
        ("0%", 10, 0, 0),
        ("100%", 7, 7, 7),
        ("150%", 7, 10, 11),
    ],
)
def test_a_share_is_rounded_up_or_down(
    value: int | str, total: int, down: int, up: int
) -> None:
    assert (amount(value, total, up=False), amount(value, total, up=True)) == (down, up)


@pytest.mark.parametrize("value", ["", "%", "x", "-1", "5.5%", "-5%", "5 %"])
def test_an_amount_is_a_whole_number_or_a_percentage(value: str) -> None:
    with pytest.raises(
        ValueError, match="is neither a whole number nor a percentage such as 25%"
    ):
        amount(value, 10, up=True)


def test_a_budget_ends_with_its_last_change() -> None:
    budget, unlimited = RolloutBudget(2), RolloutBudget(None)
    assert [budget.take() for _ in range(4)] == [True, True, False, False]
    assert [unlimited.take() for _ in range(4)] == [True] * 4
    assert not RolloutBudget(0).take()


@pytest.mark.parametrize(
    ("own", "fleets", "limit"),
    [(None, 3, 3), (None, "25%", 2), (5, 3, 5), (0, 3, 0), ("35%", 3, 3)],
)
def test_a_deployment_limits_its_unavailable_replicas_or_the_fleet_does(
    own: int | str | None, fleets: int | str, limit: int
) -> None:
    view = deployment(
        want=10, policy=PlacementPolicy(RolloutPolicy(max_unavailable=own))
    )
    assert (
        unavailable_limit(view, SchedulerOptions(rollout_max_unavailable=fleets))
        == limit
    )


def kept(name: str, **fields: Any) -> RetainedReplica:
    """Return a retained replica of the current template."""
    return RetainedReplica(
        LedgerEntry(name, "ml", "m", "a", 0, name, (), **{"template": "v1", **fields})
    )


READY, STARTING = kept("ready", ready=True), kept("starting")
OLD = kept("old", template="v0")


@pytest.mark.parametrize(
    ("rollout", "replicas", "left", "surge"),
    [
        (RolloutPolicy(max_unavailable=3), [READY], 3, 0),
        (RolloutPolicy(max_unavailable=3), [STARTING, STARTING], 1, 0),
        (RolloutPolicy(max_unavailable=3), [OLD, READY], 3, 0),
        (RolloutPolicy(max_unavailable=3), [STARTING] * 5, 0, 0),
        (RolloutPolicy(max_unavailable=0), [READY], 1, 0),
        (RolloutPolicy(max_unavailable=0, max_surge=2), [READY], 0, 2),
        (RolloutPolicy(max_unavailable=3, max_surge="25%"), [STARTING], 2, 3),
        (RolloutPolicy(paused=True, max_unavailable=3, max_surge=2), [READY], 0, 0),
        (
            RolloutPolicy(type="AllAtOnce", max_unavailable=3, max_surge=2),
            [STARTING],
            None,
            0,
        ),
    ],
)
def test_replicas_that_are_not_ready_with_the_template_use_up_the_budget(
    rollout: RolloutPolicy,
    replicas: list[RetainedReplica],
    left: int | None,
    surge: int,
) -> None:
    view = deployment(want=10, policy=PlacementPolicy(rollout))
    assert budget_of(FleetOverlay(fleet(), NOW), view, replicas) == RolloutBudget(
        left, surge
    )


def test_only_a_replica_of_the_current_template_that_is_not_ready_is_in_flight() -> (
    None
):
    found = [in_flight(deployment(), each) for each in (READY, STARTING, OLD)]
    assert found == [False, True, False]
    assert not in_flight(deployment(template=""), kept("a", template=""))


def test_replicas_that_serve_no_traffic_change_first() -> None:
    replicas = [
        kept("d", serving=True, ready=True),
        kept("c", serving=True),
        kept("b"),
        kept("a", ready=True),
        kept("e"),
    ]
    found = [each.entry.name for each in changeable(deployment(want=5), replicas)]
    assert found == ["b", "e", "c", "a", "d"]


THREE, FIVE = Pods((3,), 3), Pods((5,), 2)


@pytest.mark.parametrize(
    ("capacity", "pods", "nodes"),
    [
        ((8,), [], 0),
        ((8,), [Pods((9,), 0)], 0),
        ((8,), [Pods((8,), 1)], 1),
        ((8,), [Pods((1,), 16)], 2),
        ((8,), [Pods((1,), 17)], 3),
        ((8,), [Pods((4,), 4)], 2),
        ((8,), [Pods((4,), 5)], 3),
        ((8,), [Pods((5,), 1), Pods((3,), 2)], 2),
        ((8,), [FIVE, THREE], 4),
        ((8,), [Pods((6,), 3), Pods((4,), 3)], 7),
        ((8,), [Pods((8,), 3, 2)], 3),
        ((8,), [Pods((8,), 3, 2), Pods((8,), 2)], 5),
        ((8,), [Pods((8,), 6, 2)], 6),
        ((8, 2), [Pods((1, 1), 3)], 2),
        ((8, 2), [Pods((1, 0), 8), Pods((0, 1), 2)], 1),
        ((8, 2), [Pods((1, 0), 9), Pods((0, 1), 2)], 2),
    ],
)
def test_pods_fit_from_a_minimum_number_of_nodes(
    capacity: tuple[int, ...], pods: list[Pods], nodes: int
) -> None:
    assert [is_safe(capacity, nodes + more, pods) for more in (-1, 0, 1)][
        bool(not nodes) :
    ] == ([False, True, True] if nodes else [True, True])


def test_no_number_of_nodes_is_enough_for_a_pod_that_is_larger_than_a_node() -> None:
    assert [
        is_safe((8, 2), 100, [Pods(size, 1)]) for size in ((8, 2), (9, 1), (1, 3))
    ] == [
        True,
        False,
        False,
    ]
