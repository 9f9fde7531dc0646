"""Local activities of the scheduler that fail, on a real server: it drops what cannot be decided, and goes on."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from api_types import names
from scheduler import decide_some
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.protocol_fleet import NAMESPACE, ProtocolFleet, ReportedCluster, protocol_fleet
from tests.workflows.environment.replaying import replayer
from workflows.fleet_scheduler import decide_activity
from workflows.fleet_scheduler.cache import carry_over

pytestmark = pytest.mark.testbed("shared")

# A few messages make a new run.
EVENTS = 60


@pytest.fixture
async def fleet() -> AsyncIterator[ProtocolFleet]:
    async with protocol_fleet(clients=1, events=EVENTS) as fleet:
        await fleet.add([ReportedCluster("eu", {"h100": 8})])
        yield fleet


async def placed(fleet: ProtocolFleet, name: str) -> None:
    await fleet.apply(a_deployment(name, NAMESPACE))
    await eventually(
        lambda: fleet.describe(name), lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True", what=f"{name} placed"
    )


async def statuses(fleet: ProtocolFleet) -> set[WorkflowExecutionStatus | None]:
    return {run.status async for run in fleet.client.list_workflows(f'WorkflowId = "{names.FLEET_SCHEDULER_ID}"')}


def failing(*_: Any, **__: Any) -> Any:
    raise KeyError("a bug")


async def test_a_replay_in_the_process_of_the_scheduler_takes_nothing_from_it(fleet: ProtocolFleet) -> None:
    await placed(fleet, "first")
    history = await fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).fetch_history()
    await replayer().replay_workflow(history)
    await placed(fleet, "second")
    assert await statuses(fleet) <= {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW}
    assert await fleet.scheduler("audit") == []


async def test_a_request_that_cannot_be_decided_is_dropped_alone(fleet: ProtocolFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(world: Any, requests: Any, now: int) -> Any:
        return failing() if any(request.deployment.name == "bad" for request in requests) else decide_some(world, requests, now)

    monkeypatch.setattr(decide_activity, "decide_some", decide)
    await fleet.apply(a_deployment("bad", NAMESPACE))
    await placed(fleet, "good")
    assert await statuses(fleet) <= {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW}


async def test_a_cache_that_cannot_be_packed_is_rebuilt_by_the_next_run(fleet: ProtocolFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await placed(fleet, "first")
    monkeypatch.setattr(carry_over, "_pages", failing)

    async def seen() -> set[WorkflowExecutionStatus | None]:
        await fleet.report()
        return await statuses(fleet)

    ended = {WorkflowExecutionStatus.CONTINUED_AS_NEW, WorkflowExecutionStatus.FAILED}
    assert not {WorkflowExecutionStatus.FAILED} & await eventually(seen, lambda found: bool(found & ended), what="a run that has ended")
    monkeypatch.undo()
    await fleet.report()
    await placed(fleet, "second")
    assert len(await eventually(lambda: fleet.scheduler("ledger"), lambda found: found is not None and len(found) >= 2)) == 2
    assert await fleet.scheduler("audit") == []
