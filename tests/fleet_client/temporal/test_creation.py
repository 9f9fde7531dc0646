"""A failed create reaches its caller, and leaves no error for asyncio to log."""

import asyncio
import gc
from typing import Any, cast

import pytest
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from api_types.messages.entities import Replace
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from fleet_client.errors import AlreadyExists, CommandFailed, NoAnswer
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane

TARGET = Target(BY_KIND["InferenceClass"], "", "h100")


class FailingStarts:
    """A connection whose starts fail as the SDK's do: the operation has the error too.

    Without an error the server does not answer.
    """

    namespace = "default"

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.workflow_service = self

    async def describe_task_queue(
        self, _request: Any, **_named: Any
    ) -> DescribeTaskQueueResponse:
        return DescribeTaskQueueResponse()

    async def execute_update_with_start_workflow(
        self,
        *_: Any,
        start_workflow_operation: WithStartWorkflowOperation[Any, Any],
        **_more: Any,
    ) -> Any:
        if self.error is None:
            await asyncio.sleep(3600)
        assert self.error
        start_workflow_operation._workflow_handle.set_exception(self.error)
        raise self.error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            WorkflowAlreadyStartedError("inferenceclass//h100", "InferenceClass"),
            AlreadyExists,
        ),
        (RPCError("Timeout expired", RPCStatusCode.DEADLINE_EXCEEDED, b""), NoAnswer),
    ],
    ids=["it exists", "no worker"],
)
async def test_the_outcome_of_a_start_that_failed_is_in_no_log(
    error: Exception, told: type[CommandFailed]
) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.append(context["message"])
    )
    plane = ControlPlane(cast("Client", FailingStarts(error)), Settings())
    with pytest.raises(told):
        await plane.replace(
            TARGET, Replace(request_id="r", by="test", manifest={}), create=True
        )
    # The operation has the error that the call raised.
    error.__traceback__ = None
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_cancelled_create_ends_at_once() -> None:
    plane = ControlPlane(cast("Client", FailingStarts(None)), Settings())
    asked = asyncio.create_task(
        plane.replace(
            TARGET, Replace(request_id="r", by="test", manifest={}), create=True
        )
    )
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
