"""Commands that change an object: their requests, and their answers if nothing changes
or the object goes away.
"""

import asyncio
from functools import partial
from typing import Any, NamedTuple, cast

import pytest

from api_types import labels
from api_types.messages.entities import Scale, SetSpec
from api_types.resources.kinds import BY_KIND
from api_types.taints import MAINTENANCE, with_taint
from api_types.validation.manifests import dump
from client.commands.change import scale as scale_command
from client.commands.change.scale import request_scale
from client.follow.edit import change, change_manifest
from client.follow.results import request_each
from fleet_client import requests
from fleet_client.errors import (
    CommandFailed,
    NoAnswer,
    NotFound,
    Refused,
    WriteConflict,
)
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.requests import Requested, current_user, until_applied
from fleet_client.temporal.control_plane import ControlPlane
from tests.api_types.builders import a_cluster, accepted, merged

OSLO = Target.of(BY_KIND["InferenceCluster"], None, "oslo")
QWEN = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")
REFUSED = [
    {
        "type": "SpecAccepted",
        "status": "False",
        "reason": "InvalidInput",
        "message": "spec.replicas: must be positive",
    }
]


class Plane:
    """A control plane with one object, which changes to the next of these states with
    every request.

    No worker answers the next `lost` reads.
    """

    def __init__(self, *states: Tree | None, lost: int = 0) -> None:
        self.states = list(states)
        self.sent: list[Any] = []
        self.lost = lost

    async def describe(self, target: Target) -> Tree:
        if self.lost:
            self.lost -= 1
            raise NoAnswer(f"no worker answers for {target.title}", next_step="none")
        tree = self.states[0]
        if tree is None:
            raise NotFound(f"{target.title} does not exist", next_step="none")
        return tree | {
            "appliedRequestIds": [message.request_id for message in self.sent]
        }

    async def change_spec(self, target: Target, message: SetSpec, _read: Tree) -> None:
        await self.scale(target, message)

    async def scale(self, target: Target, message: SetSpec | Scale) -> None:
        if self.states[0] is None:
            raise NotFound(f"{target.title} does not exist", next_step="none")
        self.sent.append(message)
        self.states = self.states[1:] or self.states


def a_tree(
    spec: Tree | None, status: Tree | None = None, metadata: Tree | None = None
) -> Tree:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {
            "name": "oslo",
            "uid": "u",
            "generation": 3,
            "resourceVersion": "9",
            **(metadata or {}),
        },
        "spec": spec,
        "status": status or {"phase": "Ready"},
    }


CLUSTER = {"cluster": {"source": "Existing"}, "nodePools": []}
GOING = {"deletionTimestamp": "2026-03-01T10:00:00Z"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(requests, "_POLL_SECONDS_MAX", 0.001)


def changed(plane: Plane) -> Requested:
    return asyncio.run(
        change(
            cast("ControlPlane", plane),
            OSLO,
            lambda tree: with_taint(tree["spec"]),
            reason="kernel update",
        )
    )


def scaled(plane: Plane, replicas: int) -> Requested:
    return asyncio.run(request_scale(cast("ControlPlane", plane), QWEN, replicas))


def test_the_manifest_is_sent_exactly_as_the_user_wrote_it() -> None:
    plane = Plane(
        a_tree(
            CLUSTER, metadata={"labels": {"tier": "prod"}, "annotations": {"a": "b"}}
        )
    )
    assert changed(plane).seen
    assert [(message.by, message.reason) for message in plane.sent] == [
        (current_user(), "kernel update")
    ]
    assert [message.manifest for message in plane.sent] == [
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceCluster",
            "metadata": {
                "name": "oslo",
                "labels": {"tier": "prod"},
                "annotations": {"a": "b"},
            },
            "spec": {**CLUSTER, "taints": [MAINTENANCE]},
        }
    ]


def test_nothing_is_sent_where_nothing_changes() -> None:
    plane = Plane(a_tree(with_taint(CLUSTER)))
    assert (changed(plane).request_id, plane.sent) == ("", [])


def test_a_scale_gives_the_object_with_the_new_count() -> None:
    requested = scaled(Plane(a_tree({"replicas": 1}), a_tree({"replicas": 3})), 3)
    assert requested.tree
    assert requested.tree["spec"] == {"replicas": 3}


def test_a_scale_is_sent_without_a_read_and_waits_for_its_answer() -> None:
    plane = Plane(a_tree({"replicas": 1}), a_tree({"replicas": 3}), lost=20)
    assert scaled(plane, 3).seen
    assert (len(plane.sent), plane.lost) == (1, 0)


def test_a_change_reads_the_object_again_until_a_worker_answers() -> None:
    plane = Plane(a_tree(CLUSTER), lost=20)
    assert changed(plane).seen
    assert len(plane.sent) == 1


def test_a_request_unseen_by_workers_is_not_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        scale_command, "until_applied", partial(until_applied, seconds=0.01)
    )
    plane = Plane(a_tree({"replicas": 1}), lost=10_000)
    assert not scaled(plane, 3).seen
    assert [message.replicas for message in plane.sent] == [3]


def test_a_missing_object_is_detected_without_a_worker() -> None:
    with pytest.raises(NotFound):
        scaled(Plane(None, lost=10_000), 3)


def test_the_outcome_of_each_request_is_shown_and_failures_come_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def request(target: Target) -> Requested:
        if target == OSLO:
            raise NotFound("no oslo", next_step="none")
        return Requested(target, "r1", tree={} if target.name == "seen" else None)

    seen, unseen = (
        Target.of(BY_KIND["ModelDeployment"], "ml", name) for name in ("seen", "unseen")
    )
    with pytest.raises(NotFound, match="no oslo"):
        asyncio.run(
            request_each([OSLO, seen, unseen], request, lambda _: "scaled to 3")
        )
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "modeldeployment/seen scaled to 3",
        "modeldeployment/unseen accepted by Temporal, not yet seen by a worker",
    ]
    assert shown.err == f"next: {requests.HOW_TO_SEE}\n"


class Case(NamedTuple):
    """States of the object and the error of the command.

    `sent` requests precede the error.
    """

    story: str
    states: list[Tree | None]
    error: type[CommandFailed]
    message: str
    next_step: str
    sent: int


ONE = {"replicas": 1}
FAILURES = [
    Case(
        "every spec was refused",
        [a_tree(None, {"conditions": REFUSED})],
        Refused,
        "has no valid spec yet",
        "fix its manifest",
        0,
    ),
    Case(
        "it is being deleted",
        [a_tree(ONE, metadata=GOING)],
        WriteConflict,
        "is being deleted",
        "`modelplane de",
        0,
    ),
    Case(
        "it is gone meanwhile",
        [a_tree(ONE), None],
        WriteConflict,
        "was deleted meanwhile",
        "apply its manifest again",
        1,
    ),
    Case(
        "it goes meanwhile",
        [a_tree(ONE), a_tree(ONE, metadata=GOING)],
        WriteConflict,
        "is being deleted",
        "`modelplane delete",
        1,
    ),
]


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.story)
@pytest.mark.parametrize("command", ["change", "scale"])
def test_a_failure_names_the_object_and_the_next_step(case: Case, command: str) -> None:
    plane = Plane(*case.states)
    with pytest.raises(case.error) as failure:
        changed(plane) if command == "change" else scaled(plane, 3)
    title = (OSLO if command == "change" else QWEN).title
    assert failure.value.message == f"{title} {case.message}"
    assert case.next_step in failure.value.next_step
    # A scale is sent without reading the object, because only a worker knows its state.
    assert len(plane.sent) == (case.sent if command == "change" else 1)


def test_a_spec_that_was_refused_is_shown_with_the_reason() -> None:
    with pytest.raises(Refused) as failure:
        scaled(Plane(a_tree(None, {"conditions": REFUSED})), 3)
    assert failure.value.details == ("spec.replicas: must be positive",)


def test_a_count_that_another_request_has_replaced_is_a_conflict() -> None:
    with pytest.raises(
        WriteConflict,
        match="ModelDeployment ml/qwen has 5 replicas: it was scaled again after this request",
    ):
        scaled(Plane(a_tree({"replicas": 1}), a_tree({"replicas": 5})), 3)


def test_a_cluster_that_is_being_deleted_takes_the_options_of_its_deletion() -> None:
    before: Tree = dump(accepted(a_cluster()).manifest)
    known = before["metadata"].get("annotations") or {}

    def annotated(name: str) -> Requested:
        annotations = {**known, name: "true"}
        after = merged(before, {"metadata": {"annotations": annotations}})
        going = {"metadata": GOING}
        plane = Plane(merged(before, going), merged(after, going))
        return asyncio.run(
            change_manifest(cast("ControlPlane", plane), OSLO, lambda _: after)
        )

    assert annotated(labels.ABANDON).request_id
    with pytest.raises(WriteConflict, match="is being deleted"):
        annotated("example.com/contact")
