"""Workers are lost and others take over, with entities in the caches of the lost ones.

These tests use a real Temporal server.
"""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from activities.messaging.search_attributes import identity_at_start
from api_types import names, queues
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.protocol_fleet import NAMESPACE, ProtocolFleet
from tests.workflows.environment.simulated_fleet import apply_clusters, simulated_fleet

pytestmark = pytest.mark.testbed("shared")

LIVE = 100
AT_ONCE = 32
# Maximum seconds from the change to its decision. The new workers serve by then.
DECIDED_SECONDS = 5


async def start_entities(fleet: ProtocolFleet) -> None:
    """Start entities that have nothing to do, and wait until a worker has cached them."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        named = ("InferenceClass", "", name)
        async with gate:
            handle = await fleet.client.start_workflow(
                named[0],
                None,
                id=names.workflow_id(*named),
                task_queue=queues.WORKFLOWS,
                **identity_at_start(*named),
            )
            await handle.query("account")

    await asyncio.gather(*(one(f"live-{number}") for number in range(LIVE)))


async def test_a_fresh_change_is_decided_within_seconds_of_a_restart_of_all_workers(
    tmp_path: Path,
) -> None:
    async with simulated_fleet(clients=1, apart=tmp_path) as fleet:
        await apply_clusters(fleet, {"eu": {"gpus": 4}})
        await start_entities(fleet)
        # A workflow in the lost worker's cache, above all the scheduler, waits for that
        # worker until the server resets its sticky queue.
        await fleet.restart_workers()
        await fleet.apply(a_deployment("fresh", NAMESPACE))
        await eventually(
            partial(fleet.describe, "fresh"),
            lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True",
            within=DECIDED_SECONDS,
            what="the decision about a fresh deployment",
        )
