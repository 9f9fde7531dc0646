"""Two programs that scale one deployment, on a real server.

Its condition names both, and a new worker replays that.
"""

import pytest
from temporalio.client import WorkflowHandle

from api_types import names
from api_types.messages.entities import WEBHOOK_REQUEST, RecordEvent, Scale
from tests.workflows.environment.harness import a_deployment, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    Json,
    ProtocolFleet,
    protocol_fleet,
)
from tests.workflows.environment.replaying import replayer
from workflows.model_deployment.decisions.writers import SCALED_BY_ONE


async def condition(fleet: ProtocolFleet) -> Json | None:
    seen = await fleet.describe("chat")
    return (
        next(
            (
                each
                for each in seen["status"]["conditions"]
                if each["type"] == SCALED_BY_ONE
            ),
            None,
        )
        if seen
        else None
    )


@pytest.mark.slow
async def test_two_programs_that_scale_one_deployment_are_named() -> None:
    async with protocol_fleet(clients=1) as fleet:
        await fleet.apply(a_deployment("chat", NAMESPACE, replicas=0))
        deployment: WorkflowHandle[object, object] = fleet.client.get_workflow_handle(
            names.workflow_id("ModelDeployment", NAMESPACE, "chat")
        )
        for number, by in enumerate(("burst", "nightly")):
            order = Scale(
                request_id=f"{WEBHOOK_REQUEST}{number}", by=by, replicas=number
            )
            await deployment.signal("scale", order.wire())
            report = RecordEvent(
                request_id=f"report-{number}",
                by="keda",
                reason="ScaledObjectReady",
                message="the same each time",
            )
            await deployment.signal("record_event", report.wire())
        seen = await eventually(lambda: condition(fleet), bool, what="the condition")
        assert seen
        assert (seen["status"], seen["reason"]) == ("False", "SeveralAutoscalers")
        assert seen["message"].startswith(
            "burst and nightly have set the replica count within 10 minutes"
        )
        await replayer().replay_workflow(await deployment.fetch_history())
