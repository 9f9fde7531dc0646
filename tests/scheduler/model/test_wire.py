"""Values that cross Temporal are read back, and errors name the field."""

from typing import Any

import pytest

from scheduler.model.inputs import ClusterTaint, LedgerEntry, RequestView
from scheduler.model.policy import Quota, RolloutPolicy
from scheduler.model.wire import from_wire, to_wire

ENTRY = {
    "uid": "u",
    "namespace": "ml",
    "deployment": "m",
    "cluster": "a",
    "index": 0,
    "name": "r",
    "engines": [],
}


@pytest.mark.parametrize(
    ("value", "tree"),
    [
        (RequestView("gpu"), {"name": "gpu"}),
        (
            RequestView("gpu", 5, ("a", "b")),
            {"name": "gpu", "count": 5, "selectors": ["a", "b"]},
        ),
        (RolloutPolicy(max_surge="25%"), {"maxSurge": "25%"}),
        (
            RolloutPolicy(max_unavailable=0, paused=True),
            {"maxUnavailable": 0, "paused": True},
        ),
        (
            Quota("ml", match_labels={"b": "1", "a": "2"}, priority_floor=0),
            {
                "namespace": "ml",
                "matchLabels": {"a": "2", "b": "1"},
                "priorityFloor": 0,
            },
        ),
        (
            LedgerEntry(
                "u", "ml", "m", "a", 0, "r", (), reuse=(("p", 3),), origin=("d", "q")
            ),
            {**ENTRY, "reuse": [["p", 3]], "origin": ["d", "q"]},
        ),
    ],
)
def test_a_value_is_written_without_its_defaults_and_read_back(
    value: Any, tree: dict[str, Any]
) -> None:
    assert to_wire(value) == tree
    assert from_wire(type(value), tree) == value
    assert from_wire(type(value), {**tree, "unknown": 1}) == value
    assert to_wire((value, value)) == [tree, tree]


@pytest.mark.parametrize(
    ("kind", "tree", "says"),
    [
        (RequestView, {}, "name: is required"),
        (RequestView, {"name": None}, "name: is required"),
        (RequestView, {"name": 1}, "name: must be text, got 1"),
        (
            RequestView,
            {"name": "a", "count": 1 << 63},
            "count: must be a whole number of 64 bits, got 9223372036854775808",
        ),
        (
            RequestView,
            {"name": "a", "count": True},
            "count: must be a whole number of 64 bits, got True",
        ),
        (
            RequestView,
            {"name": "a", "selectors": "x"},
            "selectors: must be a list, got 'x'",
        ),
        (
            RequestView,
            {"name": "a", "selectors": ["x", 1]},
            "selectors[1]: must be text, got 1",
        ),
        (RequestView, [], "must be an object, got []"),
        (ClusterTaint, {"key": "a", "value": 7}, "value: must be text, got 7"),
        (RolloutPolicy, {"paused": 1}, "paused: must be true or false, got 1"),
        (
            RolloutPolicy,
            {"maxSurge": 1.5},
            "maxSurge: must be text, a whole number, true or false, got 1.5",
        ),
        (
            Quota,
            {"namespace": "ml", "matchLabels": {"a": 1}},
            "matchLabels.a: must be text, got 1",
        ),
        (
            Quota,
            {"namespace": "ml", "matchLabels": []},
            "matchLabels: must be an object, got []",
        ),
        (
            LedgerEntry,
            {**ENTRY, "origin": ["a"]},
            "origin: must be a list of 2, got ['a']",
        ),
        (
            LedgerEntry,
            {**ENTRY, "engines": [{"engine": "e"}]},
            "engines[0].members: is required",
        ),
    ],
)
def test_a_value_that_cannot_be_read_names_its_field(
    kind: Any, tree: Any, says: str
) -> None:
    with pytest.raises(ValueError, match="invalid ") as raised:
        from_wire(kind, tree)
    assert str(raised.value) == f"invalid {kind.__name__}: {says}"
