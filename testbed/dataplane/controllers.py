"""The testbed's own controllers: `python -m testbed.dataplane.controllers CONFIG`.

Simulated clusters have no gateway controller and no storage provisioner, so this
process sets the status that those would set. Gateways get an address, routes are
accepted or rejected with a reason, and claims are bound. One process watches all
clusters. After each change it computes the desired status of all objects from memory,
and writes only differences.

CONFIG is a JSON list of {name, server, pki, address, simulated, served}.
"""

import asyncio
import datetime as dt
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from testbed.cluster import volumes
from testbed.cluster.kube import KubeClient, KubeError, collection, follow
from testbed.cluster.pki import Authority
from testbed.dataplane import routing
from testbed.documents import read_json

PARALLEL_WRITES = 16

Document = dict[str, Any]


@dataclass(frozen=True)
class ServedCluster:
    """One cluster to serve."""

    name: str
    server: str
    pki: str
    address: str
    simulated: bool
    served: str | None = None
    """The controller name of a real gateway controller, which reports the status of its
    own objects.
    """


class ClusterController:
    """Gateways, routes, pools and volumes of one cluster."""

    def __init__(self, target: ServedCluster) -> None:
        self._target = target
        self._watcher = KubeClient(target.server, Authority(Path(target.pki)))
        self._objects = routing.RoutingObjects()
        self._claims: dict[routing.Key, Document] = {}
        self._volumes: dict[routing.Key, Document] = {}
        self._changed = asyncio.Event()
        self._writes = asyncio.Semaphore(PARALLEL_WRITES)

    async def run(self) -> None:
        """Serve the cluster until cancelled."""
        held = {
            collection(
                "gateway.networking.k8s.io/v1", "GatewayClass"
            ): self._objects.gateway_classes,
            collection(
                "gateway.networking.k8s.io/v1", "Gateway"
            ): self._objects.gateways,
            collection(
                "gateway.networking.k8s.io/v1", "HTTPRoute"
            ): self._objects.routes,
            collection("v1", "Service"): self._objects.services,
        }
        if self._target.simulated:
            held |= {
                collection(
                    "inference.networking.k8s.io/v1", "InferencePool"
                ): self._objects.pools,
                collection("v1", "PersistentVolumeClaim"): self._claims,
                collection("v1", "PersistentVolume"): self._volumes,
            }
        try:
            async with asyncio.TaskGroup() as tasks:
                for path, store in held.items():
                    tasks.create_task(self._follow(path, store))
                tasks.create_task(self._reconcile())
        finally:
            await self._watcher.close()

    async def _follow(self, path: str, store: dict[routing.Key, Document]) -> None:
        async def received(kind: str, items: list[Document]) -> None:
            if kind == "LISTED":
                store.clear()
            for item in items:
                if kind == "DELETED":
                    store.pop(routing.key_of(item), None)
                else:
                    store[routing.key_of(item)] = item
            self._changed.set()

        await follow(self._watcher, path, received)

    async def _reconcile(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            steps = [
                self._write(self._watcher.patch_status, item, status)
                for item, status in routing.statuses(
                    self._objects, self._target.address, _now, self._target.served
                )
            ]
            steps += [
                self._write(self._watcher.create, volume)
                for claim in self._claims.values()
                if (volume := volumes.volume_for(claim))
            ]
            steps += [
                self._write(self._watcher.delete, volume)
                for volume in self._volumes.values()
                if volumes.is_spent(volume)
            ]
            await asyncio.gather(*steps)

    async def _write(self, action: Any, *arguments: Any) -> None:
        async with self._writes:
            try:
                await action(*arguments)
            except KubeError as error:
                if error.code in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
                    # the object was changed or deleted meanwhile, which the watch
                    # reports
                    return
                self._again_later(error)
            except httpx.TransportError as error:
                self._again_later(error)

    def _again_later(self, error: Exception) -> None:
        self._log(error)
        asyncio.get_running_loop().call_later(1.0, self._changed.set)

    def _log(self, error: Exception) -> None:
        print(
            f"{_now()} {self._target.name}: {type(error).__name__} {error}", flush=True
        )


def _now() -> str:
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 - needs the wall clock
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


async def serve(targets: list[ServedCluster]) -> None:
    """Serve every cluster until SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    controllers = [
        asyncio.create_task(ClusterController(target).run()) for target in targets
    ]
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait(
        [stopping, *controllers], return_when=asyncio.FIRST_COMPLETED
    )
    for task in (stopping, *controllers):
        task.cancel()
    await asyncio.gather(stopping, *controllers, return_exceptions=True)
    for task in done:
        # an error in a controller ends the process, with its traceback in the log
        task.result()


if __name__ == "__main__":
    asyncio.run(
        serve([ServedCluster(**entry) for entry in read_json(Path(sys.argv[1]))])
    )
