"""The history events of an idle day.

At most 300 per entity, on a real Temporal server, with a day that takes minutes. The
periods of `workflows.entity.periods` are divided by a factor and nothing else changes,
so an entity does the same per period as in production. Each event after everything is
at rest counts, including timers, tasks and retried activities.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from tests.workflows.environment.harness import (
    ControlPlane,
    a_cache,
    a_deployment,
    condition,
    reason,
)
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
    connects_once,
    simulated_plane,
)
from workflows.entity import periods

pytestmark = pytest.mark.testbed("shared")

IDLE_DAY = 300
DAY = timedelta(days=1)
# Long enough that a busy machine does not merge two periods into one task.
COMPRESSED = timedelta(seconds=60)
FACTOR = DAY / COMPRESSED
NAMESPACE = "ml"
# The least share of the expected events. A busy machine fires timers late, and so fewer
# of them; an entity without a resync would fire none.
MEANT = 0.5


@pytest.fixture(autouse=True)
def compressed_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide the periods.

    The workers of these tests run in this process, and their workflows read the module.
    """
    for name in ("RESYNC", "AWAIT_FIRST", "AWAIT_LONGEST", "LEDGER_AUDIT"):
        monkeypatch.setattr(periods, name, getattr(periods, name) / FACTOR)
    connects_once(monkeypatch)


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with simulated_plane(
        SimulatedClusters(missing={"no-secret"}, unreachable={"down"}, lacking={"mute"})
    ) as plane:
        yield plane


@pytest.mark.long
async def test_an_idle_day_costs_no_entity_more_than_300_events(
    plane: ControlPlane,
) -> None:
    await plane.apply(a_class())
    await plane.apply(a_cluster("eu", nodes=20))
    await plane.ready("InferenceCluster", "eu")
    await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
    await plane.ready("ModelCache", "weights", NAMESPACE)
    for name, replicas in (("one", 1), ("ten", 10)):
        await plane.apply(
            a_deployment(
                name, NAMESPACE, replicas=replicas, modelCacheRef={"name": "weights"}
            )
        )
        await plane.ready("ModelDeployment", name, NAMESPACE)
    # These two wait for a class and a cache that do not exist.
    await plane.apply(a_cluster("us", class_name="absent"))
    await plane.until(
        "InferenceCluster",
        "us",
        lambda seen: reason(seen, "ClusterReady") == "WaitingForClasses",
    )
    # These wait for a Secret and an API server.
    await plane.apply(a_cluster("no-secret"))
    await plane.until(
        "InferenceCluster",
        "no-secret",
        lambda seen: reason(seen, "ClusterReady") == "CredentialsInvalid",
    )
    await plane.apply(a_cluster("down"))
    await plane.until(
        "InferenceCluster",
        "down",
        lambda seen: reason(seen, "ClusterReady") == "Unreachable",
    )
    await plane.apply(
        a_deployment("waits", NAMESPACE, modelCacheRef={"name": "absent"})
    )
    await plane.until(
        "ModelDeployment",
        "waits",
        lambda seen: condition(seen, "Ready") == "False",
        NAMESPACE,
    )
    # The replica of this deployment waits for a Secret that it copies.
    await plane.apply(a_deployment("mute", NAMESPACE))
    await plane.until(
        "ModelDeployment",
        "mute",
        lambda seen: condition(seen, "Ready") == "False",
        NAMESPACE,
    )

    costs = await events_of_a_day(plane)
    kinds = Counter(workflow_id.partition("/")[0] for workflow_id in costs)
    assert kinds == {
        "inferenceclass": 1,
        "inferencecluster": 4,
        "modelcache": 1,
        "modeldeployment": 4,
        "modelreplica": 12,
        "fleetscheduler": 1,
    }
    assert {
        workflow_id: counted
        for workflow_id, counted in costs.items()
        if counted.total() > IDLE_DAY
    } == {}
    # It was a day: every entity did its work of each period.
    expected = DAY / (periods.RESYNC * FACTOR)
    assert {
        workflow_id: counted
        for workflow_id, counted in costs.items()
        if counted["TIMER_FIRED"] < expected * MEANT
    } == {}


async def events_of_a_day(plane: ControlPlane) -> dict[str, Counter[str]]:
    """Wait until all is at rest, let a day pass, and count the events of every workflow by type."""
    # The first resync sees every entity for the first time, and repeats its reports.
    await asyncio.sleep(2.5 * periods.RESYNC.total_seconds() + 5)
    before = await histories(plane)
    await asyncio.sleep(COMPRESSED.total_seconds())
    after = await histories(plane)
    return {
        workflow_id: Counter(events[len(before[workflow_id]) :])
        for workflow_id, events in after.items()
    }


async def histories(plane: ControlPlane) -> dict[str, list[str]]:
    """Return the types of all events of every running workflow.

    Each is in its first run.
    """
    found = {}
    async for run in plane.client.list_workflows('ExecutionStatus = "Running"'):
        history = await plane.client.get_workflow_handle(
            run.id, run_id=run.run_id
        ).fetch_history()
        found[run.id] = [
            EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
            for event in history.events
        ]
    return found
