"""The session's testbed with a worker beside it, brought up by the command line."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from api_types.clock import utc_now
from api_types.environment import HOME_VARIABLE
from client.errors import ExitCode
from client.follow import requests
from client.local.front import FRONT
from client.local.processes import WORKER
from testbed.running import Running
from testbed.testbed import Testbed
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS
from tests.workflows.environment.harness import connected
from tests.workflows.environment.replaying import replay_all


@pytest.fixture(scope="session")
def fleet(testbed: Running, testbed_owner: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The session's testbed with a worker and a front beside it, brought up by the command line; both leave again at the end.

    Then every run that was made here is replayed.
    """
    began = utc_now()
    environment = {**os.environ, HOME_VARIABLE: str(testbed.home)}
    # With a data plane it would be another testbed for all tests that follow in this process.
    command = [sys.executable, "-m", "client.main", "up", "--no-data-plane"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    assert ended.returncode == 0, ended.stderr
    yield testbed
    testbed_owner.stop_process(FRONT)
    testbed_owner.stop_process(WORKER)
    asyncio.run(_replay(testbed, began, tmp_path_factory.mktemp("histories")))


async def _replay(running: Running, since: datetime, folder: Path) -> None:
    async with connected(running) as client:
        await replay_all(client, since, folder)


@pytest.fixture
def here(fleet: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Commands of this test use the session's fleet."""
    monkeypatch.setenv(HOME_VARIABLE, str(fleet.home))
    # What a test reads is what the worker did; on a slow machine that takes longer than a user at a terminal waits for it.
    monkeypatch.setattr(requests, "ANSWER_SECONDS", TIMEOUT_SECONDS)
    return fleet


@pytest.fixture
def tenant(here: Running, cli: Cli) -> Iterator[str]:
    """A namespace of its own; what a test leaves in it is taken down."""
    del here
    name = f"t-{uuid.uuid4().hex[:8]}"
    yield name
    left = cli("get", "md", "-n", name, "-o", "name").out.split()
    if left:
        assert cli("delete", *left, "-n", name, "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == ExitCode.DONE


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    """Write a manifest to a file; gives its path."""

    def write(text: str) -> str:
        file = tmp_path / f"{uuid.uuid4().hex}.json"
        file.write_text(text)
        return str(file)

    return write
