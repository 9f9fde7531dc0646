"""What tests of the Helm driver share: the pinned helm, stand-ins for it, and folders as a worker has them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from activities.clients.helm.binary import Helm, HelmBinary
from activities.clients.helm.folders import WorkerFolder
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from tests.activities.environment.cluster_under_test import eventually

Script = Callable[..., str]


@pytest.fixture(scope="session")
def helm_path() -> str:
    """The helm that the testbed pins; installed if need be."""
    return str(Installer().programs(tool for tool in TOOLS if tool.name == "helm")["helm"])


@pytest_asyncio.fixture(scope="session")
async def helm(helm_path: str) -> Helm:
    return await HelmBinary(helm_path).get()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Make a program of a few lines of shell, and give its path."""

    def make(text: str, name: str = "helm", mode: int = 0o755) -> str:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(mode)
        return str(program)

    return make


@pytest.fixture
def worker_folder(tmp_path: Path) -> Iterator[WorkerFolder]:
    folder = WorkerFolder(tmp_path)
    yield folder
    folder.remove()


async def numbers_in(file: Path, count: int = 1) -> list[int]:
    """Wait until a program has written so many lines, each the id of a process."""

    def read() -> list[int]:
        lines = file.read_text().split() if file.exists() else []
        return [int(line) for line in lines] if len(lines) == count else []

    found: list[int] = await eventually(read)
    return found


async def ended(*pids: int) -> None:
    """Wait until processes that were killed are gone. A killed one is still listed until the kernel has seen to it."""
    await eventually(lambda: not any(map(_is_alive, pids)), within_seconds=30)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
