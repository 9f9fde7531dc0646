"""A control plane, and a cluster whose InferenceCluster installs the serving stack.

The parts are real and the charts small.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activities.messaging.sending import send_signal
from activities.secrets.selection import secret_store
from api_types import labels, names
from api_types.clock import utc_now
from api_types.messages.entities import RetryNow
from api_types.messages.signals import STACK_UPGRADES, StackUpgradesSignals
from api_types.messages.upgrades import UpgradeRequest
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from tests.environment.stack_charts import cert_manager, leader_worker_set
from tests.environment.stack_testbed import CLUSTER, StackCluster, stack_cluster
from tests.environment.summary import Summary
from tests.workflows.conftest import documents, put_secrets
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_worker,
    connected,
    eventually,
    message,
)
from tests.workflows.environment.replaying import replay_all

SERVICES = "/api/v1/namespaces/envoy-gateway-system/services"
NEWER = "v0.8.1"
"""A version of the LeaderWorkerSet chart besides the pinned one.

Its definition has one more field.
"""
BROKEN = "v1.17.8"
"""A version of cert-manager whose chart does not render."""


@dataclass
class Managed:
    """The control plane, and the cluster without a stack."""

    plane: ControlPlane
    world: StackCluster

    async def apply(self) -> None:
        """Apply the class and then the cluster."""
        for file in ("classes.yaml", "clusters.yaml"):
            for document in documents(self.world.running.manifests / file):
                await self.plane.apply(document)

    async def until(self, holds: Callable[[Json], bool]) -> Json:
        return await self.plane.until("InferenceCluster", CLUSTER, holds)

    async def ready(self) -> Json:
        return await self.plane.ready("InferenceCluster", CLUSTER)

    async def until_releases(self, holds: Callable[..., bool]) -> None:
        """Wait until the releases on the cluster satisfy `holds`."""
        await eventually(
            lambda: asyncio.to_thread(self.world.releases),
            holds,
            what="the number of releases",
        )

    async def retry(self, request: str) -> None:
        """Send a retry, so that waiting attempts and checks of the installed stack run at once."""
        await self.plane.handle("InferenceCluster", CLUSTER).signal(
            "retry_now", RetryNow(request_id=request, by="test").wire()
        )

    async def want(self, **versions: str) -> None:
        """Restart the worker with other chart versions, and plan them at once."""
        await asyncio.to_thread(self.plane.worker.stop)
        self.plane.worker.settings["MODELPLANE_STACK__VERSIONS"] = json.dumps(versions)
        await asyncio.to_thread(self.plane.worker.start)
        # It is planned at once, or at a time that it says.
        said = ("the wanted stack changed", "waiting for the upgrade", "UpgradeFailed")
        await self.until(
            lambda seen: any(text in message(seen, "BackendReady") for text in said)
        )
        await self.retry(f"want {versions}")

    async def want_pinned(self) -> None:
        """Restart the worker with the pinned chart versions."""
        if self.plane.worker.settings.pop("MODELPLANE_STACK__VERSIONS", None):
            await asyncio.to_thread(self.plane.worker.stop)
            await asyncio.to_thread(self.plane.worker.start)

    async def mute(self, cluster: str) -> None:
        """Start a cluster that accepts every message and answers none: no worker serves it."""
        await self.plane.client.start_workflow(
            "Mute",
            id=names.workflow_id("InferenceCluster", "", cluster),
            task_queue="unserved",
        )

    async def ask_for_turn(
        self, cluster: str, number: int, *, wanted: bool = True
    ) -> None:
        """Request or return an upgrade turn on behalf of another cluster, which must be `mute`."""
        message = UpgradeRequest(
            cluster=cluster,
            uid="of-a-mute-cluster",
            turn=1,
            sequence=number,
            wanted=wanted,
        )
        await send_signal(
            self.plane.client,
            StackUpgradesSignals.REQUEST_UPGRADE.request(STACK_UPGRADES, message),
        )

    async def delete(self, **more: Any) -> None:
        await self.plane.delete("InferenceCluster", CLUSTER, **more)

    async def gone(self) -> None:
        """Wait until the cluster is gone, and check that it left no new object."""
        await self.plane.gone("InferenceCluster", CLUSTER)
        assert self.world.releases() == {}
        assert self.world.names(SERVICES) == []
        assert self.world.get(f"/api/v1/namespaces/{labels.SYSTEM_NAMESPACE}") is None


@asynccontextmanager
async def managed_stack(
    folder: Path, kube: Callable[[Any], Any], summary: Summary
) -> AsyncIterator[Managed]:
    """Start the control plane and the cluster.

    At the end, replay every workflow run.
    """
    with stack_cluster(folder / "home", summary) as world:
        world.charts.add(leader_worker_set(NEWER, field="addedLater"))
        world.charts.add(cert_manager(BROKEN, fails="it is broken"))
        await put_secrets(
            world.running,
            secret_store(
                Settings(secrets=SecretSettings(directory=folder / "secrets"))
            ),
        )
        began = utc_now()
        settings = {"MODELPLANE_STACK__CHART_MIRROR": world.charts.url}
        with a_worker(
            world.running.temporal_address,
            folder / "secrets",
            folder / "worker.log",
            **settings,
        ) as worker:
            async with connected(world.running) as client:
                yield Managed(ControlPlane(client, world.running, worker, kube), world)
                await replay_all(client, began, folder)
