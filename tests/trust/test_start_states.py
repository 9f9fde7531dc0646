"""Workflows reject a start state that a client made up.

The tests run on a real server, for every registered workflow and every way to start
one.
"""

import contextlib
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
)
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy

from activities.messaging.search_attributes import identity_at_start
from api_types import names, queues
from api_types.messages.entities import StartReplica
from api_types.resources.kinds import BY_KIND
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from tests.workflows.environment.failed_starts import refusal_of
from tests.workflows.environment.harness import a_deployment, eventually
from tests.workflows.environment.protocol_fleet import protocol_server
from tests.workflows.environment.run_before import serving_runs_before, start_continued
from worker import build_activities, build_workers
from workflows import registry
from workflows.model_deployment.state import DeploymentState

pytestmark = pytest.mark.testbed("shared")

REFUSED = "start argument 1: must be null; only a continued run has a state"
# Events before the event that ends a run: one for the start, three for the first
# workflow task.
ENDED_WITH = 4
# A workflow of another test may already have started this one.
REPLACED = WorkflowIDConflictPolicy.TERMINATE_EXISTING
# A forged state that names a credential, a uid and a generation.
MADE_UP: dict[str, Any] = {
    "uid": "made-up",
    "generation": 7,
    "epoch": 5,
    "spec": {"authSecret": {"name": "kubeconfig"}},
}
BIRTH = StartReplica(
    uid="told",
    namespace="ml",
    name="r",
    deployment="d",
    deployment_uid="v",
    cluster="eu",
    index=0,
    generation=1,
    spec={},
).wire()


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[Client]:
    """Yield the client of a server without a worker.

    Each test uses its own workflow IDs.
    """
    async with protocol_server() as client:
        yield client


@contextlib.asynccontextmanager
async def serving(client: Client) -> AsyncIterator[None]:
    """Run a worker for all workflows."""
    settings = Settings(
        queues=QueueSettings(serve=(queues.WORKFLOWS, queues.SCHEDULER)),
        worker=WorkerSettings(graceful_shutdown_seconds=0),
    )
    with ThreadPoolExecutor() as threads:
        async with contextlib.AsyncExitStack() as stack:
            for worker in build_workers(
                client, settings, build_activities(settings), threads
            ).values():
                await stack.enter_async_context(worker)
            await stack.enter_async_context(serving_runs_before(client))
            yield


def id_and_queue(kind: str) -> tuple[str, str]:
    if kind == "FleetScheduler":
        return names.FLEET_SCHEDULER_ID, queues.SCHEDULER
    if kind == "StackUpgrades":
        return names.STACK_UPGRADES_ID, queues.WORKFLOWS
    if kind == "CloudCluster":
        return names.cloud_cluster_id("r", "u"), queues.WORKFLOWS
    if kind == "Redelivery":
        return names.redelivery_id("modeldeployment/ml/r"), queues.WORKFLOWS
    return names.workflow_id(
        kind, "ml" if kind in BY_KIND and BY_KIND[kind].namespaced else "", "r"
    ), queues.WORKFLOWS


async def test_no_workflow_accepts_a_forged_state(client: Client) -> None:
    async with serving(client):
        for workflow in registry.WORKFLOWS:
            workflow_id, queue = id_and_queue(workflow.kind)
            made_up = {**MADE_UP, "start": BIRTH}
            handle = await client.start_workflow(
                workflow.kind,
                made_up,
                id=workflow_id,
                task_queue=queue,
                id_conflict_policy=REPLACED,
            )
            if workflow.kind != "ModelReplica":
                assert (await refusal_of(handle)).startswith(REFUSED), workflow.kind
                continue
            # The replica takes its identity from `start`, which its deployment sends,
            # and ignores the other fields.
            account = await handle.query("account")
            described = (await handle.query("describe"))["metadata"]
            assert (account["uid"], described["uid"], described["generation"]) == (
                "told",
                "told",
                1,
            )


async def test_the_scheduler_rejects_a_second_payload(
    client: Client,
) -> None:
    async with serving(client):
        workflow_id, queue = id_and_queue("FleetScheduler")
        handle = await client.start_workflow(
            "FleetScheduler",
            args=[None, {"fleet": ["x"]}],
            id=workflow_id,
            task_queue=queue,
            id_conflict_policy=REPLACED,
        )
        assert (await refusal_of(handle)).startswith("start argument 2: must be null")


async def test_no_run_of_a_cron_schedule_accepts_a_forged_state(
    client: Client,
) -> None:
    deployment = names.workflow_id("ModelDeployment", "ml", "repeated")
    handle = await client.start_workflow(
        "ModelDeployment",
        MADE_UP,
        id=deployment,
        task_queue=queues.WORKFLOWS,
        cron_schedule="@every 1s",
    )
    assert handle.first_execution_run_id

    async def continued() -> str:
        runs = [
            each async for each in client.list_workflows(f'WorkflowId = "{deployment}"')
        ]
        return next(
            (
                each.run_id
                for each in runs
                if each.run_id != handle.first_execution_run_id
            ),
            "",
        )

    async def history(run_id: str) -> list[Any]:
        return list(
            (
                await client.get_workflow_handle(
                    deployment, run_id=run_id
                ).fetch_history()
            ).events
        )

    async with serving(client):
        second = await eventually(continued, bool, what="the second run")
        events = await eventually(
            partial(history, second),
            lambda found: len(found) > ENDED_WITH,
            what="the end of the second run",
        )
        # The server marks this run as continued from the first run, as it does for a
        # genuine state.
        assert events[
            0
        ].workflow_execution_started_event_attributes.continued_execution_run_id
        third = await history(
            events[
                -1
            ].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        )
        assert third[
            0
        ].workflow_execution_started_event_attributes.continued_failure.message.startswith(
            REFUSED
        )
        await client.get_workflow_handle(deployment).terminate("the test ends")


async def test_a_retried_run_rejects_a_forged_state(client: Client) -> None:
    deployment = names.workflow_id("ModelDeployment", "ml", "retried")
    # No worker takes the first run before it times out.
    await client.start_workflow(
        "ModelDeployment",
        MADE_UP,
        id=deployment,
        task_queue=queues.WORKFLOWS,
        run_timeout=timedelta(seconds=10),
        # On a busy machine a worker may need longer to start than a run may last, so
        # attempts are unlimited and the pause between them stays short.
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=1), backoff_coefficient=1
        ),
    )
    handle = client.get_workflow_handle(deployment)

    async def attempt() -> int:
        history = await handle.fetch_history()
        return history.events[0].workflow_execution_started_event_attributes.attempt

    await eventually(attempt, lambda number: number > 1, what="the retry")
    async with serving(client):
        assert (await refusal_of(handle)).startswith(REFUSED)


async def test_a_run_of_a_schedule_rejects_a_forged_state(
    client: Client,
) -> None:
    deployment = names.workflow_id("ModelDeployment", "ml", "scheduled")
    action = ScheduleActionStartWorkflow(
        "ModelDeployment", MADE_UP, id=deployment, task_queue=queues.WORKFLOWS
    )
    schedule = await client.create_schedule(
        "made-up",
        Schedule(action=action, spec=ScheduleSpec()),
        trigger_immediately=True,
    )

    async def started() -> str:
        taken = (await schedule.describe()).info.recent_actions
        last = taken[-1].action if taken else None
        return (
            last.workflow_id
            if isinstance(last, ScheduleActionExecutionStartWorkflow)
            else ""
        )

    async with serving(client):
        workflow_id = await eventually(started, bool, what="the start")
        assert (await refusal_of(client.get_workflow_handle(workflow_id))).startswith(
            REFUSED
        ) or workflow_id != deployment


async def test_a_continued_state_is_accepted_even_after_a_reset(
    client: Client,
) -> None:
    deployment = names.workflow_id("ModelDeployment", "ml", "carried")
    state = DeploymentState(
        uid="d",
        generation=3,
        spec=a_deployment("chat", "ml", replicas=0)["spec"],
        adopted=True,
    )
    async with serving(client):
        await start_continued(
            client,
            "ModelDeployment",
            deployment,
            state.model_dump(mode="json", by_alias=True),
            **identity_at_start("ModelDeployment", "ml", "chat"),
        )
        handle = client.get_workflow_handle(deployment)

        async def generation() -> int:
            described = await handle.describe()
            return (
                (await handle.query("describe"))["metadata"]["generation"]
                if described.workflow_type == "ModelDeployment"
                else 0
            )

        await eventually(
            generation, lambda number: number == 3, what="the continued run"
        )
        run = (await handle.describe()).run_id
        events = (await handle.fetch_history()).events
        first_task = next(
            each.event_id
            for each in events
            if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        )
        reset = await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(
                    workflow_id=deployment, run_id=run
                ),
                reason="a test",
                workflow_task_finish_event_id=first_task,
                request_id=uuid.uuid4().hex,
            )
        )
        assert reset.run_id != run
        assert (await handle.query("describe"))["metadata"]["generation"] == 3
