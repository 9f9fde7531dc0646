"""The scenarios of the policies ask what they say, on small fleets."""

import pytest

from tests.bench.policies import GROWTH, SCENARIOS, measure

SMALL = 200


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_decision_gives_what_the_scenario_says(name: str) -> None:
    scenario = SCENARIOS[name]
    assert measure(scenario, min(scenario.size, SMALL), 1, 60)["decisions"] == 1


def test_what_is_compared_is_measured() -> None:
    assert {name for growth in GROWTH for name in (growth.many, growth.few)} <= set(SCENARIOS)
