"""The conditions of a deployment as pure readings."""

import pytest

from api_types.messages.entities import PlacedCondition
from api_types.resources.status import Condition
from workflows.model_deployment.status import without_retracted

AT = "2026-01-01T00:00:00Z"


def told(*types: str) -> list[PlacedCondition]:
    return [PlacedCondition(type=each, status="True", reason=each) for each in types]


RETRACTED = [
    ("what is told no longer goes", ["FullyScheduled", "Evicted"], ["FullyScheduled"], ["Ready", "FullyScheduled"]),
    ("what is told again stays", ["Evicted"], ["Evicted"], ["Ready", "FullyScheduled", "Evicted"]),
    ("what comes from elsewhere stays", [], [], ["Ready", "FullyScheduled", "Evicted"]),
]


@pytest.mark.parametrize(("before", "now", "left"), [row[1:] for row in RETRACTED], ids=[row[0] for row in RETRACTED])
def test_a_condition_ends_with_the_scheduler_s_word_for_it(before: list[str], now: list[str], left: list[str]) -> None:
    held = [Condition(type=each, status="True", reason=each, last_transition_time=AT) for each in ("Ready", "FullyScheduled", "Evicted")]
    assert [condition.type for condition in without_retracted(held, told(*before), told(*now))] == left
