"""A protocol fleet with real InferenceClusters that connect to nothing but answer a new
scheduler themselves.

The activities on clusters run in this process and are never lost. Replicas wait for a
worker that applies them, because their life on a cluster does not matter here.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from operator import eq
from pathlib import Path

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from activities.messaging.search_attributes import identity_at_start
from api_types import names, queues
from api_types.messages.entities import SetSpec
from api_types.queues import ClusterWork
from tests.workflows.environment.harness import Json, eventually
from tests.workflows.environment.protocol_fleet import ProtocolFleet, protocol_fleet
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
)

CLASS = "h100-8x"
AT_ONCE = 32


def with_pools(name: str, pools: Mapping[str, int]) -> Json:
    """Return a cluster with these pools and node counts."""
    document = a_cluster(name)
    document["spec"]["nodePools"] = [
        {"name": pool, "className": CLASS, "nodeCount": nodes}
        for pool, nodes in pools.items()
    ]
    return document


async def apply(
    client: Client, document: Json, task_queue: str = queues.WORKFLOWS
) -> None:
    """Apply a cluster-scoped object."""
    kind, name = document["kind"], document["metadata"]["name"]
    await client.start_workflow(
        kind,
        None,
        id=names.workflow_id(kind, "", name),
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        **identity_at_start(kind, "", name),
        start_signal="set_spec",
        start_signal_args=[
            SetSpec(request_id=uuid.uuid4().hex, by="test", manifest=document).wire()
        ],
    )


async def apply_clusters(
    fleet: ProtocolFleet,
    clusters: Mapping[str, Mapping[str, int]],
    devices: int = 1,
    wait_for: Sequence[str] = (),
) -> None:
    """Apply clusters, and wait until the scheduler sees the expected nodes on all of
    them, or on `wait_for`.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            await apply(fleet.client, with_pools(name, clusters[name]))

    of_nodes = a_class(CLASS)
    (device,) = of_nodes["spec"]["devices"]
    of_nodes["spec"]["devices"] += [
        {**device, "name": f"gpu-{number}"} for number in range(1, devices)
    ]
    await apply(fleet.client, of_nodes)
    await asyncio.gather(*(one(name) for name in clusters))
    for name in wait_for or clusters:
        wanted = sum(clusters[name].values())
        await eventually(
            partial(pool_nodes, fleet, name),
            partial(eq, wanted),
            what=f"{name} with {wanted} nodes",
            within=240,
        )


async def until_known(fleet: ProtocolFleet, clusters: int, within: float = 240) -> None:
    """Wait until the scheduler is complete and knows this number of clusters."""

    async def known() -> int:
        seen = await fleet.scheduler("describe")
        return (
            int(seen["status"]["clusters"])
            if seen and not seen["status"]["rebuilding"]
            else -1
        )

    await eventually(
        known,
        lambda count: count >= clusters,
        what=f"{clusters} clusters",
        within=within,
    )


async def pool_nodes(fleet: ProtocolFleet, cluster: str) -> int:
    """Return how many nodes the scheduler sees on a cluster, or -1 while it does not answer."""
    pools = await fleet.scheduler("pools", cluster)
    return -1 if pools is None else sum(pool["declared"] for pool in pools)


@asynccontextmanager
async def simulated_fleet(
    clients: int = 8, apart: Path | None = None, module: str = "worker", events: int = 0
) -> AsyncIterator[ProtocolFleet]:
    """Start a protocol fleet and the activities that connect to clusters and watch them."""
    simulated = SimulatedClusters()
    async with (
        protocol_fleet(clients, apart, module, events) as fleet,
        AsyncExitStack() as stack,
    ):
        for work in (ClusterWork.CALL, ClusterWork.WATCH):
            queue = queues.cluster_queue("", work)
            worker = Worker(
                fleet.client,
                task_queue=queue,
                activities=simulated.activities(),
                max_concurrent_activities=1_000,
            )
            await stack.enter_async_context(worker)
        yield fleet
