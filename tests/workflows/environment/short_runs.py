"""A real Temporal server that suggests continue-as-new after a few events, so that a
short test spans many runs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from fleet_client.temporal.converter import DATA_CONVERTER
from fleet_client.temporal.queries import RetriedQueries
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.temporal import TEMPORAL
from worker import register_search_attributes


@asynccontextmanager
async def server_with_short_runs(events: int) -> AsyncIterator[Client]:
    """Start a server that suggests a new run after `events` events, and stop it at the end."""
    program = Installer(print).programs(
        tool for tool in TOOLS if tool.name == TEMPORAL
    )[TEMPORAL]
    limit = [
        "--dynamic-config-value",
        f"limit.historyCount.suggestContinueAsNew={events}",
    ]
    async with await WorkflowEnvironment.start_local(
        data_converter=DATA_CONVERTER,
        interceptors=[RetriedQueries()],
        dev_server_existing_path=str(program),
        dev_server_extra_args=limit,
    ) as server:
        await register_search_attributes(server.client)
        yield server.client


def address_of(client: Client) -> str:
    return client.service_client.config.target_host


async def runs(client: Client, workflow_id: str) -> int:
    return sum(
        [1 async for _ in client.list_workflows(f'WorkflowId = "{workflow_id}"')]
    )
