"""The taints of a drain and a cordon: added once, removed whatever their effect, and nothing else of the spec changes."""

from typing import Any

import pytest

from api_types.taints import MAINTENANCE, scheduling_disabled, with_cordon, with_taint, without_taint

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


CORDONED: list[tuple[str, Taints, Taints, str]] = [
    ("H7 a cordon adds the taint that evicts nothing", None, [SOFT], "Cordoned"),
    ("H7 other taints stay", [OTHER], [OTHER, SOFT], "Cordoned"),
    ("H7 a cordoned cluster stays as it is", [SOFT], [SOFT], "Cordoned"),
    ("H7 a drained cluster is not loosened", [OURS], [OURS], "Drained"),
]


def a_spec(taints: Taints) -> dict[str, Any]:
    return {"cluster": {"source": "Existing"}, "nodePools": [], **({} if taints is None else {"taints": taints})}


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in ADDED], ids=[row[0] for row in ADDED])
def test_the_taint_of_a_drain_is_added_once(before: Taints, after: Taints) -> None:
    assert with_taint(a_spec(before)) == a_spec(after)


@pytest.mark.parametrize(("before", "after", "reason"), [row[1:] for row in CORDONED], ids=[row[0] for row in CORDONED])
def test_the_taint_of_a_cordon_is_added_unless_the_cluster_takes_no_replicas_already(before: Taints, after: Taints, reason: str) -> None:
    assert with_cordon(a_spec(before)) == a_spec(after)
    assert scheduling_disabled(a_spec(after)) == reason


def test_a_cluster_with_other_taints_alone_takes_replicas() -> None:
    assert scheduling_disabled(a_spec([OTHER])) == scheduling_disabled(a_spec(None)) == ""


@pytest.mark.parametrize(("before", "after"), [row[1:] for row in REMOVED], ids=[row[0] for row in REMOVED])
def test_it_is_removed_again(before: Taints, after: Taints) -> None:
    assert without_taint(a_spec(before)) == a_spec(after)


def test_the_spec_that_is_given_stays_as_it_is() -> None:
    spec = a_spec([])
    with_taint(spec)["taints"][0]["value"] = "changed"
    assert (spec, MAINTENANCE) == (a_spec([]), OURS)
