"""`modelplane rollout`: the spec that each command sends, and the shown progress."""

from typing import Any

import pytest

from client.commands.change.rollout import (
    history_lines,
    with_pause,
    with_restart,
    with_template,
)
from client.follow.rollout_progress import is_done, progress_of
from fleet_client.errors import Refused
from tests.client.conftest import Cli

Tree = dict[str, Any]


def a_template(image: str, **metadata: Any) -> Tree:
    member = {
        "template": {
            **({"metadata": metadata} if metadata else {}),
            "spec": {"containers": [{"name": "engine", "image": image}]},
        }
    }
    return {"engines": [{"name": "main", "members": [member]}]}


def a_deployment(
    image: str = "engine:2",
    rollout: Tree | None = None,
    status: Tree | None = None,
    ready: str = "True",
) -> Tree:
    """A deployment as its owner describes it, at its third generation."""
    return {
        "metadata": {"name": "qwen", "generation": 3},
        "spec": {
            "replicas": 3,
            "template": {"spec": a_template(image)},
            **({"rollout": rollout} if rollout else {}),
        },
        "status": {
            "observedGeneration": 3,
            "rollout": {
                "templateGeneration": 3,
                "updated": 3,
                "updatedReady": 3,
                "total": 3,
                "paused": False,
                **(status or {}),
            },
            "conditions": [
                {
                    "type": "Ready",
                    "status": ready,
                    "reason": "Unavailable",
                    "message": "" if ready == "True" else "why",
                }
            ],
        },
    }


PAUSES: list[tuple[str, Tree | None, bool, Tree | None]] = [
    ("a pause is written down", None, True, {"paused": True}),
    ("budgets stay", {"maxSurge": 1}, True, {"maxSurge": 1, "paused": True}),
    ("a second pause changes nothing", {"paused": True}, True, {"paused": True}),
    ("resuming leaves no trace", {"paused": True}, False, None),
    ("resuming keeps budgets", {"maxSurge": 1, "paused": True}, False, {"maxSurge": 1}),
    ("what was not paused stays as it is", None, False, None),
]


@pytest.mark.parametrize(
    ("before", "paused", "after"),
    [row[1:] for row in PAUSES],
    ids=[row[0] for row in PAUSES],
)
def test_a_rollout_is_held_and_let_go_in_the_spec(
    before: Tree | None, after: Tree | None, *, paused: bool
) -> None:
    tree = a_deployment(rollout=before)
    spec = with_pause(tree, paused=paused)
    assert spec.get("rollout") == after
    assert {**spec, "rollout": None} == {**tree["spec"], "rollout": None}


def test_a_restart_marks_every_pod_template_and_keeps_other_metadata() -> None:
    tree = a_deployment()
    member = tree["spec"]["template"]["spec"]["engines"][0]["members"][0]
    member["template"]["metadata"] = {
        "labels": {"team": "a"},
        "annotations": {"note": "kept"},
    }
    changed = with_restart(tree, "2026-03-01T12:00:00Z")["template"]["spec"]["engines"][
        0
    ]["members"][0]["template"]
    assert changed["metadata"] == {
        "labels": {"team": "a"},
        "annotations": {
            "note": "kept",
            "modelplane.ai/restarted-at": "2026-03-01T12:00:00Z",
        },
    }
    assert changed["spec"] == member["template"]["spec"]
    assert "modelplane.ai/restarted-at" not in str(tree)


REVISIONS = [
    {"generation": 1, "template": a_template("engine:0")},
    {"generation": 2, "template": a_template("engine:1")},
]


@pytest.mark.parametrize(
    ("to", "image"),
    [(None, "engine:1"), (1, "engine:0")],
    ids=["the one before", "one that is named"],
)
def test_undo_brings_an_earlier_template_back(to: int | None, image: str) -> None:
    spec = with_template(a_deployment(), REVISIONS, to)
    assert spec == {"replicas": 3, "template": {"spec": a_template(image)}}


@pytest.mark.parametrize(
    ("revisions", "to", "says"),
    [
        (REVISIONS, 7, "the template of generation 7 is not stored"),
        ([], None, "there is no earlier template"),
    ],
    ids=["a generation that is not stored", "a deployment that was never changed"],
)
def test_undo_lists_the_available_revisions(
    revisions: list[Tree], to: int | None, says: str
) -> None:
    with pytest.raises(Refused, match=says) as caught:
        with_template(a_deployment(), revisions, to)
    assert "generations with a stored template" in caught.value.next_step


PROGRESS = [
    (
        "done",
        {},
        "True",
        "3 of 3 replicas Ready with the template of generation 3",
        True,
    ),
    (
        "one is being changed",
        {"updated": 2, "updatedReady": 1},
        "False",
        "1 of 3 replicas Ready with the template of generation 3, 1 changing; why",
        False,
    ),
    (
        "held midway",
        {"updated": 1, "updatedReady": 1, "paused": True},
        "False",
        "1 of 3 replicas Ready with the template of generation 3, paused; why",
        False,
    ),
]


@pytest.mark.parametrize(
    ("status", "ready", "says", "done"),
    [row[1:] for row in PROGRESS],
    ids=[row[0] for row in PROGRESS],
)
def test_progress_is_one_line(
    status: Tree, ready: str, says: str, *, done: bool
) -> None:
    tree = a_deployment(status=status, ready=ready)
    assert (progress_of(tree), is_done(tree)) == (says, done)


def test_only_a_deployment_has_a_rollout(cli: Cli) -> None:
    result = cli("rollout", "status", "ic/oslo")
    assert result.code == 2
    assert "InferenceCluster oslo has no rollout" in result.err


def test_history_lists_the_stored_templates_and_the_present_one_last() -> None:
    stored = [
        {"generation": 2, "replaced": "2026-01-02", "template": a_template("engine:1")},
        {"generation": 1, "replaced": "2026-01-01", "template": {"engines": [1, {}]}},
    ]
    assert [line.split() for line in history_lines(a_deployment(), stored)] == [
        ["REVISION", "REPLACED", "IMAGES"],
        ["1", "2026-01-01", "<none>"],
        ["2", "2026-01-02", "engine:1"],
        ["3", "present", "engine:2"],
    ]
