"""The taints of drain and cordon, which leave the rest of the spec unchanged."""

from typing import Any

import pytest

from api_types.taints import (
    MAINTENANCE,
    scheduling_disabled,
    with_cordon,
    with_taint,
    without_taint,
)

OURS = {"key": "modelplane.ai/maintenance", "effect": "NoExecute"}
VALUED = {**OURS, "value": "ticket-7"}
SOFT = {"key": "modelplane.ai/maintenance", "effect": "NoSchedule"}
OTHER = {"key": "team", "value": "a", "effect": "NoSchedule"}

Taints = list[dict[str, Any]] | None

ADDED: list[tuple[str, Taints, Taints]] = [
    ("a cluster without taints gets one", None, [OURS]),
    ("other taints stay", [OTHER], [OTHER, OURS]),
    ("a drained cluster stays as it is", [OURS, OTHER], [OURS, OTHER]),
    ("a taint of another value is the same taint", [VALUED], [VALUED]),
    ("a softer taint with the same key is not a drain", [SOFT], [SOFT, OURS]),
]
REMOVED: list[tuple[str, Taints, Taints]] = [
    ("the last taint is removed with its list", [OURS], None),
    ("other taints stay", [OTHER, OURS], [OTHER]),
    ("whatever its effect", [SOFT, OURS], None),
    ("a cluster in use stays as it is", [OTHER], [OTHER]),
    ("a cluster with an empty list stays as it is", [], []),
]


CORDONED: list[tuple[str, Taints, Taints, str]] = [
    ("a cordon adds the taint that evicts nothing", None, [SOFT], "Cordoned"),
    ("other taints stay next to a cordon", [OTHER], [OTHER, SOFT], "Cordoned"),
    ("a cordoned cluster is not cordoned again", [SOFT], [SOFT], "Cordoned"),
    ("a drained cluster is not cordoned", [OURS], [OURS], "Drained"),
]


def a_spec(taints: Taints) -> dict[str, Any]:
    return {
        "cluster": {"source": "Existing"},
        "nodePools": [],
        **({} if taints is None else {"taints": taints}),
    }


@pytest.mark.parametrize(
    ("before", "after"), [row[1:] for row in ADDED], ids=[row[0] for row in ADDED]
)
def test_the_taint_of_a_drain_is_added_once(before: Taints, after: Taints) -> None:
    assert with_taint(a_spec(before)) == a_spec(after)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [row[1:] for row in CORDONED],
    ids=[row[0] for row in CORDONED],
)
def test_the_taint_of_a_cordon_is_added_unless_scheduling_is_disabled(
    before: Taints, after: Taints, reason: str
) -> None:
    assert with_cordon(a_spec(before)) == a_spec(after)
    assert scheduling_disabled(a_spec(after)) == reason


def test_a_cluster_with_only_other_taints_accepts_replicas() -> None:
    assert (
        scheduling_disabled(a_spec([OTHER])) == scheduling_disabled(a_spec(None)) == ""
    )


@pytest.mark.parametrize(
    ("before", "after"), [row[1:] for row in REMOVED], ids=[row[0] for row in REMOVED]
)
def test_the_taint_is_removed_again(before: Taints, after: Taints) -> None:
    assert without_taint(a_spec(before)) == a_spec(after)


def test_the_given_spec_is_not_modified() -> None:
    spec = a_spec([])
    with_taint(spec)["taints"][0]["value"] = "changed"
    assert (spec, MAINTENANCE) == (a_spec([]), OURS)
