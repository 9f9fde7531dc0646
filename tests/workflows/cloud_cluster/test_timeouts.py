"""The timeout error of work on an object names the awaited state.

These tests use a real Temporal server.
"""

import asyncio
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from api_types.errors import NotYet
from api_types.messages.clouds import WAITS
from workflows.cloud_cluster.calls import DELETE, ENSURE, LAST_LOOK, SWEEP, WHOLE
from workflows.cloud_cluster.failures import failure_of

pytestmark = pytest.mark.slow

QUEUE = "timeouts"
STATUS = "deleting Cluster prod-1: status DELETING"


@activity.defn
async def waits(fails: bool) -> None:
    """Wait without end, or fail."""
    activity.heartbeat({WAITS: STATUS, "seenAt": 1.0})
    if fails:
        raise NotYet("the role is not known yet")
    await asyncio.sleep(60)


@workflow.defn
class Waiting:
    """Execute the activity and return its failure."""

    @workflow.run
    async def run(self, fails: bool, to_close: float, all_attempts: float) -> list[str]:
        try:
            await workflow.execute_activity(
                waits,
                fails,
                start_to_close_timeout=timedelta(seconds=to_close),
                schedule_to_close_timeout=timedelta(seconds=all_attempts),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.1)),
            )
        except ActivityError as error:
            failure = failure_of(error)
            return [failure.type, failure.message]
        return []


OVER = ["TransientError", f"{STATUS}; no result in time (schedule_to_close)"]
TIMES = [
    pytest.param(False, 1.0, 1.0, OVER, id="one attempt takes all the time"),
    pytest.param(False, 1.0, 1.5, OVER, id="several attempts do"),
    pytest.param(
        True, 1.0, 1.5, ["NotYet", "the role is not known yet"], id="attempts fail"
    ),
]


@pytest.mark.parametrize(("fails", "to_close", "all_attempts", "said"), TIMES)
async def test_the_error_after_the_last_attempt_names_the_awaited_state(
    server: Client, fails: bool, to_close: float, all_attempts: float, said: list[str]
) -> None:
    worker = Worker(
        server,
        task_queue=QUEUE,
        workflows=[Waiting],
        activities=[waits],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        name = f"waiting-{fails}-{all_attempts}"
        found = await server.execute_workflow(
            "Waiting",
            args=[fails, to_close, all_attempts],
            id=name,
            task_queue=QUEUE,
            result_type=list,
        )
    assert found == said


def test_every_activity_ends_with_an_error_that_the_workflow_receives() -> None:
    """Temporal would retry an unknown error, so that it would never be reported."""
    options = [*ENSURE.values(), *DELETE.values(), WHOLE, SWEEP, LAST_LOOK]
    hours = [each["schedule_to_close_timeout"] for each in options]
    assert all(each is not None and each <= timedelta(hours=3) for each in hours)
    assert (
        DELETE["ControlPlane"]["schedule_to_close_timeout"]
        == DELETE["NodePool"]["schedule_to_close_timeout"]
        == timedelta(hours=1)
    )
