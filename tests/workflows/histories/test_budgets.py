"""How many events of history the workflows of a deployment use (spec/workflows.md section 6), on a real Temporal server.

All events count. A workflow task of three events follows each signal, each result of an activity and each timer, unless several arrive
together; the figures hold when nothing does. What a busy machine adds is allowed by name, and only so often as said there: tasks that the
server had to give again, and reports on progress of replicas that take longer than the interval between two reports.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from temporalio.api.enums.v1 import EventType

from api_types import names, queues
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, eventually
from tests.workflows.environment.protocol_fleet import ProtocolFleet, WorkersHere, protocol_fleet
from tests.workflows.environment.simulated_clusters import SimulatedClusters, a_class, a_cluster, plane_of

pytestmark = pytest.mark.testbed("shared")

NAMESPACE = "ml"
EVENTS_OF_A_TASK = 3
EVENTS_OF_A_REPORT = 1 + EVENTS_OF_A_TASK

TO_READY = 25
# The figure is 20, and an update itself costs 15. Deleting what the generation before left behind is an activity of its own, so that an
# update does not wait for objects that take long to go: 6 events. A report on progress waits until the one before it is 5 s old: 5 events
# for a timer. A report that replaces another one is in the history before it is sent (ADR 3): 5 events more than by a local activity.
# The pod of a single copy is replaced when requests have had time to end: a patch, a timer and a task, 6 events.
ROLLING_UPDATE = 15 + 6 + 5 + 5 + 6
# What a replica sends by a normal activity if progress takes longer than that.
EVENTS_OF_AN_OWN_REPORT = 3 + EVENTS_OF_A_TASK
TEARDOWN = 60
# Requests that arrive in a burst. That their placements are used is reported by each deployment when it gets there, at worst each in a
# task of its own.
PER_REQUEST = 2
PER_USE = EVENTS_OF_A_REPORT
BURST = 20

# Tasks that the server gave again because the machine did not answer in time.
REPEATED_TASKS_MAX = 3
# Signals that were sent again because the server did not confirm them in time.
REPEATED_SIGNALS_MAX = 8


def scale_of(replicas: int) -> int:
    """The figure is 15 + 3n: three events per replica, so that some reports share a task. When none do, each costs four.

    Replicas are started by a normal activity, so that it is in the history before it is done (ADR 3): three events more. Each report, the
    request and its answer are changes that visibility is told of (ADR 28).
    """
    return 15 + 3 + 2 + (EVENTS_OF_A_REPORT + 1) * replicas


@pytest.fixture(scope="module")
async def fleet() -> AsyncIterator[ProtocolFleet]:
    """One server and its workers for all tests; each has a deployment of its own."""
    async with protocol_fleet(clients=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
async def plane(fleet: ProtocolFleet) -> AsyncIterator[ControlPlane]:
    """Its control plane, with one cluster that is Ready."""
    async with plane_of(fleet, SimulatedClusters()) as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu", nodes=100))
        await plane.ready("InferenceCluster", "eu")
        yield plane


async def events(plane: ControlPlane, workflow_id: str) -> list[str]:
    """The types of all events of a workflow."""
    history = await plane.client.get_workflow_handle(workflow_id).fetch_history()
    return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in history.events]


def assert_within(used: list[str], budget: int, *, late_reports: int = 0) -> None:
    """Compare with a budget, and say what was used."""
    counted = Counter(used)
    repeated = counted["WORKFLOW_TASK_TIMED_OUT"] + counted["WORKFLOW_TASK_FAILED"]
    assert repeated <= REPEATED_TASKS_MAX, counted
    assert counted.total() <= budget + repeated * EVENTS_OF_A_TASK + late_reports * EVENTS_OF_A_REPORT, counted


def progress(used: list[str], activities: int) -> int:
    """How many events a report on progress took, besides so many other activities."""
    reports = Counter(used)["ACTIVITY_TASK_SCHEDULED"] - activities
    assert reports <= 1, Counter(used)
    return reports * EVENTS_OF_AN_OWN_REPORT


def updated(seen: Json) -> bool:
    """Whether the second generation is Ready."""
    return (seen["status"]["observedGeneration"], seen["status"]["phase"]) == (2, "Ready")


async def test_the_life_of_a_replica_stays_within_its_budgets(plane: ControlPlane) -> None:
    await plane.apply(a_deployment("chat", NAMESPACE))
    seen = await plane.ready("ModelDeployment", "chat", NAMESPACE)
    replica = names.workflow_id("ModelReplica", NAMESPACE, seen["status"]["placements"][0]["replica"])
    to_ready = await at_rest(plane, replica)
    assert_within(to_ready, TO_READY + progress(to_ready, activities=1))
    await plane.apply(a_deployment("chat", NAMESPACE, image="registry.example/engine:2"))
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
    await plane.until("ModelDeployment", "scaled", lambda now: now["status"]["replicas"]["ready"] == 4, NAMESPACE)
    scaled = (await at_rest(plane, deployment))[len(before) :]
    # The order, the answer and three reports; a replica that takes longer than the interval reports its progress once more.
    late = max(0, Counter(scaled)["WORKFLOW_EXECUTION_SIGNALED"] - 2 - 3)
    assert late <= 3
    assert_within(scaled, scale_of(3), late_reports=late)


async def test_the_scheduler_stays_within_its_budget_in_a_burst(fleet: ProtocolFleet, plane: ControlPlane) -> None:
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
    # Each deployment requests placements once, and says once that they are used.
    assert 2 * BURST <= requests <= 2 * BURST + REPEATED_SIGNALS_MAX
    assert_within(used, PER_REQUEST * BURST + PER_USE * (requests - BURST))
    # What it orders itself: decisions, answers and timers are for many requests at once.
    ordered = [event for event in used if not event.startswith(("WORKFLOW_TASK_", "WORKFLOW_EXECUTION_SIGNALED"))]
    assert len(ordered) <= BURST, Counter(ordered)


async def at_rest(plane: ControlPlane, workflow_id: str) -> list[str]:
    """The events of a workflow that has nothing left to do for now."""
    seen = await events(plane, workflow_id)
    while True:
        await asyncio.sleep(3)
        now = await events(plane, workflow_id)
        if len(now) == len(seen):
            return now
        seen = now
