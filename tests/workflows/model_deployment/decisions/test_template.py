"""The messages of a deployment to its replicas, compared as a whole."""

from typing import Any

import pytest

from api_types import labels
from api_types.messages.entities import SetLabels, SetTemplate, StartReplica
from scheduler import template_digest
from workflows.model_deployment.decisions.template import (
    labels_message,
    read_flags,
    start_message,
    template_message,
)
from workflows.model_deployment.revisions import TemplateRevision
from workflows.model_deployment.state import DeploymentState, TrackedReplica

ENTRY = {
    "uid": "r",
    "engines": [
        {"engine": "a", "members": [{"pool": "h100", "role": "", "assignments": []}]}
    ],
}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {"engines": [{"name": "a", "members": [{"role": "", "nodeSelector": {}}]}]},
}
FLAGS = {"v": "4"}
STATE = DeploymentState(
    uid="d", generation=9, spec={"replicas": 1, "template": TEMPLATE}
)
REPLICA = TrackedReplica(
    uid="r",
    name="qwen-1",
    cluster="eu",
    index=1,
    entry=ENTRY,
    generation=3,
    sequence=7,
    adoption=5,
    adopted=4,
)
# The current template with the placement of the replica.
SPEC = template_message(STATE, REPLICA, {}, 1).spec


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        ({}, {}),
        # Its reports continue the numbers of its earlier run.
        ({"restarted": True}, {"restarted": True, "first_sequence": 7}),
        (
            {"restarted": True, "deletion_reason": "Deleted"},
            {"restarted": True, "first_sequence": 7, "deleting": True},
        ),
        ({"adopted": 5}, {"adoption": 0}),
    ],
    ids=[
        "new",
        "started again",
        "started again to be deleted",
        "with nothing to adopt",
    ],
)
def test_a_start_contains_everything_that_a_replica_needs(
    replica: dict[str, Any], expected: dict[str, Any]
) -> None:
    started = start_message(
        STATE, "ml", "qwen", REPLICA.model_copy(update=replica), FLAGS, sequence=11
    )
    usual: dict[str, Any] = {
        "uid": "r",
        "namespace": "ml",
        "name": "qwen-1",
        "deployment": "qwen",
        "deployment_uid": "d",
        "cluster": "eu",
        "index": 1,
        "generation": 3,
        "sequence": 11,
        "spec": SPEC,
        "entry": ENTRY,
        "labels": {"team": "a"},
        "picker_flags": FLAGS,
        "adoption": 5,
        "restarted": False,
        "first_sequence": 0,
        "deleting": False,
    }
    assert started == StartReplica(**{**usual, **expected})


def test_a_running_replica_gets_the_full_template_and_labels() -> None:
    common = {
        "uid": "r",
        "sequence": 11,
        "labels": {"team": "a"},
        "picker_flags": FLAGS,
    }
    assert template_message(STATE, REPLICA, FLAGS, 11) == SetTemplate(
        generation=3, spec=SPEC, entry=ENTRY, adoption=5, **common
    )
    assert labels_message(STATE, REPLICA, FLAGS, 11) == SetLabels(**common)
    assert (SPEC["clusterName"], [engine["name"] for engine in SPEC["engines"]]) == (
        "eu",
        ["a"],
    )


def _engines(copies: int = 1, nodes: int = 0) -> dict[str, Any]:
    worker = {"worker": {"nodes": nodes}} if nodes else {}
    member = {"role": "", "nodeSelector": {}, **worker}
    return {"engines": [{"name": "a", "copies": copies, "members": [member]}]}


@pytest.mark.parametrize("present", [_engines(copies=2), _engines(nodes=2)])
@pytest.mark.parametrize("digest", [template_digest(TEMPLATE["spec"], 5), ""])
def test_a_reserved_replica_starts_with_no_more_pods_than_it_was_placed_for(
    present: dict[str, Any], digest: str
) -> None:
    replica = REPLICA.model_copy(update={"entry": {**ENTRY, "template": digest}})
    state = STATE.model_copy(
        update={
            "spec": {"replicas": 1, "template": {"spec": present}},
            "revisions": [
                TemplateRevision(generation=8, replaced="", template=TEMPLATE["spec"])
            ],
        }
    )
    (engine,) = start_message(state, "ml", "qwen", replica, {}, sequence=11).spec[
        "engines"
    ]
    (member,) = engine["members"]
    assert engine.get("copies", 1) == 1
    assert "worker" not in member


def test_a_replica_starts_with_the_template_of_its_placement() -> None:
    """Two templates fit, and the older one is the one it was placed for."""
    served = {"engines": TEMPLATE["spec"]["engines"], "serving": {"mode": "Unified"}}
    replica = REPLICA.model_copy(
        update={"entry": {**ENTRY, "template": template_digest(served, 5)}}
    )
    state = STATE.model_copy(
        update={
            "revisions": [TemplateRevision(generation=8, replaced="", template=served)]
        }
    )
    started = start_message(state, "ml", "qwen", replica, {}, sequence=11)
    assert started.spec["serving"] == {"mode": "Unified"}


@pytest.mark.parametrize(
    ("annotation", "flags", "problem"),
    [
        ({}, {}, ""),
        ({labels.PICKER_FLAGS: "v=4"}, {"v": "4"}, ""),
        ({labels.PICKER_FLAGS: "no flags"}, {}, f"{labels.PICKER_FLAGS}: "),
    ],
    ids=["without", "readable", "unreadable"],
)
def test_picker_flags_are_parsed_or_their_error_names_the_annotation(
    annotation: dict[str, str], flags: dict[str, str], problem: str
) -> None:
    found = read_flags(STATE.model_copy(update={"annotations": annotation}))
    assert (found.flags, found.problem[: len(problem)]) == (flags, problem)
    assert bool(found.problem) == bool(problem)
