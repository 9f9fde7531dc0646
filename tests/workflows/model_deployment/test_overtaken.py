"""A deployment that changes faster than it is answered: no order of a superseded answer is lost."""

import asyncio
from functools import partial
from random import Random

import pytest

from scheduler.model.reasons import BOUND
from tests.random_cases import generator
from tests.workflows.environment.harness import a_deployment, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)
from tests.workflows.environment.topologies import with_image

pytestmark = pytest.mark.testbed("shared")

DEPLOYMENTS = [f"fast-{number}" for number in range(4)]
REPLICAS = 4
CHANGES = 12


async def images(fleet: ProtocolFleet, name: str) -> list[str]:
    """Return the image in the last template of each replica of a deployment."""
    seen = await fleet.describe(name)
    found = []
    for placement in (seen or {}).get("status", {}).get("placements", []):
        replica = await fleet.replica(placement["replica"])
        engines = replica["spec"]["engines"] if replica else []
        found += [
            engine["members"][0]["template"]["spec"]["containers"][0]["image"]
            for engine in engines
        ]
    return found


@pytest.mark.random
async def test_every_replica_gets_the_last_template_and_the_last_count_holds() -> None:
    async with protocol_fleet() as fleet:
        await fleet.add([ReportedCluster("c", {"p": 2 * len(DEPLOYMENTS) * REPLICAS})])

        async def change_often(name: str, chance: Random) -> None:
            document = a_deployment(name, NAMESPACE, replicas=REPLICAS)
            document["spec"]["rollout"] = {"type": "AllAtOnce"}
            await fleet.apply(document)
            for number in range(CHANGES):
                await asyncio.sleep(chance.uniform(0, 0.15))
                await fleet.scale(name, chance.randint(1, REPLICAS), f"{name}/{number}")
                await asyncio.sleep(chance.uniform(0, 0.15))
                await fleet.apply(
                    with_image(document, f"registry.example/engine:{number}"),
                    request_id=f"{name}/image/{number}",
                )
            await fleet.scale(name, REPLICAS, f"{name}/last")

        # Each deployment has its own generator. With a common one, their order, which
        # no run repeats, would decide the choices.
        chances = generator()
        await asyncio.gather(
            *(change_often(name, Random(chances.random())) for name in DEPLOYMENTS)  # noqa: S311
        )
        last = [f"registry.example/engine:{CHANGES - 1}"] * REPLICAS
        for name in DEPLOYMENTS:
            await eventually(
                partial(images, fleet, name),
                lambda found: found == last,
                what=f"images of {name}",
            )

        async def states() -> list[str]:
            return [
                entry.get("state", BOUND)
                for entry in await fleet.scheduler("ledger") or []
            ]

        await eventually(
            states,
            lambda found: found == [BOUND] * len(DEPLOYMENTS) * REPLICAS,
            what="the ledger",
        )
        assert await fleet.scheduler("audit") == []
