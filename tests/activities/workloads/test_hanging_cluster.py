"""A hanging cluster takes no slots from other clusters, whose applies continue."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from activities.clients.kubernetes import session
from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from activities.clients.kubernetes.session import Session
from activities.clients.secrets.directory import SecretDirectory
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool
from activities.render.inputs.settings import RenderSettings
from activities.workloads.activities import WorkloadActivities
from api_types.errors import ClusterUnreachable
from api_types.messages.cluster_work import Applied, ApplyReplica, Connection
from tests.activities.environment.asking import asked_by
from tests.activities.environment.orders import an_apply
from tests.environment.api_server import ApiServer, api_server

SLOTS = 10
SILENT_SECONDS = 2.0
# The retry policy of an apply.
RETRY_SECONDS = 1
# A request to a hanging server lasts longer than the test waits for anything.
REQUEST_SECONDS = 600.0
WITHIN_SECONDS = 300
REQUESTS_AT_ONCE = 4


MEMBER = {
    "role": "Standalone",
    "nodePoolName": "h100",
    "deviceRequests": [
        {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}
    ],
    "template": {"spec": {"containers": [{"name": "engine", "image": "busybox"}]}},
}


class HttpPool(ClusterPool):
    """Clients of servers without TLS, which no kubeconfig may name."""

    def __init__(
        self, servers: dict[str, ApiServer], applies_at_once: int = SLOTS
    ) -> None:
        self.clients = {
            name: KubernetesCluster(
                Session(
                    name,
                    ApiServerAccess(server=server.address, allow_loopback=True),
                    REQUESTS_AT_ONCE,
                    applies_at_once,
                )
            )
            for name, server in servers.items()
        }

    async def at(self, connection: Connection) -> ClusterApi:
        return self.clients[connection.cluster]

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()


def an_order(cluster: str, number: int) -> ApplyReplica:
    return an_apply(
        f"r{number}", {"name": "main", "members": [MEMBER]}, cluster=cluster
    )


class Slots:
    """The slots of a worker.

    An apply that fails because its cluster does not respond leaves its slot, and waits
    for another one.
    """

    def __init__(self, workloads: WorkloadActivities) -> None:
        self._workloads = workloads
        self._free = asyncio.Semaphore(SLOTS)
        self.taken = asyncio.Event()
        """Set once an apply has each of them."""
        self.unreachable = 0

    async def apply(self, order: ApplyReplica) -> Applied:
        while True:
            async with self._free:
                if self._free.locked():
                    self.taken.set()
                try:
                    return await asked_by(
                        f"modelreplica/{order.namespace}/{order.name}"
                    ).run(self._workloads.apply_replica, order)
                except ClusterUnreachable:
                    self.unreachable += 1
            await asyncio.sleep(RETRY_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "applies_at_once", [SLOTS, 2], ids=["as many as slots", "two at once"]
)
async def test_applies_continue_beside_a_hanging_cluster_and_reach_it_once_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applies_at_once: int
) -> None:
    monkeypatch.setattr(session, "SILENT_SECONDS", SILENT_SECONDS)
    monkeypatch.setattr(session, "READ_SECONDS", REQUEST_SECONDS)
    monkeypatch.setattr(session, "REQUEST_SECONDS", REQUEST_SECONDS)
    async with AsyncExitStack() as stack:
        names = ["hanging", "a", "b", "c"]
        servers = {
            name: await stack.enter_async_context(api_server(hangs=name == "hanging"))
            for name in names
        }
        pool = HttpPool(servers, applies_at_once)
        stack.push_async_callback(pool.close)
        slots = Slots(
            WorkloadActivities(pool, SecretDirectory(tmp_path), RenderSettings())
        )
        hanging = [
            asyncio.create_task(slots.apply(an_order("hanging", number)))
            for number in range(4 * SLOTS)
        ]
        # The hanging cluster has every slot before the others request one.
        await slots.taken.wait()
        others = [
            slots.apply(an_order(name, number))
            for name in names[1:]
            for number in range(5)
        ]
        async with asyncio.timeout(WITHIN_SECONDS):
            applied = await asyncio.gather(*others)
        assert all(each.inventory for each in applied)
        assert not any(each.done() for each in hanging)
        assert servers["hanging"].running_max <= REQUESTS_AT_ONCE

        servers["hanging"].answering.set()
        async with asyncio.timeout(WITHIN_SECONDS):
            await asyncio.gather(*hanging)
        assert (
            max(server.running_max for server in servers.values()) <= REQUESTS_AT_ONCE
        )
