"""Pools for the engines of one replica, and the nodes and devices that they take."""

from typing import Any

import pytest

from scheduler.hardware import node_fitting
from scheduler.hardware.charged_devices import Pods, capacity_of, pods_of
from scheduler.hardware.memory import memory_mebibytes
from scheduler.hardware.node_fitting import (
    CUT_SHORT,
    FitRules,
    Limit,
    Networks,
    SearchBudget,
    Trial,
    fit_nodes,
)
from scheduler.hardware.template import EngineFit, LayoutFit, charges, engine_cost
from scheduler.model.decision import (
    EnginePlacement,
    MemberPlacement,
    ResolvedDeviceRequest,
)
from scheduler.model.devices import DeviceEntry
from tests.scheduler.builders import alone, ask, engine, gpu, leader, nic, pool, worker


def needing(*costs: int, positions: tuple[int, ...] = (0, 1)) -> LayoutFit:
    """Return engines that need this number of nodes of either of two pools."""
    return LayoutFit(tuple(EngineFit(positions, cost, (True,)) for cost in costs))


FLEXIBLE = LayoutFit((EngineFit((0, 1), 2, (True,)), EngineFit((0,), 3, (True,))))
TWO_EACH = ({0: 2}, {0: 2})


@pytest.mark.parametrize(
    ("fit", "free", "rules", "trial"),
    [
        (needing(3), [2, 3], {}, Trial((1,))),
        (needing(3), [3, 5], {}, Trial((0,))),
        (needing(3), [2, 2], {}, Trial(failed=0)),
        (needing(1), [-1, 0], {}, Trial(failed=0)),
        (needing(3), [3, 5], {"refused": {0}}, Trial((1,))),
        (needing(3), [3, 5], {"limits": [Limit(1, ({0: 2},))]}, Trial((1,))),
        (needing(3), [3, 5], {"limits": [Limit(2, ({0: 2},))]}, Trial((0,))),
        (needing(2, 3), [5, 0], {}, Trial((0, 0))),
        (needing(2, 3), [4, 0], {}, Trial(failed=1)),
        (needing(2, 3), [1, 1], {}, Trial(failed=0)),
        (needing(2, 3), [3, 2], {}, Trial((1, 0))),
        (FLEXIBLE, [3, 2], {}, Trial((1, 0))),
        (FLEXIBLE, [5, 2], {}, Trial((0, 0))),
        (FLEXIBLE, [2, 5], {}, Trial(failed=1)),
        (needing(2, 3), [9, 9], {"refused": {0}}, Trial((1, 1))),
        (needing(2, 3), [9, 9], {"limits": [Limit(3, TWO_EACH)]}, Trial((0, 1))),
        (needing(2, 3), [9, 9], {"limits": [Limit(4, TWO_EACH)]}, Trial((0, 0))),
        (needing(2, 3), [9, 2], {"limits": [Limit(3, TWO_EACH)]}, Trial((1, 0))),
        (
            needing(2, 3),
            [2, 9],
            {"networks": Networks(("x", "y"), (0, 0))},
            Trial((1, 1)),
        ),
        (
            needing(2, 3),
            [2, 9],
            {"networks": Networks(("x", "x"), (0, 0))},
            Trial((0, 1)),
        ),
        (
            needing(2, 3),
            [2, 9],
            {"networks": Networks(("x", "y"), (0, 1))},
            Trial((0, 1)),
        ),
        (
            needing(2, 3),
            [2, 9],
            {"networks": Networks(("x", "y"), (-1, -1))},
            Trial((0, 1)),
        ),
        (
            needing(2, 3),
            [2, 4],
            {"networks": Networks(("x", "y"), (0, 0))},
            Trial(failed=1),
        ),
    ],
)
def test_each_engine_gets_a_pool_that_capacity_and_rules_allow(
    fit: LayoutFit, free: list[int], rules: dict[str, Any], trial: Trial
) -> None:
    assert fit_nodes(fit, free, FitRules(**rules), budget=SearchBudget()) == trial


def test_pools_are_tried_in_the_given_order() -> None:
    tried: list[int] = []

    def backwards(i: int, positions: Any) -> list[int]:
        tried.append(i)
        return list(reversed(positions))

    budget = SearchBudget()
    assert fit_nodes(needing(3), [3, 5], budget=budget, order=backwards) == Trial((1,))
    assert fit_nodes(needing(2, 3), [9, 9], budget=budget, order=backwards) == Trial(
        (1, 1)
    )
    assert tried == [0, 0, 1]


def test_a_search_charges_its_steps_and_does_not_start_without_budget() -> None:
    budget = SearchBudget()
    assert fit_nodes(needing(2, 3), [3, 2], budget=budget) == Trial((1, 0))
    assert budget.taken == 3
    budget.left = 0
    cut = Trial(failed=1, undecided=True, violation=CUT_SHORT)
    assert fit_nodes(needing(2, 3), [3, 2], budget=budget) == cut
    assert fit_nodes(
        needing(2, 3), [3, 2], budget=SearchBudget(), exact=False
    ) == Trial(failed=1)
    assert fit_nodes(needing(2, 3), [5, 2], budget=budget) == Trial((0, 0))


@pytest.mark.parametrize(
    ("costs", "free", "searched"),
    [
        ((2, 3), [3, 1], False),
        ((3, 3, 1), [5, 2], False),
        ((4, 4, 1), [7, -9], False),
        ((3, 3, 3), [5, 5], False),
        ((5, 3, 3, 3), [7, 7], True),
    ],
)
def test_engines_that_counting_rejects_are_not_searched(
    costs: tuple[int, ...],
    free: list[int],
    *,
    searched: bool,
) -> None:
    """The last ones need as many nodes as are free, and each size has room."""
    budget = SearchBudget()
    assert fit_nodes(needing(*costs), free, budget=budget).failed >= 0
    assert (budget.taken > 0) == searched


@pytest.mark.parametrize(
    ("most", "search", "straight", "spent", "exhausted"),
    [
        (5, 4, 0, False, False),
        (5, 5, 0, True, False),
        (5, 0, 9, False, False),
        (5, 0, 10, False, True),
        (5, 3, 7, False, True),
        (0, 0, 0, True, False),
    ],
)  # fmt: skip
def test_searches_end_with_the_budget_and_all_attempts_with_twice_as_much(
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    search: int,
    straight: int,
    *,
    spent: bool,
    exhausted: bool,
) -> None:
    monkeypatch.setattr(node_fitting, "DECISION_STEPS_MAX", most)
    budget = SearchBudget()
    budget.charge(search)
    budget.charge_straight(straight)
    assert (budget.is_spent, budget.is_exhausted) == (spent, exhausted)


GANG = engine("main", leader(ask()), worker(3), copies=5)


@pytest.mark.parametrize(
    ("claims", "nodes"),
    [((True, True), 20), ((True, False), 5), ((False, True), 15), ((False, False), 0)],
)
def test_an_engine_takes_a_node_for_each_pod_that_claims(
    claims: tuple[bool, ...], nodes: int
) -> None:
    assert engine_cost(GANG, claims) == nodes
    assert engine_cost(engine("main", alone(), copies=7), (True,)) == 7


CLAIMS = (ResolvedDeviceRequest("gpu", "c", 1),)


def test_a_placed_replica_is_charged_by_pool() -> None:
    head = MemberPlacement("Leader", "p", CLAIMS)
    tail = MemberPlacement("Worker", "p", CLAIMS, worker_nodes=3)
    other = MemberPlacement("Worker", "q", CLAIMS, worker_nodes=7)
    idle = MemberPlacement("Leader", "r")
    engines = (
        EnginePlacement("a", (head, tail), 5),
        EnginePlacement("b", (idle, other), 2),
        EnginePlacement("c", (MemberPlacement("Standalone", "p", CLAIMS),), 11),
    )
    assert charges(engines) == {"p": 31, "q": 14}


@pytest.mark.parametrize(
    ("member", "pods"),
    [
        (
            MemberPlacement("Standalone", "p", CLAIMS, draw=(("gpu", 2),)),
            Pods((2, 0, 0), 5),
        ),
        (MemberPlacement("Standalone", "p", CLAIMS), Pods((7, 0, 3), 5)),
        (
            MemberPlacement(
                "Leader", "p", CLAIMS, draw=(("gpu", 2), ("nic", 1)), slots=(4,)
            ),
            Pods((2, 0, 1), 5, 0, (4,)),
        ),
        (
            MemberPlacement(
                "Worker", "p", CLAIMS, worker_nodes=7, draw=(("gpu", 2), ("fake", 1))
            ),
            Pods((2, 0, 0), 35, 6),
        ),
        (
            MemberPlacement(
                "Worker",
                "p",
                CLAIMS,
                worker_nodes=7,
                draw=(("gpu", 2),),
                pods_per_node=2,
            ),
            Pods((2, 0, 0), 35, 3),
        ),
        (
            MemberPlacement(
                "Worker",
                "p",
                CLAIMS,
                worker_nodes=6,
                draw=(("gpu", 2),),
                pods_per_node=2,
            ),
            Pods((2, 0, 0), 30, 2),
        ),
    ],
)
def test_the_pods_of_a_member_take_what_they_draw(
    member: MemberPlacement, pods: Pods
) -> None:
    offered = pool(
        "p", 1, gpu(count=7), nic(count=5, claim="Synthetic", name="fake"), nic(count=3)
    )
    assert capacity_of(offered) == (7, 0, 3)
    assert pods_of(member, 5, offered) == pods


@pytest.mark.parametrize(
    ("capacity", "mebibytes"),
    [
        ((("memory", "141Gi"),), 144_384),
        ((("cores", "7"), ("gpu.nvidia.com/memory", "80Gi")), 81_920),
        ((("memory", "1Mi"),), 1),
        ((("memory", "1048575"),), 0),
        ((("memory", "3145727"),), 2),
        ((("memory", "much"),), 0),
        ((("cores", "7"),), 0),
    ],
)
def test_the_memory_of_a_device_is_read_in_whole_mebibytes(
    capacity: tuple[tuple[str, str], ...], mebibytes: int
) -> None:
    assert (
        memory_mebibytes(DeviceEntry("gpu", "DRA", "d", "c", 1, capacity=capacity))
        == mebibytes
    )
