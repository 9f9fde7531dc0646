"""The node of one cluster: its real pods, its Services, and their names."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from testbed.cluster.kube import KubeClient
from testbed.cluster.pki import Authority
from testbed.node import name_server
from testbed.node.kubelet import NodeFiles, RealPods
from testbed.node.services import Services


async def of_cluster(
    *,
    name: str,
    server: str,
    pki: str,
    folder: str,
    logs: str,
    programs: Mapping[str, str],
    services: str,
    name_server_address: str,
    gateway: str,
    api: str,
) -> None:
    """Serve a cluster until cancelled.

    `folder` has the files of pods, `services` is the address range of Services,
    `gateway` the address of load balancers, and `api` the socket of the API server.
    """
    kube = KubeClient(server, Authority(Path(pki)))
    files = NodeFiles(Path(folder), Path(logs), name, programs, name_server_address)
    # The hosts file of the data plane, which is mounted there.
    hosts = name_server.read_hosts(Path("/etc/hosts"))
    proxy = Services(kube, services, gateway, api)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(proxy.run())
            tasks.create_task(
                name_server.serve(name_server_address, proxy.addresses, hosts)
            )
            tasks.create_task(RealPods(kube, files).run())
    finally:
        await kube.close()
