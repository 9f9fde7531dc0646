"""The fleet policy outlives the scheduler, and the loss of the policy is detected."""

from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from api_types import names
from api_types.messages.scheduling import SetPolicy
from tests.workflows.environment.harness import a_deployment, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)
from tests.workflows.environment.short_runs import runs
from workflows.fleet_scheduler import policy_record

pytestmark = pytest.mark.testbed("shared")


async def set_profile(fleet: ProtocolFleet, profile: str) -> None:
    scheduler = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
    await scheduler.signal("set_policy", SetPolicy(policy={"profile": profile}).wire())
    await eventually(
        lambda: fleet.scheduler("policy"),
        lambda seen: seen and seen["policy"]["profile"] == profile,
        what=f"policy {profile}",
    )


async def answered(fleet: ProtocolFleet) -> dict[str, Any]:
    """Return the policy of a new scheduler once its rebuild is complete."""
    await eventually(
        lambda: fleet.scheduler("describe"),
        lambda seen: seen and not seen["status"]["rebuilding"],
        what="a scheduler",
    )
    answer: dict[str, Any] = await fleet.scheduler("policy")
    return answer


async def forget_closed_runs(client: Client) -> None:
    """Delete every closed run of the scheduler on the server, as it does when their
    retention ends.
    """
    closed = (
        f'WorkflowId = "{names.FLEET_SCHEDULER_ID}" AND ExecutionStatus != "Running"'
    )

    async def left() -> int:
        rows = [row async for row in client.list_workflows(closed)]
        for row in rows:
            execution = WorkflowExecution(workflow_id=row.id, run_id=row.run_id)
            request = DeleteWorkflowExecutionRequest(
                namespace=client.namespace, workflow_execution=execution
            )
            try:
                await client.workflow_service.delete_workflow_execution(request)
            except RPCError as error:
                # Visibility still shows a run for a moment after its deletion.
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
        return len(rows)

    await eventually(left, lambda count: count == 0, what="no closed run")


async def test_a_policy_outlives_schedulers_and_their_runs_and_its_lost_record_is_detected() -> (
    None
):
    async with protocol_fleet(clients=1, events=40) as fleet:
        await fleet.add([ReportedCluster("c", {"p": 2})])
        await fleet.apply(a_deployment("first", NAMESPACE))
        await eventually(
            lambda: fleet.running("ModelReplica"),
            lambda count: count == 1,
            what="a replica",
        )
        # A fleet that never had a policy misses none.
        await fleet.terminate_scheduler()
        assert (await answered(fleet))["lost"] == ""
        await set_profile(fleet, "dense")

        async def several_runs() -> int:
            await fleet.report()
            return await runs(fleet.client, names.FLEET_SCHEDULER_ID)

        before = await runs(fleet.client, names.FLEET_SCHEDULER_ID)
        await eventually(
            several_runs,
            lambda count: count > before,
            what="another run",
            longest_pause=0.1,
        )
        # The scheduler is lost twice, the first time before it has done anything.
        await fleet.terminate_scheduler()
        await fleet.terminate_scheduler()
        answer = await answered(fleet)
        assert (answer["policy"]["profile"], answer["problem"], answer["lost"]) == (
            "dense",
            "",
            "",
        )
        # No worker starts another one before the record is gone.
        await fleet.lose_workers()
        await fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).terminate(
            "lost on purpose"
        )
        await forget_closed_runs(fleet.client)
        await fleet.start_workers()
        assert (await answered(fleet))["lost"] == policy_record.LOST
        assert (await fleet.scheduler("describe"))["status"][
            "policyLost"
        ] == policy_record.LOST
        # The next scheduler does not mistake the defaults for the policy either.
        await fleet.terminate_scheduler()
        assert (await answered(fleet))["lost"] == policy_record.LOST
        await set_profile(fleet, "cheap")
        assert (await answered(fleet))["lost"] == ""
        await fleet.terminate_scheduler()
        answer = await answered(fleet)
        assert (answer["policy"]["profile"], answer["lost"]) == ("cheap", "")
