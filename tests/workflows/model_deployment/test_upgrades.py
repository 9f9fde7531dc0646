"""Changes that render other pods from an equal spec.

The pods stay until their owner or a setting replaces them, one by one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from activities.render.version import RENDERER_VERSION
from activities.secrets.store import SecretStore, StoredSecret
from api_types import labels, names
from api_types.messages.scheduling import SetPolicy
from tests.workflows.environment import worker_of_another_renderer as newer
from tests.workflows.environment.forking import WORKER
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    WorkerProcess,
    a_deployment,
    eventually,
)
from tests.workflows.environment.topologies import run, watching

pytestmark = pytest.mark.testbed

REPLICAS = 3
NEWER = "tests.workflows.environment.worker_of_another_renderer"
PENDING = f"renderer {newer.VERSION} changes {{}} replicas"
# Seconds for one rollout of all replicas, one after the other, on a busy machine.
ROLLED_SECONDS = 400.0


@asynccontextmanager
async def replaced_by(
    plane: ControlPlane, log: Path, module: str = NEWER, **settings: str
) -> AsyncIterator[None]:
    """Replace the worker by another one while the body runs."""
    other = WorkerProcess({**plane.worker.settings, **settings}, log, module)
    await asyncio.to_thread(plane.worker.stop)
    await asyncio.to_thread(other.start)
    try:
        yield
    finally:
        await asyncio.to_thread(other.stop)
        await asyncio.to_thread(plane.worker.start)


@asynccontextmanager
async def sharing_nodes(plane: ControlPlane) -> AsyncIterator[None]:
    """Let replicas share nodes.

    The testbed has fewer nodes than the largest of these tests has replicas.
    """
    scheduler = plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
    await scheduler.signal(
        "set_policy", SetPolicy(policy={"accounting": "device-safe"}).wire()
    )
    try:
        yield
    finally:
        await scheduler.signal("set_policy", SetPolicy(policy={}).wire())


def uids(plane: ControlPlane, namespace: str) -> dict[str, bool]:
    """Return all pods by their uid, and whether the newer version created them."""
    found = [
        pod
        for cluster in plane.running.clusters
        for pod in plane.pods(cluster, namespace)
    ]
    return {
        pod["metadata"]["uid"]: newer.ADDED in pod["spec"]["tolerations"]
        for pod in found
    }


def rollout(seen: Json) -> Json:
    shown: Json = seen["status"]["rollout"]
    return shown


async def without_old_pods(
    plane: ControlPlane, namespace: str, count: int
) -> dict[str, bool]:
    """Wait until only pods of the newer version exist."""

    async def pods() -> dict[str, bool]:
        return await asyncio.to_thread(uids, plane, namespace)

    found: dict[str, bool] = await eventually(
        pods, lambda seen: len(seen) == count and all(seen.values())
    )
    return found


@pytest.mark.soak
async def test_an_upgrade_of_the_worker_replaces_no_pod_before_its_owner_restarts_it(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with sharing_nodes(plane):
        await plane.apply(a_deployment("many", namespace, replicas=REPLICAS))
        await plane.ready("ModelDeployment", "many", namespace)
        before = uids(plane, namespace)
        assert (len(before), set(before.values())) == (REPLICAS, {False})
        async with replaced_by(plane, tmp_path / "newer.log"):
            waiting = [PENDING.format(REPLICAS)]
            await plane.until(
                "ModelDeployment",
                "many",
                lambda seen: rollout(seen).get("pending") == waiting,
                namespace,
            )
            code, said = await run(
                plane, "rollout", "status", "md/many", "-n", namespace
            )
            assert (code, f"pending: {waiting[0]}" in said) == (0, True), said
            assert uids(plane, namespace) == before
            async with watching(plane, "many", namespace) as watched:
                assert await run(
                    plane, "rollout", "restart", "md/many", "-n", namespace
                ) == (0, "modeldeployment/many restarted\n")
                code, said = await run(
                    plane,
                    "rollout",
                    "status",
                    "md/many",
                    "-n",
                    namespace,
                    "--timeout",
                    f"{ROLLED_SECONDS:g}",
                )
            assert code == 0, said
            # Pods are replaced one after the other, each Ready before the next one.
            assert watched.endpoints_fewest == REPLICAS - 1
            after = await without_old_pods(plane, namespace, REPLICAS)
            assert after.keys().isdisjoint(before)
            assert "pending" not in rollout(
                await plane.describe("ModelDeployment", "many", namespace)
            )
        await plane.delete("ModelDeployment", "many", namespace)
        await plane.gone("ModelDeployment", "many", namespace)


@pytest.mark.soak
async def test_a_setting_lets_a_newer_worker_replace_pods_within_the_budget(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    await plane.apply(a_deployment("rolling", namespace, replicas=3))
    await plane.ready("ModelDeployment", "rolling", namespace)
    before = uids(plane, namespace)
    async with (
        watching(plane, "rolling", namespace) as watched,
        replaced_by(
            plane,
            tmp_path / "newer.log",
            MODELPLANE_WORKLOADS__ADOPT_RENDERER="Rolling",
        ),
    ):
        after = await without_old_pods(plane, namespace, 3)
        assert after.keys().isdisjoint(before)
        done = await plane.until(
            "ModelDeployment",
            "rolling",
            lambda seen: rollout(seen)["updatedReady"] == 3,
            namespace,
        )
        assert (rollout(done)["adoption"] > 0, done["metadata"]["generation"]) == (
            True,
            1,
        )
    assert watched.endpoints_fewest == 2
    # The worker is back at the earlier version, which changes nothing by itself.
    waiting = [f"renderer {RENDERER_VERSION} changes 3 replicas"]
    await plane.until(
        "ModelDeployment",
        "rolling",
        lambda seen: rollout(seen).get("pending") == waiting,
        namespace,
    )
    assert uids(plane, namespace) == after
    await plane.delete("ModelDeployment", "rolling", namespace)
    await plane.gone("ModelDeployment", "rolling", namespace)


@pytest.mark.soak
async def test_a_rotated_secret_restarts_replicas_within_the_budget(
    plane: ControlPlane, store: SecretStore, namespace: str, tmp_path: Path
) -> None:
    def token(value: bytes) -> StoredSecret:
        return StoredSecret(
            namespace, "hub", {"token": value}, labels={labels.PROPAGATE: "true"}
        )

    await store.put(token(b"one"))
    document = a_deployment("gated", namespace, replicas=3)
    (member,) = document["spec"]["template"]["spec"]["engines"][0]["members"]
    env = [
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
        }
    ]
    member["template"]["spec"]["containers"][0]["env"] = env
    async with replaced_by(
        plane,
        tmp_path / "restarting.log",
        WORKER,
        MODELPLANE_SECRETS__RESTART_ON_ROTATION="true",
    ):
        await plane.apply(document)
        await plane.ready("ModelDeployment", "gated", namespace)
        before = uids(plane, namespace)
        async with watching(plane, "gated", namespace) as watched:
            await store.put(token(b"two"))

            def is_done(seen: Json) -> bool:
                return bool(
                    rollout(seen).get("adoption")
                    and rollout(seen)["updatedReady"] == 3
                    and "pending" not in rollout(seen)
                )

            await plane.until("ModelDeployment", "gated", is_done, namespace)
        assert watched.endpoints_fewest == 2
        assert uids(plane, namespace).keys().isdisjoint(before)
        await plane.delete("ModelDeployment", "gated", namespace)
        await plane.gone("ModelDeployment", "gated", namespace)
