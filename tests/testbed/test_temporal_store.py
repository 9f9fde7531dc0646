"""A testbed's Temporal server that is killed with SIGKILL has all acknowledged data
after its restart.
"""

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from testbed import temporal
from testbed.fleet.home import Home
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from tests.environment.waiting import pauses

pytestmark = pytest.mark.testbed("shared")

AT_ONCE = 60
ENOUGH = 20


@contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    """Run the server during the block, and kill it."""
    with subprocess.Popen(command) as server:
        try:
            yield
        finally:
            server.kill()


async def client_of(home: Home) -> Client:
    """Connect as soon as the server serves its namespace."""
    for pause in pauses():
        try:
            client = await Client.connect(temporal.address(home))
            await client.count_workflows()
        except (RuntimeError, RPCError):
            await asyncio.sleep(pause)
        else:
            return client
    raise AssertionError("the server does not serve its namespace")


async def test_a_killed_server_has_lost_nothing_that_it_acknowledged(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.choose_ports(list(temporal.PORTS), print)
    program = Installer(print).programs(
        tool for tool in TOOLS if tool.name == temporal.TEMPORAL
    )[temporal.TEMPORAL]
    command = temporal.process(home, program).argv
    acknowledged: list[str] = []

    with running(command):
        client = await client_of(home)

        async def one(name: str) -> None:
            await client.start_workflow("Any", id=name, task_queue="unserved")
            acknowledged.append(name)

        starts = [asyncio.create_task(one(f"w{number}")) for number in range(AT_ONCE)]
        for pause in pauses(shortest=0.01, longest=0.01):
            if len(acknowledged) >= ENOUGH:
                break
            await asyncio.sleep(pause)
    for start in starts:
        start.cancel()
    await asyncio.gather(*starts, return_exceptions=True)
    assert len(acknowledged) >= ENOUGH

    with running(command):
        client = await client_of(home)
        for name in acknowledged:
            assert (await client.get_workflow_handle(name).describe()).id == name
