from typing import Any

import pytest

from api_types import labels
from client.follow.waiting import status_line
from fleet_client.refs.tree import Tree, at_path, clean, has_applied, refusal, settled

PATHS: list[tuple[str, str, Any]] = [
    ("a field", ".spec.replicas", 2),
    ("an item of a map list", ".status.conditions[?(@.type=='Ready')].status", "True"),
    ("an item that is not there", ".status.conditions[?(@.type=='Gone')].status", None),
    ("a field that is not there", ".status.address", None),
    ("a path through a value", ".spec.replicas.more", None),
]

TREE: Tree = {
    "spec": {"replicas": 2},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("story", "path", "want"), PATHS, ids=[row[0] for row in PATHS]
)
def test_printer_columns_follow_their_path(story: str, path: str, want: Any) -> None:
    assert at_path(TREE, path) == want, story


def an_object(
    *,
    generation: int = 2,
    observed: int = 2,
    ready: str = "True",
    reason: str = "Available",
    of: int | None = 2,
) -> Tree:
    condition: Tree = {"type": "Ready", "status": ready, "reason": reason} | (
        {"observedGeneration": of} if of is not None else {}
    )
    return {
        "metadata": {"generation": generation},
        "status": {"observedGeneration": observed, "conditions": [condition]},
    }


SETTLED = [
    ("Ready at the generation", an_object(), 2, True),
    (
        "Ready at a later generation than asked for",
        an_object(generation=3, observed=3, of=3),
        2,
        True,
    ),
    ("Ready, but of the generation before", an_object(observed=1, of=1), 2, False),
    ("Ready was not looked at since the change", an_object(of=1), 2, False),
    ("Ready without a generation counts by the status", an_object(of=None), 2, True),
    ("not Ready", an_object(ready="False", reason="ModelStarting"), 2, False),
    (
        "scaled to zero is what was asked for",
        an_object(ready="False", reason="ScaledToZero"),
        2,
        True,
    ),
    ("no status yet", {"metadata": {"generation": 1}}, 1, False),
]


@pytest.mark.parametrize(
    ("story", "tree", "generation", "want"), SETTLED, ids=[row[0] for row in SETTLED]
)
def test_a_wait_ends_when_the_new_generation_stands(
    story: str, tree: Tree, generation: int, want: bool
) -> None:
    assert settled(tree, generation) is want, story


def test_an_order_counts_as_taken_when_the_owner_lists_its_id() -> None:
    assert has_applied({"appliedRequestIds": ["a", "b"]}, "b")
    assert not has_applied({}, "b")


def test_internal_fields_are_not_shown_to_users() -> None:
    assert clean({"kind": "ModelDeployment", "appliedRequestIds": ["a"]}) == {
        "kind": "ModelDeployment"
    }


def test_a_refusal_is_reported_with_its_message() -> None:
    refused = {
        "status": {
            "conditions": [
                {
                    "type": "SpecAccepted",
                    "status": "False",
                    "reason": "InvalidInput",
                    "message": "spec: bad",
                }
            ]
        }
    }
    assert refusal(refused) == "spec: bad"
    assert refusal(TREE) == ""


STANDINGS: list[tuple[str, Tree | None, str]] = [
    ("Ready", an_object(), "Ready"),
    (
        "scaled to zero",
        an_object(ready="False", reason="ScaledToZero"),
        "scaled to zero",
    ),
    ("silent", None, "no worker answers for it"),
    ("new", {}, "accepted"),
    (
        "waiting",
        {
            "status": {
                "conditions": [
                    {
                        "type": "ReplicasScheduled",
                        "status": "True",
                        "reason": "ReplicasCreated",
                    },
                    {
                        "type": "ReplicasReady",
                        "status": "False",
                        "reason": "ModelStarting",
                        "message": "1 of 2 ready",
                    },
                    {"type": "Ready", "status": "False", "reason": "ModelStarting"},
                ]
            }
        },
        "ReplicasReady: ModelStarting (1 of 2 ready)",
    ),
]


@pytest.mark.parametrize(
    ("story", "tree", "want"), STANDINGS, ids=[row[0] for row in STANDINGS]
)
def test_progress_is_one_line_with_the_missing_parts(
    story: str, tree: Tree | None, want: str
) -> None:
    assert status_line(tree) == want, story


def test_managed_fields_are_not_shown() -> None:
    metadata = {"name": "chat", "annotations": {labels.MANAGED_FIELDS: "{}", "a": "b"}}
    assert clean({"metadata": metadata}) == {
        "metadata": {"name": "chat", "annotations": {"a": "b"}}
    }
    assert clean(
        {"metadata": {"name": "chat", "annotations": {labels.MANAGED_FIELDS: "{}"}}}
    ) == {"metadata": {"name": "chat"}}
    assert clean({"metadata": {"name": "chat", "managedFields": [{}]}}) == {
        "metadata": {"name": "chat"}
    }
    assert clean(TREE) == TREE
