"""`modelplane delete` of several objects checks all of them before it sends anything."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api_types.settings import Settings
from client.commands.change import delete, undelete
from client.commands.inspect import wait
from client.failures import ExitCode
from fleet_client.errors import CommandFailed, NotFound
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from tests.client.conftest import Cli


class Plane:
    """A control plane with the cluster `oslo` and the deployment `qwen`."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.applied: list[str] = []
        self.messages: list[Any] = []
        self.shown: Tree = {}
        self.ended: dict[str, Tree] = {}

    def temporal(self, _why: str) -> "Plane":
        return self

    async def exists(self, target: Target) -> bool:
        return target.name in {"oslo", "qwen"}

    async def delete(self, target: Target, message: Any) -> None:
        if not await self.exists(target):
            raise NotFound(f"{target.title} does not exist", next_step="none")
        self.sent.append(target.label)
        self.applied.append(message.request_id)
        self.messages.append(message)

    async def describe(self, target: Target) -> Tree:
        if target.name == "oslo":
            raise NotFound("it is gone by now", next_step="none")
        return {"appliedRequestIds": self.applied, **self.shown}

    async def find(self, _target: Target) -> Tree | None:
        return None

    async def waiting(self, target: Target) -> list[str]:
        raise NotFound(f"{target.title} does not exist", next_step="none")

    async def last_state(self, target: Target) -> Tree | None:
        return self.ended.get(target.name)

    async def signal(self, target: Target, _signal: Any, message: Any) -> None:
        self.sent.append(f"keep {target.label}")
        self.applied.append(message.request_id)


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Plane:
    fake = Plane()

    @asynccontextmanager
    async def connected(_settings: Settings) -> AsyncIterator[Plane]:
        yield fake

    monkeypatch.setattr(delete, "fleet_objects", connected)
    monkeypatch.setattr(undelete, "fleet_objects", connected)
    monkeypatch.setattr(wait, "fleet_objects", connected)
    return fake


@pytest.mark.usefixtures("nowhere")
def test_nothing_is_deleted_when_one_of_the_objects_does_not_exist(
    cli: Cli, plane: Plane
) -> None:
    result = cli("delete", "ic/oslo", "md/zz", "md/qwen", "md/yy")
    assert (result.code, result.out, plane.sent) == (ExitCode.NOT_FOUND, "", [])
    assert result.err.splitlines() == [
        "error: some objects do not exist; nothing was sent",
        "  ModelDeployment default/zz",
        "  ModelDeployment default/yy",
        "next: correct their names, or add --ignore-not-found to delete the others",
    ]


@pytest.mark.usefixtures("nowhere")
def test_ignore_not_found_deletes_the_objects_that_exist(
    cli: Cli, plane: Plane
) -> None:
    result = cli("delete", "ic/oslo", "md/zz", "md/qwen", "--ignore-not-found")
    assert (result.code, result.out) == (
        ExitCode.DONE,
        "inferencecluster/oslo deletion requested\nmodeldeployment/qwen deletion requested\n",
    )
    assert plane.sent == ["inferencecluster/oslo", "modeldeployment/qwen"]


@pytest.mark.usefixtures("nowhere")
def test_nothing_is_deleted_when_evict_has_no_meaning_for_one_of_the_objects(
    cli: Cli, plane: Plane
) -> None:
    result = cli("delete", "ic/oslo", "md/qwen", "--evict")
    assert (result.code, plane.sent) == (ExitCode.REFUSED, [])
    assert "--evict has no meaning for ModelDeployment default/qwen" in result.err


@pytest.mark.usefixtures("nowhere")
def test_an_eviction_that_loses_replicas_sends_nothing(
    cli: Cli, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[tuple[list[str], bool]] = []

    async def check_loss(
        _plane: Plane, targets: list[Target], _draining: Any, *, allow_loss: bool
    ) -> None:
        checked.append(([target.name for target in targets], allow_loss))
        if not allow_loss:
            raise CommandFailed(
                "some replicas would find no other place", next_step="none"
            )

    monkeypatch.setattr(delete, "check_loss", check_loss)
    refused = cli("delete", "ic/oslo", "--evict")
    assert (refused.code, plane.sent) == (ExitCode.FAILED, [])
    assert cli("delete", "ic/oslo", "--evict", "--allow-loss").code == ExitCode.DONE
    assert plane.sent == ["inferencecluster/oslo"]
    cli("delete", "ic/oslo")
    assert checked == [(["oslo"], False), (["oslo"], True)]


@pytest.mark.usefixtures("nowhere")
def test_allow_loss_is_about_an_eviction(cli: Cli, plane: Plane) -> None:
    result = cli("delete", "ic/oslo", "--allow-loss")
    assert (result.code, plane.sent) == (ExitCode.REFUSED, [])
    assert "--allow-loss has no meaning without --evict" in result.err


@pytest.mark.usefixtures("nowhere")
def test_purge_crds_is_sent_to_a_cluster_and_rejected_for_other_kinds(
    cli: Cli, plane: Plane
) -> None:
    refused = cli("delete", "ic/oslo", "md/qwen", "--purge-crds")
    assert (refused.code, plane.sent) == (ExitCode.REFUSED, [])
    assert "--purge-crds has no meaning for ModelDeployment default/qwen" in refused.err
    assert cli("delete", "ic/oslo", "--purge-crds").code == ExitCode.DONE
    assert cli("delete", "ic/oslo").code == ExitCode.DONE
    assert [message.purge_crds for message in plane.messages] == [True, False]


def held(reason: str) -> Tree:
    """Return the status of an object whose deletion waits."""
    row = {
        "type": "Deleting",
        "status": "False",
        "reason": reason,
        "message": "used by ic/oslo",
    }
    return {
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [row]},
    }


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("reason", ["InUse", "Occupied"])
def test_the_deletion_of_an_object_in_use_names_its_users_and_the_way_back(
    cli: Cli, plane: Plane, reason: str
) -> None:
    plane.shown = held(reason)
    result = cli("delete", "md/qwen")
    assert (result.code, result.out) == (
        ExitCode.DONE,
        "modeldeployment/qwen deletion requested\n",
    )
    warning = "warning: modeldeployment/qwen is deleted when it is no longer used: used by ic/oslo"
    step = "next: to keep it, `modelplane undelete md/qwen`"
    assert result.err.splitlines() == (
        [warning, step] if reason == "InUse" else [warning]
    )


@pytest.mark.usefixtures("nowhere")
def test_a_deletion_is_taken_back_unless_the_teardown_has_begun(
    cli: Cli, plane: Plane
) -> None:
    kept = cli("undelete", "md/qwen")
    assert (kept.code, kept.out) == (ExitCode.DONE, "modeldeployment/qwen is kept\n")
    assert plane.sent == ["keep modeldeployment/qwen"]
    plane.shown = held("TearingDown")
    refused = cli("undelete", "md/qwen")
    assert refused.code == ExitCode.FAILED
    assert "cannot be kept: its teardown has begun" in refused.err
    assert "used by ic/oslo" in refused.err


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "words",
    [("delete", "ic/oslo", "--wait"), ("wait", "ic/oslo", "--for=delete")],
    ids=["delete", "wait"],
)
def test_the_end_of_a_deletion_lists_what_it_left_behind(
    cli: Cli, plane: Plane, words: tuple[str, ...]
) -> None:
    nothing = cli(*words)
    assert (nothing.code, "left" in nothing.out) == (ExitCode.DONE, False)
    item = {"location": "AWS", "kind": "nat", "name": "nat-1", "reason": "abandoned"}
    plane.ended = {"oslo": {"status": {"leftBehind": [item]}}}
    shown = cli(*words)
    assert shown.code == ExitCode.DONE
    assert "inferencecluster/oslo left 1 object behind:" in shown.out
    assert "nat-1" in shown.out
