"""The worker may be killed at any moment.

The outcome is the same, without duplicates and leftovers.
"""

import asyncio
import json
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from activities.render.objects.teardown import ENGINES
from tests.random_cases import generator
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
)
from tests.workflows.environment.one_cluster import (
    CLUSTER,
    HOLD,
    a_tenant,
    clean_up,
    here,
    images,
    nothing_is_left,
    set_finalizers,
    the_replica,
    waits_at_step,
    workload,
)

pytestmark = pytest.mark.testbed

NEW_IMAGE = "registry.example/engine:2"


async def kill_after(plane: ControlPlane, seconds: float) -> None:
    await asyncio.sleep(seconds)
    plane.worker.kill()
    await asyncio.to_thread(plane.worker.start)


@pytest.mark.soak
@pytest.mark.random
async def test_ten_worker_kills_during_apply_scale_and_delete_do_not_change_the_outcome(
    plane: ControlPlane, namespace: str
) -> None:
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
    scaled = await plane.until(
        "ModelDeployment", name, lambda seen: ready_count(seen) == 4, namespace
    )
    assert (
        len({placement["replica"] for placement in scaled["status"]["placements"]}) == 4
    )
    running = sum(
        len(plane.pods(cluster, namespace)) for cluster in plane.running.clusters
    )
    assert running == 4
    assert await plane.scheduler("audit") == []
    held = [
        entry
        for entry in await plane.scheduler("ledger")
        if entry["namespace"] == namespace
    ]
    assert len(held) == 4

    await plane.delete("ModelDeployment", name, namespace)
    for moment in moments[7:]:
        await kill_after(plane, moment)
    await plane.gone("ModelDeployment", name, namespace)
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []

    async def ledger() -> list[Json]:
        return [
            entry
            for entry in await plane.scheduler("ledger")
            if entry["namespace"] == namespace
        ]

    await eventually(
        ledger, lambda entries: entries == [], what="the ledger's release of every node"
    )


def teardown_steps(history: WorkflowHistory) -> list[int]:
    """Return the numbers of the steps that a replica attempted, in order."""
    scheduled = [
        event.activity_task_scheduled_event_attributes for event in history.events
    ]
    attempts = [
        each for each in scheduled if each.activity_type.name == "teardown_replica_step"
    ]
    return [json.loads(each.input.payloads[0].data)["number"] for each in attempts]


async def test_a_teardown_resumes_after_a_worker_kill_and_an_unobserved_rollout_is_noticed(
    plane: ControlPlane,
) -> None:
    leaving, rolling = a_tenant(), a_tenant()
    for namespace in (leaving, rolling):
        await plane.apply(here("model", namespace))
    for namespace in (leaving, rolling):
        await plane.ready("ModelDeployment", "model", namespace)
    gone, kept = (
        await the_replica(plane, "model", leaving),
        await the_replica(plane, "model", rolling),
    )
    held, rolled = workload(plane, leaving), workload(plane, rolling)
    set_finalizers(plane, held, HOLD)
    await plane.delete("ModelDeployment", "model", leaving)
    await plane.until(
        "ModelReplica", gone, lambda seen: waits_at_step(seen, ENGINES), leaving
    )
    await plane.apply(here("model", rolling, image=NEW_IMAGE))

    async def applied() -> bool:
        return NEW_IMAGE in str(plane.get(CLUSTER, rolled)["spec"]["template"])

    await eventually(applied, bool, what="the new template", longest_pause=0.3)
    plane.worker.kill()
    set_finalizers(plane, held)

    async def counts() -> list[Any]:
        status = plane.get(CLUSTER, rolled)["status"]
        return [
            status.get("updatedReplicas"),
            status.get("availableReplicas"),
            status.get("replicas"),
        ]

    # The whole transition is over before any worker watches again.
    await eventually(
        counts, lambda seen: seen == [1, 1, 1], what="the rollout of the engine"
    )
    await asyncio.to_thread(plane.worker.start)
    await plane.gone("ModelDeployment", "model", leaving)
    await nothing_is_left(plane, leaving)
    steps = teardown_steps(
        await plane.handle("ModelReplica", gone, leaving).fetch_history()
    )
    assert steps == sorted(steps)
    seen = await plane.until(
        "ModelDeployment",
        "model",
        lambda seen: (
            (seen["status"]["observedGeneration"], seen["status"]["phase"])
            == (2, "Ready")
        ),
        rolling,
    )
    assert [placement["replica"] for placement in seen["status"]["placements"]] == [
        kept
    ]
    assert await images(plane, rolling) == [NEW_IMAGE]
    await clean_up(plane, "model", rolling)


def ready_count(seen: Json) -> int:
    return int(seen.get("status", {}).get("replicas", {}).get("ready", 0))
