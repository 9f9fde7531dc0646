"""A refusal by Temporal is reported as one, and not as an unreachable server."""

import asyncio
import time
from typing import Any, Self, cast

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from api_types.messages.entities import SetSpec
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from fleet_client.errors import START_WORKER, CommandFailed, NoAnswer, Unreachable
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane

TARGET = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")


class Server:
    """A Temporal that answers every start with one error."""

    def __init__(self, error: RPCError) -> None:
        self.error = error

    async def start_workflow(self, *_words: Any, **_named: Any) -> None:
        raise self.error


def failure(error: RPCError) -> CommandFailed:
    plane = ControlPlane(cast("Client", Server(error)), Settings())
    with pytest.raises(CommandFailed) as failed:
        asyncio.run(
            plane.set_spec(TARGET, SetSpec(request_id="1", by="me", manifest={}))
        )
    return failed.value


def test_a_request_that_is_too_large_names_the_object_and_the_reason() -> None:
    refused = failure(
        RPCError("Blob data size exceeds limit.", RPCStatusCode.INVALID_ARGUMENT, b"")
    )
    assert (
        refused.message
        == "Temporal at 127.0.0.1:7233 refuses the request about ModelDeployment ml/qwen"
    )
    assert refused.details == ("Blob data size exceeds limit.",)
    assert not isinstance(refused, Unreachable)


def test_a_server_that_is_away_is_unreachable() -> None:
    assert isinstance(
        failure(RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")),
        Unreachable,
    )


class Silent:
    """A Temporal whose queries time out. `polled` is how long ago a worker polled."""

    namespace = "default"

    def __init__(self, polled: float | None) -> None:
        self.workflow_service = self
        self.described = 0
        self._pollers = []
        if polled is not None:
            at = Timestamp(seconds=int(time.time() - polled))
            self._pollers.append(PollerInfo(last_access_time=at))

    def get_workflow_handle(self, _workflow_id: str) -> Self:
        return self

    async def query(self, *_words: Any, **_named: Any) -> None:
        raise RPCError("timed out", RPCStatusCode.DEADLINE_EXCEEDED, b"")

    async def describe_task_queue(
        self, _request: Any, **_named: Any
    ) -> DescribeTaskQueueResponse:
        self.described += 1
        return DescribeTaskQueueResponse(pollers=self._pollers)


@pytest.mark.parametrize(
    ("polled", "message", "starts"),
    [
        (None, "no worker answers for ", True),
        (200.0, "no worker answers for ", True),
        (5.0, "workers polled lately, but none answered for ", False),
    ],
    ids=["no worker", "a worker that ended", "a slow worker"],
)
async def test_only_without_a_worker_is_a_timeout_followed_by_the_start_of_one(
    polled: float | None, message: str, starts: bool
) -> None:
    server = Silent(polled)
    plane = ControlPlane(cast("Client", server), Settings())
    for _ in range(2):
        with pytest.raises(NoAnswer) as failed:
            await plane.describe(TARGET)
        assert failed.value.message.startswith(message)
        assert (failed.value.next_step == START_WORKER) is starts
    assert await plane.failures.next_step_of_silence() == failed.value.next_step
    assert server.described == 1, "many objects may be silent at once"
