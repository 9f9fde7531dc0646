"""How many events of history the workflows of a deployment may use (spec/workflows.md section 6).

The figures there are those of a quiet machine: with every signal goes a workflow task of three events, unless several arrive together, and
how many do is a matter of the machine's pace; so is how often a timer is set anew. What is bounded here is what the workflows themselves
order (activities, markers, search attributes): the figure there, less the signals, tasks and timers of the quiet run, which are beside it.
"""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType

from api_types import names
from tests.workflows.environment.harness import ControlPlane, a_deployment

pytestmark = pytest.mark.testbed

EVENTS_OF_A_TASK = 3
# A state between that a busy machine lets a replica show is reported, too.
ONE_REPORT = 2
# 2 signals, 4 tasks, 3 events of timers
TO_READY = 25 - 2 - 4 * EVENTS_OF_A_TASK - 3 + ONE_REPORT
# 5 signals (scale, placed, one report of each of three replicas), 4 tasks
SCALE_BY_THREE = 15 + 3 * 3 - 5 - 4 * EVENTS_OF_A_TASK
# 3 signals, 9 tasks, 3 events of timers
TEARDOWN = 60 - 3 - 9 * EVENTS_OF_A_TASK - 3

_OF_THE_PACE = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_TIMER_FIRED,
    EventType.EVENT_TYPE_TIMER_CANCELED,
}


async def ordered(plane: ControlPlane, workflow_id: str) -> list[str]:
    """What a workflow has ordered so far, by event type."""
    history = await plane.client.get_workflow_handle(workflow_id).fetch_history()
    return [EventType.Name(event.event_type) for event in history.events if event.event_type not in _OF_THE_PACE]


async def test_a_replica_and_its_deployment_stay_within_their_budgets_of_events(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_deployment("budget", namespace, replicas=1))
    seen = await plane.ready("ModelDeployment", "budget", namespace)
    await asyncio.sleep(3)
    replica = names.workflow_id("ModelReplica", namespace, seen["status"]["placements"][0]["replica"])
    deployment = names.workflow_id("ModelDeployment", namespace, "budget")
    to_ready = await ordered(plane, replica)
    assert len(to_ready) <= TO_READY, "\n".join(to_ready)
    before_scale = len(await ordered(plane, deployment))
    await plane.scale("budget", namespace, 4)
    await plane.until("ModelDeployment", "budget", lambda now: now["status"]["replicas"]["ready"] == 4, namespace)
    scale = (await ordered(plane, deployment))[before_scale:]
    assert len(scale) <= SCALE_BY_THREE, "\n".join(scale)
    await plane.delete("ModelDeployment", "budget", namespace)
    await plane.gone("ModelDeployment", "budget", namespace)
    teardown = (await ordered(plane, replica))[len(to_ready) :]
    assert len(teardown) <= TEARDOWN, "\n".join(teardown)
