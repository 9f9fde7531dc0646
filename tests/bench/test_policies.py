"""The scenarios of the policies give the expected decisions on small fleets."""

import pytest

from tests.bench.policies import GROWTH, SCENARIOS, measure

SMALL = 200


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_decision_gives_the_numbers_of_its_scenario(name: str) -> None:
    scenario = SCENARIOS[name]
    assert measure(scenario, min(scenario.size, SMALL), 1, 60)["decisions"] == 1


def test_every_compared_scenario_is_measured() -> None:
    assert {name for growth in GROWTH for name in (growth.many, growth.few)} <= set(
        SCENARIOS
    )
