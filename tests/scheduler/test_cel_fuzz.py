"""No generated selector matches a device that Kubernetes would not match, and every other difference is a listed one.

Each run draws new selectors; `MODELPLANE_FUZZ_SEED` repeats one.
"""

import os
import random

from hypothesis import HealthCheck, given, seed, settings

from scheduler.cel import SelectorError, compile_selector
from tests.oracle.client import Oracle
from tests.scheduler.cel_devices import random_devices
from tests.scheduler.cel_differences import KUBERNETES_COST_MAX, disagreement, our_verdicts, their_outcomes
from tests.scheduler.selectors import expressions

SEED = int(os.environ.get("MODELPLANE_FUZZ_SEED") or random.randrange(2**32))  # noqa: S311 - a seed for test data
SELECTORS = 2_000
DEVICES = random_devices(SEED, 50)


@seed(SEED)
@settings(max_examples=SELECTORS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(selector=expressions())
def test_any_selector_fares_as_in_kubernetes(selector: str, oracle: Oracle) -> None:
    """sch-20-2: two thousand expressions on fifty devices."""
    print(f"MODELPLANE_FUZZ_SEED={SEED}")  # noqa: T201 - shown when the test fails
    answer = oracle.select(selector, DEVICES)
    theirs = their_outcomes(answer, len(DEVICES))
    verdicts = our_verdicts(selector, DEVICES)
    wrong = [disagreement(selector, device, *pair) for device, *pair in zip(DEVICES, verdicts, theirs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
    _same_estimate(selector, answer)


def _same_estimate(selector: str, answer: dict[str, object]) -> None:
    try:
        compiled = compile_selector(selector, max_cost=KUBERNETES_COST_MAX)
    except SelectorError:
        return
    assert compiled.cost_estimate == answer["max_cost"], selector
