"""The encryption key rotates while objects live; afterwards the old key is not needed.

A real server runs with the workers of users. Runs are short, so objects continue as new
within the test.
"""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from api_types import names
from api_types.messages.entities import RetryNow
from tests.wire.test_encryption import Fleet, applied, until
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.protocol_fleet import protocol_server
from tests.workflows.environment.short_runs import runs

pytestmark = pytest.mark.testbed("shared")

# A few changes lead to a new run.
EVENTS = 40
NAMES = ("first", "second", "third")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with protocol_server(EVENTS) as plain:
        yield Fleet(plain, tmp_path)


def handles(client: Client) -> list[WorkflowHandle[Any, Any]]:
    return [
        client.get_workflow_handle(names.workflow_id("InferenceClass", "", name))
        for name in NAMES
    ]


async def worked_on(client: Client, times: int = 1) -> None:
    """Send each object messages, and check that it handles them."""
    for handle in handles(client):
        for _ in range(times):
            request = uuid.uuid4().hex
            await handle.signal(
                "retry_now", RetryNow(request_id=request, by="test").wire()
            )
        await until(handle, lambda seen: seen["status"]["phase"] == "Ready")


async def keys_needed(fleet: Fleet, workflow_id: str) -> set[str]:
    """Return the key ids in the history and the memo of a workflow's present run."""
    handle = fleet.plain.get_workflow_handle(workflow_id)
    description = await handle.describe()
    current = fleet.plain.get_workflow_handle(workflow_id, run_id=description.run_id)
    text = [str(event) for event in (await current.fetch_history()).events] + [
        str(description.raw_description.workflow_execution_info.memo)
    ]
    return {key for key in ("one", "two") if any(f'"{key}"' in each for each in text)}


async def test_a_key_is_replaced_while_objects_live_and_then_removed(
    fleet: Fleet,
) -> None:
    async with fleet.served("one") as client:
        for name in NAMES:
            await applied(client, name)
        uids = [
            (await handle.query("describe"))["metadata"]["uid"]
            for handle in handles(client)
        ]
        assert await keys_needed(fleet, "inferenceclass/first") == {"one"}
    # Every worker and client gets the new key before a program encrypts with it.
    async with fleet.served("one", "two") as client:
        await worked_on(client)
        assert await keys_needed(fleet, "inferenceclass/first") == {"one"}
    # The new key becomes active. Programs read older payloads with the old key.
    async with fleet.served("two", "one") as client:
        await worked_on(client)
        assert await keys_needed(fleet, "inferenceclass/first") == {"one", "two"}
        workflow_ids = [
            *(handle.id for handle in handles(client)),
            names.FLEET_SCHEDULER_ID,
        ]

        async def needed() -> set[str]:
            await worked_on(client, times=EVENTS // 4)
            return {
                key
                for workflow_id in workflow_ids[:-1]
                for key in await keys_needed(fleet, workflow_id)
            }

        assert await eventually(
            needed, lambda keys: keys == {"two"}, what="all runs are new"
        ) == {"two"}
        assert await runs(client, workflow_ids[0]) > 1
    # The old key is removed.
    async with fleet.served("two") as client:
        await worked_on(client)
        assert uids == [
            (await handle.query("describe"))["metadata"]["uid"]
            for handle in handles(client)
        ]
        await applied(client, "fourth")
