"""Long lives: a storm of signals over many runs loses none and applies none twice."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.messaging import Messaging, attributes_of, ensure_scheduler
from api_types import names, queues
from api_types.messages import Scale, SetSpec
from testbed.install import Installer
from testbed.testbed import TEMPORAL
from testbed.versions import TOOLS
from tests.workflows.harness import a_deployment, eventually
from worker import register_search_attributes
from workflows import registry

pytestmark = pytest.mark.timeout(300)

SIGNALS = 2000
AT_ONCE = 50
THREADS = 8


@pytest.fixture
async def impatient_server() -> AsyncIterator[Client]:
    """A real server that suggests continue-as-new after a few events."""
    program = Installer(print).programs(tool for tool in TOOLS if tool.name == TEMPORAL)[TEMPORAL]
    limit = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"]
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter, dev_server_existing_path=str(program), dev_server_extra_args=limit
    ) as server:
        await register_search_attributes(server.client)
        messaging = Messaging()
        telling = [messaging.tell, messaging.tell_many, messaging.ask, messaging.ask_each, messaging.start_replicas]
        telling += [messaging.survey, messaging.broadcast]
        runner = registry.sandbox()
        with ThreadPoolExecutor(max_workers=THREADS) as threads:
            entities = Worker(
                server.client, task_queue=queues.WORKFLOWS, workflows=registry.ENTITIES, activities=telling, workflow_runner=runner
            )
            scheduler = Worker(
                server.client,
                task_queue=queues.SCHEDULER,
                workflows=registry.SCHEDULER_WORKFLOWS,
                activities=[*telling, *registry.SCHEDULER_ACTIVITIES],
                workflow_runner=runner,
                activity_executor=threads,
                max_concurrent_activities=THREADS,
            )
            async with entities, scheduler:
                await ensure_scheduler(server.client)
                yield server.client


async def runs(client: Client, workflow_id: str) -> int:
    return sum([1 async for _ in client.list_workflows(f'WorkflowId = "{workflow_id}"')])


async def test_two_thousand_scale_signals_while_runs_follow_each_other_are_each_applied_once(impatient_server: Client) -> None:
    name = f"storm-{uuid.uuid4().hex[:8]}"
    workflow_id = names.workflow_id("ModelDeployment", "storm", name)
    document = a_deployment(name, "storm", replicas=0)
    handle = await impatient_server.start_workflow(
        "ModelDeployment",
        None,
        id=workflow_id,
        task_queue=queues.WORKFLOWS,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=attributes_of("ModelDeployment", "storm", name),
        start_signal="set_spec",
        start_signal_args=[SetSpec(request_id="first", by="test", manifest=document).wire()],
    )
    handle = impatient_server.get_workflow_handle(workflow_id)
    # Each count differs from the one before, so each accepted order is exactly one generation.
    for burst in range(SIGNALS // AT_ONCE):
        orders = [Scale(request_id=f"{burst}/{number}", by="test", replicas=burst * AT_ONCE + number + 1) for number in range(AT_ONCE)]
        await asyncio.gather(*(handle.signal("scale", {**order.wire(), "replicas": order.replicas % 1000 + 1}) for order in orders))

    async def generation() -> int:
        return int((await handle.query("describe"))["metadata"]["generation"])

    await eventually(generation, lambda seen: seen == 1 + SIGNALS, within=120, what="the generation of the deployment")
    await asyncio.sleep(2)
    assert await generation() == 1 + SIGNALS
    assert await runs(impatient_server, workflow_id) > 1
    assert await runs(impatient_server, names.FLEET_SCHEDULER_ID) > 1
    described = await handle.query("describe")
    assert "of" in next(item["message"] for item in described["status"]["conditions"] if item["type"] == "ReplicasScheduled")
