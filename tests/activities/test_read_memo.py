"""Read the memo of a running or ended entity. The client stands in for a server."""

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.messaging.lookups import read_memo
from activities.messaging.messages import MemoValue
from api_types.payloads.unreadable import UnreadablePayload


class Client:
    """Has one workflow, or none."""

    def __init__(self, status: WorkflowExecutionStatus | None) -> None:
        self.status = status

    def get_workflow_handle(self, _: str) -> "Client":
        return self

    async def describe(self) -> Any:
        if self.status is None:
            raise RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")

        async def memo_value(key: str, default: Any) -> Any:
            return {"connection": "c"}.get(key, default)

        return SimpleNamespace(status=self.status, memo_value=memo_value)


@pytest.mark.parametrize(
    ("status", "value"),
    [
        (WorkflowExecutionStatus.RUNNING, MemoValue(found=True, value="c")),
        (WorkflowExecutionStatus.COMPLETED, MemoValue(found=False, value="c")),
        (None, MemoValue(found=False)),
    ],
)
async def test_a_closed_entity_keeps_its_memo_and_is_not_found(
    status: WorkflowExecutionStatus | None, value: MemoValue
) -> None:
    client: Any = Client(status)
    assert await read_memo(client, "inferencecluster/c", "connection") == value


async def test_a_memo_that_cannot_be_decoded_has_no_value() -> None:
    async def memo_value(*_: object) -> Any:
        raise UnreadablePayload("no key")

    class Undecodable(Client):
        async def describe(self) -> Any:
            return SimpleNamespace(status=self.status, memo_value=memo_value)

    client: Any = Undecodable(WorkflowExecutionStatus.RUNNING)
    found = await ActivityEnvironment().run(
        read_memo, client, "inferencecluster/c", "connection"
    )
    assert found == MemoValue(found=True)
