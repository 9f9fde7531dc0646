"""Half a day of churn: caches, services, quotas and deployments with priorities change at once.

Everything is drawn from a seed, with the faults of the seed.
"""

import pytest

from tests.simulation.world import simulate

DAYS = 0.5
FLEET = "churn"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_fleet_keeps_every_promise_while_everything_changes_at_once(seed: int) -> None:
    result = simulate(seed, DAYS, FLEET)
    assert result.finding == "", result.command
