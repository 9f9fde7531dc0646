"""The sizes of the payloads that a workflow sent and received."""

from collections.abc import Iterator
from typing import Any

from temporalio.client import Client

from api_types.payloads.limits import (
    PAYLOAD_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SERVER_SEARCH_ATTRIBUTE_BYTES,
)


async def payload_sizes(
    client: Client, workflow_id: str, run_id: str | None = None
) -> list[list[int]]:
    """Return the payload sizes of each event in the history of a workflow's run."""
    events = client.get_workflow_handle(
        workflow_id, run_id=run_id
    ).fetch_history_events()
    return [[len(data) for data in _payloads(event)] async for event in events]


def _payloads(message: Any) -> list[bytes]:
    if message.DESCRIPTOR.full_name == "temporal.api.common.v1.Payload":
        return [message.data]
    found: list[bytes] = []
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        items = (
            [value]
            if hasattr(value, "ListFields")
            else list(value.values() if hasattr(value, "values") else value)
        )
        for item in items:
            found += _payloads(item) if hasattr(item, "ListFields") else []
    return found


async def assert_within_limits(client: Client, workflow_id: str) -> int:
    """Check every run of a workflow: events, memo and search attributes.

    Return its largest payload size in bytes.
    """
    largest = 0
    async for row in client.list_workflows(f'WorkflowId = "{workflow_id}"'):
        sizes = await payload_sizes(client, row.id, row.run_id)
        largest = max(largest, *(max(event, default=0) for event in sizes))
        assert max(sum(event) for event in sizes) <= REQUEST_BYTES_MAX, workflow_id
        info = (
            await client.get_workflow_handle(row.id, run_id=row.run_id).describe()
        ).raw_description.workflow_execution_info
        assert sum(_payload_bytes(info.memo)) <= PAYLOAD_BYTES_MAX, workflow_id
        assert (
            max(_payload_bytes(info.search_attributes), default=0)
            <= SERVER_SEARCH_ATTRIBUTE_BYTES
        ), workflow_id
    assert 0 < largest <= PAYLOAD_BYTES_MAX, workflow_id
    return largest


def _payload_bytes(message: Any) -> Iterator[int]:
    yield from map(len, _payloads(message))
