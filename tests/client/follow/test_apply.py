"""`apply`: the requests with and without a worker, their order, and the printed
outcomes.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pytest

from api_types import labels
from api_types.messages.entities import SetSpec
from api_types.resources.kinds import KindInfo
from api_types.settings import Settings
from api_types.validation.manifests import Manifest, dump
from client.failures import ExitCode, exit_code_of
from client.follow import apply as applying
from client.follow.apply import apply_manifests
from fleet_client import requests
from fleet_client.errors import (
    CommandFailed,
    NoAnswer,
    NotFound,
    Refused,
    WriteConflict,
)
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import ControlPlane
from tests.api_types.builders import a_class, a_cluster, a_deployment, accepted, merged

GOING = {"metadata": {"deletionTimestamp": "2026-03-01T10:00:00Z"}}
REFUSED = {
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


class Plane:
    """A control plane with these objects by name.

    The workers answer only after some reads of an object, and apply the sent specs.
    """

    def __init__(self, *objects: Tree, silent: int = 0, refuses: bool = False) -> None:
        self.settings = Settings()
        self.objects = {tree["metadata"]["name"]: tree for tree in objects}
        self.applied: dict[str, list[str]] = {}
        self.changed: list[str] = []
        self.sent: list[str] = []
        self.silent = silent
        self.refuses = refuses

    async def exists(self, target: Target) -> bool:
        return target.name in self.objects

    async def describe(self, target: Target) -> Tree:
        if self.silent:
            self.silent -= 1
            raise NoAnswer(f"no worker answers for {target.title}", next_step="none")
        if target.name not in self.objects:
            raise NotFound(f"{target.title} does not exist", next_step="none")
        return {
            **self.objects[target.name],
            "appliedRequestIds": self.applied.get(target.name, []),
            "changingRequestIds": self.changed,
        }

    async def set_spec(self, target: Target, message: SetSpec) -> None:
        self.sent.append(target.name)
        self.applied.setdefault(target.name, []).append(message.request_id)
        before = self.objects.get(target.name, {})
        if any(
            before.get(part) != message.manifest[part] for part in ("metadata", "spec")
        ):
            self.changed.append(message.request_id)
        self.objects[target.name] = (
            merged(message.manifest, REFUSED) if self.refuses else message.manifest
        )

    async def list(
        self, kind: KindInfo, namespace: str | None
    ) -> Sequence[ListedObject]:
        del kind, namespace
        return []


class Leaving(Plane):
    """A control plane whose objects are being deleted."""

    async def set_spec(self, target: Target, message: SetSpec) -> None:
        before = self.objects[target.name]
        await super().set_spec(target, message)
        after = before if self.refuses else self.objects[target.name]
        self.objects[target.name] = merged(after, GOING)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(requests, "_POLL_SECONDS_MAX", 0.001)


def manifest(document: dict[str, Any]) -> Manifest:
    checked: Manifest = accepted(document).manifest
    return checked


def stored(document: dict[str, Any]) -> Tree:
    tree: Tree = dump(manifest(document))
    return tree


def apply(plane: Plane, *documents: dict[str, Any], look_seconds: float = 0.0) -> None:
    asyncio.run(
        apply_manifests(
            cast("ControlPlane", plane),
            [manifest(each) for each in documents],
            look_seconds,
        )
    )


OTHER = a_deployment(top={"replicas": 5})


class Case(NamedTuple):
    """A control plane, the time for reading the object before, and the printed outcome."""

    story: str
    plane: Plane
    look_seconds: float
    outcome: str


CASES = [
    Case("an object that does not exist", Plane(), 0, "created"),
    Case(
        "an object that does not exist, while workers are silent",
        Plane(silent=5),
        0,
        "created",
    ),
    Case("the same object", Plane(stored(a_deployment())), 0, "unchanged"),
    Case("another spec", Plane(stored(OTHER)), 0, "configured"),
    Case(
        "an object of which no worker tells before it is sent",
        Plane(stored(a_deployment()), silent=5),
        0,
        "unchanged",
    ),
    Case(
        "another spec, of which no worker tells before it is sent",
        Plane(stored(OTHER), silent=5),
        0,
        "configured",
    ),
    Case(
        "an object of which a worker tells when it is asked again",
        Plane(stored(a_deployment()), silent=5),
        60,
        "unchanged",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_outcome_depends_on_the_state_of_the_object(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(case.plane, a_deployment(), look_seconds=case.look_seconds)
    assert capsys.readouterr().out == f"modeldeployment/qwen {case.outcome}\n"
    assert case.plane.sent == ["qwen"]


def test_a_request_unseen_by_workers_is_reported_as_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = Plane(silent=10_000)
    monkeypatch.setattr(applying, "until_applied", unseen)
    apply(plane, a_deployment())
    shown = capsys.readouterr()
    assert (
        shown.out
        == "modeldeployment/qwen accepted by Temporal, not yet seen by a worker\n"
    )
    assert plane.sent == ["qwen"]


async def unseen(
    _plane: ControlPlane, target: Target, request_id: str
) -> requests.Requested:
    return requests.Requested(target, request_id)


def test_manifests_are_sent_kind_by_kind_in_their_order() -> None:
    plane = Plane()
    classes = [a_class(), a_class()]
    classes[1]["metadata"]["name"] = "h100"
    apply(plane, classes[0], a_deployment(), classes[1], a_cluster())
    assert plane.sent == ["h200", "h100", "qwen", a_cluster()["metadata"]["name"]]


LEAVING = merged(stored(a_deployment()), GOING)


def test_a_change_of_an_object_that_is_being_deleted_is_not_sent() -> None:
    plane = Plane(LEAVING)
    with pytest.raises(WriteConflict, match="is being deleted"):
        apply(plane, a_deployment())
    assert plane.sent == []


@pytest.mark.parametrize("annotation", labels.TAKEN_WHILE_DELETING)
def test_a_cluster_that_is_being_deleted_takes_the_options_of_its_deletion(
    annotation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = Leaving(merged(stored(a_cluster()), GOING))
    wanted = merged(a_cluster(), {"metadata": {"annotations": {annotation: "true"}}})
    name = wanted["metadata"]["name"]
    apply(plane, wanted)
    assert (plane.sent, capsys.readouterr().out) == (
        [name],
        f"inferencecluster/{name} configured\n",
    )
    with pytest.raises(WriteConflict, match="is being deleted"):
        apply(plane, merged(wanted, {"metadata": {"labels": {"tier": "gold"}}}))
    assert plane.sent == [name]


def test_an_option_that_a_deletion_does_not_take_is_reported() -> None:
    plane = Leaving(merged(stored(a_cluster()), GOING), refuses=True)
    wanted = merged(
        a_cluster(), {"metadata": {"annotations": {labels.ABANDON: "true"}}}
    )
    with pytest.raises(WriteConflict, match="is being deleted"):
        apply(plane, wanted)


def test_an_object_that_cannot_be_changed_keeps_no_other_from_being_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plane = Plane(LEAVING)
    with pytest.raises(WriteConflict) as failure:
        apply(plane, a_deployment(), a_class())
    assert exit_code_of(failure.value) == ExitCode.CONFLICT
    assert (plane.sent, capsys.readouterr().out) == (
        ["h200"],
        "inferenceclass/h200 created\n",
    )


UNKNOWN: list[tuple[str, Tree, str]] = [
    ("a kind", {"kind": "ModelFleet"}, "unknown kind ModelFleet"),
    ("another form of the status", {"status": {"phase": 5}}, "status.phase: "),
    ("another form of the spec", {"spec": {"replicas": "many"}}, "spec.replicas: "),
]


@pytest.mark.parametrize(
    ("story", "other", "says"), UNKNOWN, ids=[row[0] for row in UNKNOWN]
)
def test_a_change_of_an_unknown_field_is_not_sent(
    story: str, other: Tree, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = Plane(stored(a_deployment()) | other)
    with pytest.raises(
        CommandFailed, match="does not know the present form"
    ) as failure:
        apply(plane, a_deployment(), a_class())
    assert failure.value.details[0].startswith(says), story
    assert (plane.sent, capsys.readouterr().out) == (
        ["h200"],
        "inferenceclass/h200 created\n",
    )


def test_a_refusal_by_the_workflow_names_its_problems() -> None:
    plane = Plane(silent=3, refuses=True)
    with pytest.raises(Refused, match="was refused by the control plane") as failure:
        apply(plane, a_deployment())
    assert failure.value.details == ("spec: bad",)
