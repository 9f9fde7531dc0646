"""The rules that a policy switches on, with and without the compatibility setting."""

from dataclasses import asdict

import pytest

from scheduler.model.policy import SchedulerOptions
from scheduler.model.rules import MatchRules, PlacementRules

BY_AMOUNTS = ("matching", "reserve_for_queue", "count_devices")
ONLY_REFERENCE = ("replace_unselected", "evict_before_placing")


@pytest.mark.parametrize(("compat", "full"), [("", True), ("reference", False)])
def test_the_reference_switches_each_rule(compat: str, full: bool) -> None:
    options = SchedulerOptions(
        compat=compat,
        queue_order="StrictOrder",
        accounting="device-safe",
        lenient_calls=True,
        max_cost=7,
    )
    rules = PlacementRules.of(options)
    assert rules.matching == MatchRules(
        full, full, full, full, lenient_calls=True, max_cost=7
    )
    assert (rules.reserve_for_queue, rules.count_devices) == (full, full)
    others = {
        name: value for name, value in asdict(rules).items() if name not in BY_AMOUNTS
    }
    assert len(others) == 14
    assert others == {name: full != (name in ONLY_REFERENCE) for name in others}


@pytest.mark.parametrize(
    ("options", "reserve", "count"),
    [
        (SchedulerOptions(), False, False),
        (SchedulerOptions(queue_order="StrictOrder"), True, False),
        (SchedulerOptions(accounting="device-packed"), False, True),
        (
            SchedulerOptions(class_accounting={"a": "node", "b": "device-safe"}),
            False,
            True,
        ),
        (SchedulerOptions(class_accounting={"a": "node"}), False, False),
    ],
)
def test_a_policy_reserves_and_counts_devices_only_if_configured(
    options: SchedulerOptions, reserve: bool, count: bool
) -> None:
    rules = PlacementRules.of(options)
    assert (rules.reserve_for_queue, rules.count_devices) == (reserve, count)
