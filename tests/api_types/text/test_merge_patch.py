"""The difference of two objects as a merge patch."""

from typing import Any

import pytest

from api_types.text.merge_patch import merged, patch_between


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
    ],
)
def test_a_patch_has_the_changed_fields_and_makes_one_object_of_another(
    before: Any, after: Any, patch: Any
) -> None:
    assert patch_between(before, after) == patch
    assert merged(before, patch) == after
