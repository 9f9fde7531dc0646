"""All worker processes of a large fleet are killed: a new object is placed, and no entity is lost.

`tests/bench/lost_scheduler.py` and `tests/bench/temporal_burst.py` measure how long
that takes.
"""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client

from api_types import names, queues
from scheduler.model.reasons import BOUND
from tests.bench.lost_scheduler import POOLS, entries
from tests.bench.temporal_burst import placed_count
from tests.workflows.environment.harness import a_deployment, eventually, worker_process
from tests.workflows.environment.protocol_fleet import NAMESPACE, ProtocolFleet, WorkerApart
from tests.workflows.environment.simulated_fleet import (
    apply_clusters,
    simulated_fleet,
    until_known,
)

pytestmark = [pytest.mark.soak, pytest.mark.testbed("shared"), pytest.mark.timeout(3600)]

CLUSTERS, DEPLOYMENTS, REPLICAS = 300, 100, 4
# A busy machine replays hundreds of histories in minutes.
WITHIN_SECONDS = 1200
KINDS = ("InferenceCluster", "ModelDeployment", "ModelReplica")


async def running(client: Client) -> dict[str, list[str]]:
    """Return the ids of the running workflows by kind."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        rows = client.list_workflows(f'WorkflowType = "{kind}" AND ExecutionStatus = "Running"')
        found[kind] = sorted([row.id async for row in rows])
    return found


async def fill(fleet: ProtocolFleet) -> None:
    """Create the clusters and the deployments, and wait until every replica is started."""
    pools = dict.fromkeys(POOLS, 2)
    await apply_clusters(fleet, {f"cluster-{number:04}": pools for number in range(CLUSTERS)})
    numbers = range(DEPLOYMENTS)
    await fleet.submit([a_deployment(f"d-{n:04}", NAMESPACE, replicas=REPLICAS) for n in numbers])

    async def count() -> int:
        return len((await running(fleet.client))["ModelReplica"])

    wanted = DEPLOYMENTS * REPLICAS
    await eventually(count, lambda found: found == wanted, within=WITHIN_SECONDS, what="replicas")

    async def bound() -> bool:
        return all(entry.state == BOUND for entry in await entries(fleet))

    await eventually(bound, bool, within=WITHIN_SECONDS, what="a ledger of started replicas")


@pytest.mark.parametrize("scheduler", ["kept", "terminated"])
async def test_no_entity_is_lost_with_all_worker_processes(scheduler: str, tmp_path: Path) -> None:
    async with simulated_fleet(apart=tmp_path) as fleet:
        served = {"MODELPLANE_QUEUES__SERVE": json.dumps([queues.WORKFLOWS, queues.SCHEDULER])}
        address = fleet.client.service_client.config.target_host
        log = tmp_path / "second.log"
        second = WorkerApart(worker_process(address, tmp_path / "secrets", log, **served))
        await second.start()
        try:
            await fill(fleet)
            before, ledger = await running(fleet.client), await placements(fleet)
            # Both are killed in the middle of a change of every deployment.
            numbers = range(DEPLOYMENTS)
            orders = [fleet.scale(f"d-{n:04}", REPLICAS + 1, f"grow/{n}") for n in numbers]
            await asyncio.gather(*orders)
            await asyncio.gather(fleet.lose_workers(), second.lose())
            if scheduler == "terminated":
                handle = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
                await handle.terminate("lost on purpose")
            fresh = a_deployment("fresh", NAMESPACE)
            await asyncio.gather(fleet.start_workers(), second.start(), fleet.apply(fresh))
            await eventually(
                lambda: placed_count(fleet, "fresh", 1), bool, within=WITHIN_SECONDS, what="fresh"
            )
            await until_known(fleet, CLUSTERS, WITHIN_SECONDS)
            wanted = DEPLOYMENTS * (REPLICAS + 1) + 1

            async def charged() -> int:
                return len(await placements(fleet))

            await eventually(
                charged, lambda found: found == wanted, within=WITHIN_SECONDS, what="the ledger"
            )

            async def started() -> int:
                return len((await running(fleet.client))["ModelReplica"])

            await eventually(
                started, lambda found: found == wanted, within=WITHIN_SECONDS, what="replicas"
            )
            after = await running(fleet.client)
            for kind in KINDS:
                assert set(before[kind]) <= set(after[kind])
            assert ledger.items() <= (await placements(fleet)).items(), "no replica moved"
            assert await fleet.scheduler("audit") == []
            for workflow_id in [each for kind in KINDS for each in after[kind]]:
                await answers(fleet, workflow_id)
        finally:
            await second.shut_down()


async def placements(fleet: ProtocolFleet) -> dict[str, str]:
    """Return the cluster of each replica in the ledger, by uid."""
    return {entry.uid: entry.cluster for entry in await entries(fleet)}


async def answers(fleet: ProtocolFleet, workflow_id: str) -> None:
    """Wait until an entity describes itself."""
    look = partial(fleet._query, workflow_id, "describe")
    await eventually(look, bool, within=WITHIN_SECONDS, what=workflow_id)
