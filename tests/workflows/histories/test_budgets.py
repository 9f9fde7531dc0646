"""The number of history events that the workflows of a deployment use, on a real Temporal server.

All events count. A workflow task of three events follows each signal, each activity
result and each timer, unless several arrive together. The budgets hold even if none do.
Extra events of a busy machine are listed by name with their limits: repeated workflow
tasks, and progress reports of replicas that take longer than the report interval.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType

from api_types import names, queues
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
)
from tests.workflows.environment.protocol_fleet import (
    ProtocolFleet,
    WorkersHere,
    protocol_fleet,
)
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
    plane_of,
)

pytestmark = pytest.mark.testbed("shared")

NAMESPACE = "ml"
EVENTS_OF_A_TASK = 3
EVENTS_OF_A_REPORT = 1 + EVENTS_OF_A_TASK

TO_READY = 25
# The budget is 20 events, and an update itself costs 15. Deleting the objects of the
# previous generation is a separate activity, so that an update does not wait for slow
# deletions: 6 events. A progress report waits until the previous one is 5 s old: 5
# events for a timer. A report that replaces another one is in the history before it is
# sent (ADR 3): 5 events more than by a local activity. The pod of a single copy is
# replaced after running requests had time to end: a patch, a timer and a task, 6
# events.
ROLLING_UPDATE = 15 + 6 + 5 + 5 + 6
# A replica sends a report by a normal activity if progress takes longer than that.
EVENTS_OF_AN_OWN_REPORT = 3 + EVENTS_OF_A_TASK
TEARDOWN = 60
# Requests that arrive in a burst. Each deployment reports when it uses its placements,
# at worst in a task of its own.
PER_REQUEST = 2
PER_USE = EVENTS_OF_A_REPORT
BURST = 20

# Tasks that the server repeated because the machine did not answer in time.
REPEATED_TASKS_MAX = 3
# Signals that were sent again because the server did not confirm them in time.
REPEATED_SIGNALS_MAX = 8


def scale_of(replicas: int) -> int:
    """Return the budget of a scale.

    The budget is 15 + 3n: three events per replica, if some reports share a task.
    Otherwise each costs four. A normal activity starts the replicas, so that the start
    is in the history first (ADR 3): three events more. Each report, the request and its
    answer change visibility (ADR 28).
    """
    return 15 + 3 + 2 + (EVENTS_OF_A_REPORT + 1) * replicas


@pytest.fixture(scope="module")
async def fleet() -> AsyncIterator[ProtocolFleet]:
    """Start one server and its workers for all tests.

    Each test has its own deployment.
    """
    async with protocol_fleet(clients=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
async def plane(fleet: ProtocolFleet) -> AsyncIterator[ControlPlane]:
    """Start its control plane with one Ready cluster."""
    async with plane_of(fleet, SimulatedClusters()) as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu", nodes=100))
        await plane.ready("InferenceCluster", "eu")
        # Another report of the cluster would be in the history of its first replica.
        await at_rest(plane, names.workflow_id("InferenceCluster", "", "eu"))
        yield plane


async def events(plane: ControlPlane, workflow_id: str) -> list[str]:
    """Return the types of all events of a workflow."""
    history = await plane.client.get_workflow_handle(workflow_id).fetch_history()
    return [
        EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
        for event in history.events
    ]


def assert_within(used: list[str], budget: int, *, late_reports: int = 0) -> None:
    """Compare the events with a budget; fail with their list."""
    counted = Counter(used)
    repeated = counted["WORKFLOW_TASK_TIMED_OUT"] + counted["WORKFLOW_TASK_FAILED"]
    assert repeated <= REPEATED_TASKS_MAX, counted
    assert (
        counted.total()
        <= budget + repeated * EVENTS_OF_A_TASK + late_reports * EVENTS_OF_A_REPORT
    ), counted


def progress(used: list[str], activities: int) -> int:
    """Count the events of progress reports, given the number of other activities."""
    reports = Counter(used)["ACTIVITY_TASK_SCHEDULED"] - activities
    assert reports <= 1, Counter(used)
    return reports * EVENTS_OF_AN_OWN_REPORT


def updated(seen: Json) -> bool:
    return (seen["status"]["observedGeneration"], seen["status"]["phase"]) == (
        2,
        "Ready",
    )


async def test_the_lifecycle_of_a_replica_stays_within_its_budgets(
    plane: ControlPlane,
) -> None:
    await plane.apply(a_deployment("chat", NAMESPACE))
    seen = await plane.ready("ModelDeployment", "chat", NAMESPACE)
    replica = names.workflow_id(
        "ModelReplica", NAMESPACE, seen["status"]["placements"][0]["replica"]
    )
    to_ready = await at_rest(plane, replica)
    assert_within(to_ready, TO_READY + progress(to_ready, activities=1))
    await plane.apply(
        a_deployment("chat", NAMESPACE, image="registry.example/engine:2")
    )
    await plane.until("ModelDeployment", "chat", updated, NAMESPACE)
    rolled = await at_rest(plane, replica)
    update = rolled[len(to_ready) :]
    assert_within(update, ROLLING_UPDATE + progress(update, activities=3))
    await plane.delete("ModelDeployment", "chat", NAMESPACE)
    await plane.gone("ModelDeployment", "chat", NAMESPACE)
    assert_within((await events(plane, replica))[len(rolled) :], TEARDOWN)


async def test_a_scale_stays_within_its_budget(plane: ControlPlane) -> None:
    await plane.apply(a_deployment("scaled", NAMESPACE))
    await plane.ready("ModelDeployment", "scaled", NAMESPACE)
    deployment = names.workflow_id("ModelDeployment", NAMESPACE, "scaled")
    before = await at_rest(plane, deployment)
    await plane.scale("scaled", NAMESPACE, 4)
    await plane.until(
        "ModelDeployment",
        "scaled",
        lambda now: now["status"]["replicas"]["ready"] == 4,
        NAMESPACE,
    )
    scaled = (await at_rest(plane, deployment))[len(before) :]
    # The order, the answer and three reports. A slow replica reports its progress once
    # more.
    late = max(0, Counter(scaled)["WORKFLOW_EXECUTION_SIGNALED"] - 2 - 3)
    assert late <= 3
    assert_within(scaled, scale_of(3), late_reports=late)


async def test_the_scheduler_stays_within_its_budget_in_a_burst(
    fleet: ProtocolFleet, plane: ControlPlane
) -> None:
    before = await at_rest(plane, names.FLEET_SCHEDULER_ID)
    documents = [a_deployment(f"burst-{number}", NAMESPACE) for number in range(BURST)]

    async def requests_made() -> int:
        made = (await events(plane, names.FLEET_SCHEDULER_ID))[len(before) :]
        return Counter(made)["WORKFLOW_EXECUTION_SIGNALED"]

    assert isinstance(fleet.workers, WorkersHere)
    async with fleet.workers.without(queues.SCHEDULER):
        await asyncio.gather(*(plane.apply(document) for document in documents))
        await eventually(requests_made, lambda count: count >= BURST, what="the burst")
    for document in documents:
        await plane.ready("ModelDeployment", document["metadata"]["name"], NAMESPACE)
    used = (await at_rest(plane, names.FLEET_SCHEDULER_ID))[len(before) :]
    requests = Counter(used)["WORKFLOW_EXECUTION_SIGNALED"]
    # Each deployment requests placements once, and reports once that it uses them.
    assert 2 * BURST <= requests <= 2 * BURST + REPEATED_SIGNALS_MAX
    assert_within(used, PER_REQUEST * BURST + PER_USE * (requests - BURST))
    # The scheduler's own orders. Decisions, answers and timers each cover many
    # requests.
    ordered = [
        event
        for event in used
        if not event.startswith(("WORKFLOW_TASK_", "WORKFLOW_EXECUTION_SIGNALED"))
    ]
    assert len(ordered) <= BURST, Counter(ordered)


async def at_rest(plane: ControlPlane, workflow_id: str) -> list[str]:
    """Return the events of a workflow once it has nothing left to do."""
    seen = await events(plane, workflow_id)
    while True:
        await asyncio.sleep(3)
        now = await events(plane, workflow_id)
        if len(now) == len(seen):
            return now
        seen = now
