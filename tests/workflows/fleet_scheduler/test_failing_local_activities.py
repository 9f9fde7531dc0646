"""Failing local activities of the scheduler on a real server.

It drops undecidable requests and continues.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from api_types import names
from scheduler import decide_some
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)
from tests.workflows.environment.replaying import replayer
from workflows.fleet_scheduler import decide_activity
from workflows.fleet_scheduler.cache import carry_over

pytestmark = pytest.mark.testbed("shared")

# A few messages cause a new run.
EVENTS = 60
SOUND = {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW}


@pytest.fixture
async def fleet() -> AsyncIterator[ProtocolFleet]:
    async with protocol_fleet(clients=1, events=EVENTS) as fleet:
        await fleet.add([ReportedCluster("eu", {"h100": 8})])
        yield fleet


async def placed(fleet: ProtocolFleet, name: str) -> None:
    await fleet.apply(a_deployment(name, NAMESPACE))
    await eventually(
        lambda: fleet.describe(name),
        lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True",
        what=f"{name} placed",
    )


async def counted(fleet: ProtocolFleet) -> int:
    return (
        await fleet.client.count_workflows(f'WorkflowId = "{names.FLEET_SCHEDULER_ID}"')
    ).count


async def statuses(fleet: ProtocolFleet) -> set[WorkflowExecutionStatus | None]:
    return {
        run.status
        async for run in fleet.client.list_workflows(
            f'WorkflowId = "{names.FLEET_SCHEDULER_ID}"'
        )
    }


def failing(*_: Any, **__: Any) -> Any:
    raise KeyError("a bug")


async def test_a_scheduler_continues_after_a_replay_a_failed_decision_and_an_unpackable_cache(
    fleet: ProtocolFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await placed(fleet, "first")
    history = await fleet.client.get_workflow_handle(
        names.FLEET_SCHEDULER_ID
    ).fetch_history()
    await replayer().replay_workflow(history)
    await placed(fleet, "second")
    assert await statuses(fleet) <= SOUND

    # Only the request that cannot be decided is dropped.
    def decide(world: Any, requests: Any, now: int) -> Any:
        return (
            failing()
            if any(request.deployment.name == "bad" for request in requests)
            else decide_some(world, requests, now)
        )

    with monkeypatch.context() as patched:
        patched.setattr(decide_activity, "decide_some", decide)
        await fleet.apply(a_deployment("bad", NAMESPACE))
        await placed(fleet, "good")
    assert await statuses(fleet) <= SOUND

    # The next run rebuilds a cache that cannot be packed.
    async def runs() -> int:
        await fleet.report()
        assert await statuses(fleet) <= SOUND
        return await counted(fleet)

    with monkeypatch.context() as patched:
        before = await counted(fleet)
        patched.setattr(carry_over, "_pages", failing)
        await eventually(runs, lambda count: count > before, what="the next run")
    await fleet.report()
    await placed(fleet, "last")
    assert (
        len(
            await eventually(
                lambda: fleet.scheduler("ledger"),
                lambda found: found is not None and len(found) >= 4,
            )
        )
        >= 4
    )
    assert await fleet.scheduler("audit") == []
