"""Errors about messages that their receiver cannot parse."""

from typing import Any

import pytest
from pydantic import ValidationError

from api_types.messages.entities import Scale
from workflows.entity.arguments import problems_of

CASES = [
    ("no field is wrong: the whole is", 5, (), "Input should be a valid dictionary"),
    ("the whole of a field", 5, ("spec",), "spec: Input should be a valid dictionary"),
    ("one field", {"by": 7}, (), "by: Input should be a valid string"),
    (
        "a field within a field",
        {"by": 7},
        ("spec",),
        "spec.by: Input should be a valid string",
    ),
]


@pytest.mark.parametrize(
    ("story", "value", "at", "begins"), CASES, ids=[case[0] for case in CASES]
)
def test_a_problem_starts_with_its_field(
    story: str, value: Any, at: tuple[str, ...], begins: str
) -> None:
    with pytest.raises(ValidationError) as failed:
        Scale.model_validate(value)
    assert problems_of(failed.value, *at).startswith(begins), story
