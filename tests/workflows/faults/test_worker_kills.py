"""The worker may be killed at any moment: the outcome is the same, nothing is doubled and nothing is left."""

import asyncio

import pytest

from tests.random_cases import generator
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, eventually

pytestmark = pytest.mark.testbed


async def kill_after(plane: ControlPlane, seconds: float) -> None:
    await asyncio.sleep(seconds)
    plane.worker.kill()
    await asyncio.to_thread(plane.worker.start)


@pytest.mark.random
async def test_wkl_115_ten_kills_during_apply_scale_and_delete_change_nothing_in_the_outcome(plane: ControlPlane, namespace: str) -> None:
    chance = generator()
    name = "busy"
    moments = [chance.uniform(0.05, 2.5) for _ in range(10)]

    await plane.apply(a_deployment(name, namespace, replicas=2))
    for moment in moments[:4]:
        await kill_after(plane, moment)
    applied = await plane.ready("ModelDeployment", name, namespace)
    assert applied["status"]["replicas"] == {"total": 2, "ready": 2}

    await plane.scale(name, namespace, 4)
    for moment in moments[4:7]:
        await kill_after(plane, moment)
    scaled = await plane.until("ModelDeployment", name, lambda seen: ready_count(seen) == 4, namespace)
    assert len({placement["replica"] for placement in scaled["status"]["placements"]}) == 4
    running = sum(len(plane.pods(cluster, namespace)) for cluster in plane.running.clusters)
    assert running == 4
    assert await plane.scheduler("audit") == []
    held = [entry for entry in await plane.scheduler("ledger") if entry["namespace"] == namespace]
    assert len(held) == 4

    await plane.delete("ModelDeployment", name, namespace)
    for moment in moments[7:]:
        await kill_after(plane, moment)
    await plane.gone("ModelDeployment", name, namespace)
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []

    async def ledger() -> list[Json]:
        return [entry for entry in await plane.scheduler("ledger") if entry["namespace"] == namespace]

    await eventually(ledger, lambda entries: entries == [], what="the ledger's release of every node")


def ready_count(seen: Json) -> int:
    return int(seen.get("status", {}).get("replicas", {}).get("ready", 0))
