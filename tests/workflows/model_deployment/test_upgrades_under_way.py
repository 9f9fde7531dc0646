"""Objects that are changing while the worker is upgraded to another build and rolled back.

The next worker continues each change from its history. Only real pods show that none is
restarted.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
)
from tests.workflows.environment.topologies import run
from tests.workflows.model_deployment.test_upgrades import (
    replaced_by,
    rollout,
    sharing_nodes,
)

pytestmark = [pytest.mark.testbed, pytest.mark.long, pytest.mark.timeout(900)]

DRAINED, OTHER = "prod-eu", "prod-us"
HOLD = "example.com/held"
ROLLING = 3


def deployment(
    name: str, namespace: str, replicas: int, image: str = "", **spec: Any
) -> Json:
    """Return a deployment whose pods are known by their image, by default named like it."""
    return a_deployment(
        name, namespace, replicas=replicas, image=engine(image or name), **spec
    )


def engine(name: str) -> str:
    return f"registry.example/{name}:1"


def stays_on_the_other(
    name: str, namespace: str, replicas: int, image: str = ""
) -> Json:
    region = {"matchLabels": {"modelplane.ai/region": "us-east"}}
    return deployment(name, namespace, replicas, image, clusterSelector=region)


def images(pod: Json) -> set[str]:
    return {container["image"] for container in pod["spec"]["containers"]}


class Lives:
    """Deployments of one namespace, each in another phase when the worker changes."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def pods(self, name: str) -> dict[str, str]:
        """Return the cluster of each pod of an image that is not being deleted, by uid."""
        return {
            pod["metadata"]["uid"]: cluster
            for cluster in self.plane.running.clusters
            for pod in self.plane.pods(cluster, self.namespace)
            if engine(name) in images(pod)
            and "deletionTimestamp" not in pod["metadata"]
        }

    def hold(self, name: str, *, held: bool) -> None:
        """Block the deletion of a deployment's pods, or unblock it."""
        for cluster in self.plane.running.clusters:
            for pod in self.plane.pods(cluster, self.namespace):
                if engine(name) in images(pod):
                    path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
                    patch = {"metadata": {"finalizers": [HOLD] if held else None}}
                    merge = "application/merge-patch+json"
                    self.plane.call(cluster, "PATCH", path, patch, merge)

    async def prepare(self, number: int) -> None:
        """Create the deployments of a round, and wait until they are at rest."""
        started = [
            stays_on_the_other(f"leaving-{number}", self.namespace, 1),
            deployment(f"moving-{number}", self.namespace, 2),
        ]
        for document in started:
            await self.plane.apply(document)
        for document in started:
            await self.ready(document["metadata"]["name"])
        moving = self.pods(f"moving-{number}")
        assert sorted(moving.values()) == [DRAINED, OTHER]
        self.hold(f"leaving-{number}", held=True)
        self.hold(f"moving-{number}", held=True)

    async def begin(self, number: int) -> None:
        """Delete, drain, roll out and create, and return before any of it has ended."""
        await self.plane.delete("ModelDeployment", f"leaving-{number}", self.namespace)
        code, said = await run(self.plane, "drain", DRAINED)
        assert code == 0, said
        image = f"rolling-{number}"
        rolled = stays_on_the_other("rolling", self.namespace, ROLLING, image)
        await self.plane.apply(rolled)

        def is_under_way(seen: Json) -> bool:
            return 0 < rollout(seen).get("updatedReady", 0) < ROLLING and bool(
                self.pods(image)
            )

        await self.plane.until(
            "ModelDeployment", "rolling", is_under_way, self.namespace
        )
        await self.plane.apply(
            stays_on_the_other(f"coming-{number}", self.namespace, 2)
        )

    async def end(self, number: int) -> None:
        """Unblock the pods, and wait until every change of the round has ended."""
        self.hold(f"leaving-{number}", held=False)
        self.hold(f"moving-{number}", held=False)
        await self.plane.gone("ModelDeployment", f"leaving-{number}", self.namespace)
        await self.ready(f"coming-{number}")
        image = f"rolling-{number}"
        await self.settled(image, [OTHER] * ROLLING)
        await self.settled(f"moving-{number}", [OTHER] * 2)
        code, said = await run(self.plane, "uncordon", DRAINED)
        assert code == 0, said
        await eventually(
            lambda: run(self.plane, "top", "clusters"),
            lambda shown: shown[0] == 0 and "drained or cordoned" not in shown[1],
            what=f"the scheduler's use of {DRAINED}",
        )

    async def settled(self, image: str, clusters: list[str]) -> None:
        async def placed() -> list[str]:
            return sorted((await asyncio.to_thread(self.pods, image)).values())

        await eventually(
            placed, lambda found: found == clusters, what=f"the pods of {image}"
        )

    async def ready(self, name: str) -> None:
        await self.plane.ready("ModelDeployment", name, self.namespace)


async def test_an_upgrade_and_a_rollback_lose_no_change_and_restart_no_pod(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    lives = Lives(plane, namespace)
    async with sharing_nodes(plane):
        await plane.apply(stays_on_the_other("staying", namespace, 2))
        await plane.apply(
            stays_on_the_other("rolling", namespace, ROLLING, "rolling-0")
        )
        await lives.ready("staying")
        await lives.ready("rolling")
        before = lives.pods("staying")
        await lives.prepare(1)
        await lives.begin(1)
        async with replaced_by(plane, tmp_path / "newer.log"):
            await lives.end(1)
            await lives.prepare(2)
            await lives.begin(2)
        await lives.end(2)
        assert (len(before), lives.pods("staying")) == (2, before)
        assert lives.pods("rolling-0") == lives.pods("rolling-1") == {}
