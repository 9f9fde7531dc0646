"""The scheduler over many runs of its workflow.

Placements stay, and large fleets are read in parts.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from activities.messaging.search_attributes import identity_at_start
from activities.messaging.sending import ensure_scheduler
from api_types import names, queues
from api_types.payloads.packing import unpack
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from scheduler.fleet.snapshots.ledger_rows import unpack_rows
from tests.scheduler.builders import IS_GPU, alone, ask, deployment, engine
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.protocol_fleet import ReportedCluster, workers_here
from tests.workflows.environment.short_runs import runs, server_with_short_runs
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler import continue_as_new

pytestmark = pytest.mark.testbed("shared")

ROUNDS = 5
AT_ONCE = 10


def request(number: int, uid: str) -> dict[str, Any]:
    return place(
        deployment(engine("main", alone(ask(IS_GPU))), name=f"d{number}", uid=uid)
    ).wire()


async def start_deployment(client: Client, number: int) -> str:
    """Start the deployment of a request, because the scheduler releases reservations of
    missing deployments; return its uid.

    The deployment has no spec, so it requests nothing itself and ignores answers to
    foreign requests.
    """
    view = deployment(name=f"d{number}")
    named = ("ModelDeployment", view.namespace, view.name)
    started = await client.start_workflow(
        named[0],
        None,
        id=names.workflow_id(*named),
        task_queue=queues.WORKFLOWS,
        **identity_at_start(*named),
    )
    uid: str = (await started.query("account"))["uid"]
    return uid


@asynccontextmanager
async def served_here() -> AsyncIterator[Client]:
    """Start a control plane of many runs in this process, so that a test can access it."""
    settings = Settings(
        queues=QueueSettings(serve=(queues.WORKFLOWS, queues.SCHEDULER))
    )
    async with server_with_short_runs(events=60) as client:
        with ThreadPoolExecutor(settings.worker.max_concurrent_activities) as threads:
            async with AsyncExitStack() as stack:
                for worker in workers_here(client, settings, threads).values():
                    await stack.enter_async_context(worker)
                await ensure_scheduler(client)
                yield client


async def all_entries(scheduler: WorkflowHandle[Any, Any]) -> list[str]:
    page = await eventually(
        lambda: scheduler.query("ledger_page", ""),
        lambda page: page["complete"],
        what="a ledger that was read whole",
    )
    return [entry.uid for entry in unpack_rows(unpack(page["entries"]))]


async def send_rounds(client: Client) -> tuple[WorkflowHandle[Any, Any], list[str]]:
    """Send all requests; return the scheduler's handle and the deployments' uids."""
    uids: list[str] = []
    scheduler = client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
    for number in range(3):
        await scheduler.signal(
            "report_cluster",
            ReportedCluster(f"c{number}", {"p": ROUNDS * AT_ONCE}).report(1).wire(),
        )
    for start in range(0, ROUNDS * AT_ONCE, AT_ONCE):
        uids += await asyncio.gather(
            *(
                start_deployment(client, number)
                for number in range(start, start + AT_ONCE)
            )
        )
        await asyncio.gather(
            *(
                scheduler.signal("place", request(number, uids[number]))
                for number in range(start, start + AT_ONCE)
            )
        )
        await asyncio.sleep(0.5)
    return scheduler, uids


async def test_placements_stay_the_same_over_many_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every fleet counts as large here, so each run reads the last one's state in parts.
    monkeypatch.setattr(continue_as_new, "PARTS_AT_ONCE", 0)
    async with served_here() as client:
        scheduler, uids = await send_rounds(client)

        async def placed() -> int:
            return int((await scheduler.query("describe"))["status"]["replicas"])

        await eventually(
            placed,
            lambda count: count == ROUNDS * AT_ONCE,
            what="every request placed once",
        )
        before = sorted(await all_entries(scheduler))
        assert len(set(before)) == ROUNDS * AT_ONCE
        assert await scheduler.query("audit") == []

        async def runs_after_the_same_requests() -> int:
            await asyncio.gather(
                *(
                    scheduler.signal("place", request(number, uids[number]))
                    for number in range(AT_ONCE)
                )
            )
            return await runs(client, names.FLEET_SCHEDULER_ID)

        # A repeated request in a later run gets the same answer, and nothing is charged
        # twice.
        await eventually(
            runs_after_the_same_requests,
            lambda count: count > 3,
            what="a fourth run of the scheduler",
        )
        await eventually(
            lambda: scheduler.query("waiting"), lambda waiting: waiting == []
        )
        assert sorted(await all_entries(scheduler)) == before
