"""The taint of a drain: added once, removed whatever its effect, and nothing else of the spec changes."""

from typing import Any

import pytest

from api_types.taints import MAINTENANCE, with_taint, without_taint

OURS = {"key": "modelplane.ai/maintenance", "effect": "NoExecute"}
VALUED = {**OURS, "value": "ticket-7"}
SOFT = {"key": "modelplane.ai/maintenance", "effect": "NoSchedule"}
OTHER = {"key": "team", "value": "a", "effect": "NoSchedule"}

Taints = list[dict[str, Any]] | None

ADDED: list[tuple[str, Taints, Taints]] = [
    ("ruling-G16 a cluster without taints gets one", None, [OURS]),
    ("ruling-G16 other taints stay", [OTHER], [OTHER, OURS]),
    ("ruling-G16 a drained cluster stays as it is", [OURS, OTHER], [OURS, OTHER]),
    ("a taint of another value is the same taint", [VALUED], [VALUED]),
    ("ruling-G16 a softer one of the same key is no drain", [SOFT], [SOFT, OURS]),
]
REMOVED: list[tuple[str, Taints, Taints]] = [
    ("ruling-G16 the last taint is removed with its list", [OURS], None),
    ("ruling-G16 other taints stay", [OTHER, OURS], [OTHER]),
    ("ruling-G16 whatever its effect", [SOFT, OURS], None),
    ("ruling-G16 a cluster in use stays as it is", [OTHER], [OTHER]),
    ("a cluster with an empty list stays as it is", [], []),
]


def a_spec(taints: Taints) -> dict[str, Any]:
    return {"cluster": {"source": "Existing"}, "nodePools": [], **({} if taints is None else {"taints": taints})}


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in ADDED], ids=[row[0] for row in ADDED])
def test_the_taint_of_a_drain_is_added_once(before: Taints, after: Taints) -> None:
    assert with_taint(a_spec(before)) == a_spec(after)


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in REMOVED], ids=[row[0] for row in REMOVED])
def test_it_is_removed_again(before: Taints, after: Taints) -> None:
    assert without_taint(a_spec(before)) == a_spec(after)


def test_the_spec_that_is_given_stays_as_it_is() -> None:
    spec = a_spec([])
    with_taint(spec)["taints"][0]["value"] = "changed"
    assert (spec, MAINTENANCE) == (a_spec([]), OURS)
