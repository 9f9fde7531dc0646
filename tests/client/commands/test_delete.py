"""`modelplane delete` of several objects: it checks all of them before it sends anything."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api_types.settings import Settings
from client.commands.change import delete
from client.errors import ExitCode, NotFound
from client.refs.targets import Target
from tests.client.conftest import Cli


class Plane:
    """A control plane with the cluster `oslo` and the deployment `qwen`."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def exists(self, target: Target) -> bool:
        return target.name in {"oslo", "qwen"}

    async def signal(self, target: Target, signal: Any, message: Any) -> None:
        del signal, message
        if not await self.exists(target):
            raise NotFound(f"{target.title} does not exist", next_step="none")
        self.sent.append(target.label)


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Plane:
    fake = Plane()

    @asynccontextmanager
    async def connected(_settings: Settings) -> AsyncIterator[Plane]:
        yield fake

    monkeypatch.setattr(delete, "control_plane", connected)
    return fake


@pytest.mark.usefixtures("nowhere")
def test_nothing_is_deleted_when_one_of_the_objects_does_not_exist(cli: Cli, plane: Plane) -> None:
    result = cli("delete", "ic/oslo", "md/zz", "md/qwen", "md/yy")
    assert (result.code, result.out, plane.sent) == (ExitCode.NOT_FOUND, "", [])
    assert result.err.splitlines() == [
        "error: some objects do not exist; nothing was sent",
        "  ModelDeployment default/zz",
        "  ModelDeployment default/yy",
        "next: correct their names, or add --ignore-not-found to delete the others",
    ]


@pytest.mark.usefixtures("nowhere")
def test_ignore_not_found_deletes_the_objects_that_exist(cli: Cli, plane: Plane) -> None:
    assert cli("delete", "ic/oslo", "md/zz", "md/qwen", "--ignore-not-found").code == ExitCode.DONE
    assert plane.sent == ["inferencecluster/oslo", "modeldeployment/qwen"]


@pytest.mark.usefixtures("nowhere")
def test_nothing_is_deleted_when_evict_has_no_meaning_for_one_of_the_objects(cli: Cli, plane: Plane) -> None:
    result = cli("delete", "ic/oslo", "md/qwen", "--evict")
    assert (result.code, plane.sent) == (ExitCode.REFUSED, [])
    assert "--evict has no meaning for ModelDeployment default/qwen" in result.err
