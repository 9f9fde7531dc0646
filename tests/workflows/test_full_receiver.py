"""A deployment that accepts no more signals, on a real server, delays no other entity.

Only the real server shows with which error it rejects a signal, and when.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from api_types import names
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)
from workflows.model_deployment.controller import DeploymentController

pytestmark = pytest.mark.testbed("shared")

SIGNALS, EVENTS = 150, 120
VICTIM = names.workflow_id("ModelDeployment", NAMESPACE, "victim")


@pytest.fixture
async def fleet() -> AsyncIterator[ProtocolFleet]:
    async with protocol_fleet(clients=1, events=EVENTS, signals=SIGNALS) as fleet:
        await fleet.add([ReportedCluster("eu", {"h100": 0})])
        yield fleet


async def is_placed(fleet: ProtocolFleet, name: str) -> None:
    await eventually(
        lambda: fleet.describe(name),
        lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True",
        what=f"{name} is placed",
    )


async def fill(fleet: ProtocolFleet) -> None:
    """Signal the victim until the server rejects a signal.

    Its workflow tasks fail, so it starts no new run.
    """
    for number in range(SIGNALS + 1):
        try:
            await fleet.scale("victim", 1, f"scale/{number}")
        except RPCError as refused:
            if refused.status == RPCStatusCode.INVALID_ARGUMENT:
                return
            raise
    raise AssertionError("the server refuses no signal")


async def test_a_deployment_that_accepts_no_signals_delays_no_other_and_receives_them_later(
    fleet: ProtocolFleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("victim", "other"):
        await fleet.apply(a_deployment(name, NAMESPACE))

    async def scheduler_status() -> dict[str, Any]:
        seen = await fleet.scheduler("describe")
        return seen["status"] if seen else {}

    # A scheduler that is still starting would ask the victim for its account, and wait.
    await eventually(
        scheduler_status,
        lambda seen: len(seen.get("waiting", [])) == 2,
        what="both wait for nodes",
    )

    def failing(*_: Any) -> None:
        raise KeyError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(DeploymentController, "scale", failing)
        await fill(fleet)
        await fleet.add([ReportedCluster("eu", {"h100": 8})])
        await is_placed(fleet, "other")

        redelivery = fleet.client.get_workflow_handle(names.redelivery_id(VICTIM))

        await eventually(
            scheduler_status,
            lambda seen: any(
                VICTIM in event["message"] and redelivery.id in event["message"]
                for event in seen.get("events", [])
            ),
            what="the scheduler names the refusal",
        )
        held = (await redelivery.query("describe"))["status"]
        assert held["held"] >= 1
        assert "signal" in held["problem"]
        assert names.FLEET_SCHEDULER_ID in held["senders"]

    # The victim reads its signals, and continues as a new run.
    await is_placed(fleet, "victim")

    async def status() -> WorkflowExecutionStatus | None:
        return (await redelivery.describe()).status

    await eventually(
        status, lambda seen: seen == WorkflowExecutionStatus.COMPLETED, what="delivered"
    )
