"""The scheduler over many runs of its workflow: placements stay, and large fleets are read part by part."""

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
from api_types.settings import QueueSettings, Settings
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
    return place(deployment(engine("main", alone(ask(IS_GPU))), name=f"d{number}", uid=uid)).wire()


async def start_deployment(client: Client, number: int) -> str:
    """Start the deployment of a request, for the scheduler gives back what it reserved for one that does not run; gives its uid.

    It has no spec, so it requests nothing itself, and ignores the answers to what it has not requested.
    """
    view = deployment(name=f"d{number}")
    named = ("ModelDeployment", view.namespace, view.name)
    started = await client.start_workflow(
        named[0], None, id=names.workflow_id(*named), task_queue=queues.WORKFLOWS, **identity_at_start(*named)
    )
    uid: str = (await started.query("account"))["uid"]
    return uid


@asynccontextmanager
async def served_here() -> AsyncIterator[Client]:
    """A control plane of many runs, served by this process so that a test can reach into it."""
    settings = Settings(queues=QueueSettings(serve=(queues.WORKFLOWS, queues.SCHEDULER)))
    async with server_with_short_runs(events=60) as client:
        with ThreadPoolExecutor(settings.worker.max_concurrent_activities) as threads:
            async with AsyncExitStack() as stack:
                for worker in workers_here(client, settings, threads).values():
                    await stack.enter_async_context(worker)
                await ensure_scheduler(client)
                yield client


async def all_entries(scheduler: WorkflowHandle[Any, Any]) -> list[str]:
    page = await eventually(lambda: scheduler.query("ledger_page", ""), lambda page: page["complete"], what="a ledger that was read whole")
    return [entry.uid for entry in unpack_rows(unpack(page["entries"]))]


async def send_rounds(client: Client) -> tuple[WorkflowHandle[Any, Any], list[str]]:
    """Send all requests; gives the scheduler, and the uids of the deployments."""
    uids: list[str] = []
    scheduler = client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
    for number in range(3):
        await scheduler.signal("report_cluster", ReportedCluster(f"c{number}", {"p": ROUNDS * AT_ONCE}).report(1).wire())
    for start in range(0, ROUNDS * AT_ONCE, AT_ONCE):
        uids += await asyncio.gather(*(start_deployment(client, number) for number in range(start, start + AT_ONCE)))
        await asyncio.gather(*(scheduler.signal("place", request(number, uids[number])) for number in range(start, start + AT_ONCE)))
        await asyncio.sleep(0.5)
    return scheduler, uids


async def test_sch_14_placements_stay_the_same_over_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every fleet counts as a large one here, so each run reads the last one's part by part.
    monkeypatch.setattr(continue_as_new, "PARTS_AT_ONCE", 0)
    async with served_here() as client:
        scheduler, uids = await send_rounds(client)

        async def placed() -> int:
            return int((await scheduler.query("describe"))["status"]["replicas"])

        await eventually(placed, lambda count: count == ROUNDS * AT_ONCE, what="every request placed once")
        before = sorted(await all_entries(scheduler))
        assert len(set(before)) == ROUNDS * AT_ONCE
        assert await scheduler.query("audit") == []

        async def runs_after_the_same_requests() -> int:
            await asyncio.gather(*(scheduler.signal("place", request(number, uids[number])) for number in range(AT_ONCE)))
            return await runs(client, names.FLEET_SCHEDULER_ID)

        # Asked again, in later runs, the answer is the same and nothing is charged twice.
        await eventually(runs_after_the_same_requests, lambda count: count > 3, what="a fourth run of the scheduler")
        await eventually(lambda: scheduler.query("waiting"), lambda waiting: waiting == [])
        assert sorted(await all_entries(scheduler)) == before
