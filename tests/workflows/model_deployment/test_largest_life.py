"""The whole lifecycle of a deployment whose replicas are too large or too many for a
single payload.
"""

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from api_types import names
from api_types.limits import REPLICAS_MAX
from api_types.messages.entities import Delete
from tests.random_cases import FACTOR
from tests.workflows.environment.harness import a_deployment, eventually
from tests.workflows.environment.payload_sizes import assert_within_limits
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    Json,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)


def large(generation: int, replicas: int, environment: int) -> Json:
    """Return a deployment with an environment of this size in bytes.

    A new template reaches all replicas at once.
    """
    document = a_deployment("large", NAMESPACE, replicas=replicas)
    container = document["spec"]["template"]["spec"]["engines"][0]["members"][0][
        "template"
    ]["spec"]["containers"][0]
    container["env"] = [
        {"name": f"V{n}", "value": str(generation) * (environment // 10)}
        for n in range(10)
    ]
    document["spec"]["rollout"] = {"type": "AllAtOnce"}
    return document


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize(
    ("replicas", "environment"),
    # A campaign uses the maximum number of replicas, which takes minutes of processor
    # time. `tests/api_types/messages/test_largest_messages.py` measures a message of a
    # thousand.
    [(17, 130_000), (REPLICAS_MAX if FACTOR > 1 else 50, 100)],
    ids=["large", "thousand"],
)
async def test_large_or_many_replicas_complete_a_whole_lifecycle(
    replicas: int, environment: int
) -> None:
    async with protocol_fleet(clients=1) as fleet:
        await fleet.add([ReportedCluster("big", {"pool": 2 * replicas})])
        await fleet.apply(large(1, replicas, environment))
        await eventually(
            lambda: started(fleet),
            lambda count: count == replicas,
            what="every replica started",
        )
        await fleet.apply(large(2, replicas, environment), request_id="second")
        await eventually(
            lambda: with_template(fleet, "2"),
            lambda count: count == replicas,
            what="every replica changed",
        )
        await fleet.scale("large", 3, "down")
        await eventually(
            lambda: placed(fleet), lambda count: count == 3, what="scaled down"
        )
        deployment = names.workflow_id("ModelDeployment", NAMESPACE, "large")
        for workflow_id in (deployment, names.FLEET_SCHEDULER_ID):
            description = await fleet.client.get_workflow_handle(workflow_id).describe()
            assert description.status == WorkflowExecutionStatus.RUNNING
            await assert_within_limits(fleet.client, workflow_id)
        order = Delete(request_id="delete", by="test").wire()
        await fleet.client.get_workflow_handle(deployment).signal("delete", order)
        await eventually(
            lambda: fleet.running("ModelDeployment"),
            lambda count: count == 0,
            what="deleted",
        )


async def started(fleet: ProtocolFleet) -> int:
    return await fleet.running("ModelReplica")


async def placed(fleet: ProtocolFleet) -> int:
    seen = await fleet.describe("large")
    return (
        len(
            [
                row
                for row in seen["status"]["placements"]
                if row["phase"] != "Terminating"
            ]
        )
        if seen
        else 0
    )


async def with_template(fleet: ProtocolFleet, value: str) -> int:
    """Count the replicas with a template, up to the first one with another template or
    without an answer, because a thousand are busy for a while.
    """
    count = 0
    async for row in fleet.client.list_workflows(
        'ExecutionStatus = "Running" AND WorkflowType = "ModelReplica"'
    ):
        try:
            seen = await fleet.client.get_workflow_handle(row.id).query("describe")
        except RPCError:
            return count
        env = seen["spec"]["engines"][0]["members"][0]["template"]["spec"][
            "containers"
        ][0]["env"]
        if not env[0]["value"].startswith(value):
            return count
        count += 1
    return count
