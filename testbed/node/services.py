"""The Services of a cluster: kube-proxy, and the load balancers of a cloud.

Each port of a Service has a listener at the Service's address while an endpoint is
ready, as kube-proxy refuses connections otherwise. A connection stays with the endpoint
that it was given. A Service of the type LoadBalancer also listens at the address of the
cluster's Gateway, which is written to its status. The API server of the cluster is the
Service `kubernetes`.
"""

import asyncio
import contextlib
import ipaddress
import random
from collections.abc import Iterable
from typing import Any

import httpx

from testbed.cluster.kube import KubeClient, KubeError, collection, follow
from testbed.dataplane.relay import pump

Document = dict[str, Any]
Key = tuple[str, str]
Target = tuple[str, int]

API_SERVICE = ("default", "kubernetes")
_SLICE_OWNER = "kubernetes.io/service-name"
_BACKLOG = 2048


class Services:
    """The listeners of one cluster's Services."""

    def __init__(self, kube: KubeClient, network: str, gateway: str, api: str) -> None:
        self._kube = kube
        self._network = ipaddress.IPv4Network(network)
        self._gateway = gateway
        self._api = api
        self._services: dict[Key, Document] = {}
        self._slices: dict[Key, Document] = {}
        self._listeners: dict[Target, asyncio.Server] = {}
        self._targets: dict[Target, list[Target] | None] = {}
        """The endpoints of each address; None for the API server."""
        self._connections: set[asyncio.Task[None]] = set()
        """Connections outlive their listener, so it does not refer to them."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for path, store in (
                (collection("v1", "Service"), self._services),
                (
                    collection("discovery.k8s.io/v1", "EndpointSlice"),
                    self._slices,
                ),
            ):
                tasks.create_task(self._follow(path, store))
            tasks.create_task(self._reconcile())

    def addresses(self, namespace: str, name: str) -> list[str] | None:
        """Return the addresses of a Service's name, or None for an unknown name."""
        service = self._services.get((namespace, name))
        if service is None:
            return None
        address = service["spec"].get("clusterIP", "")
        if address != "None":
            return [address]
        return sorted(
            address
            for each in self._slices_of((namespace, name))
            for endpoint in each.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready", True)
            for address in endpoint["addresses"]
        )

    async def _follow(self, path: str, store: dict[Key, Document]) -> None:
        async def received(kind: str, items: list[Document]) -> None:
            if kind == "LISTED":
                store.clear()
            for item in items:
                key = item["metadata"]["namespace"], item["metadata"]["name"]
                if kind == "DELETED":
                    store.pop(key, None)
                else:
                    store[key] = item
            self._changed.set()

        await follow(self._kube, path, received)

    async def _reconcile(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted: dict[Target, list[Target] | None] = {}
            for key, service in self._services.items():
                for at, port in self._places(key, service):
                    if key == API_SERVICE:
                        wanted[at] = None
                    elif targets := self._endpoints(key, port):
                        wanted[at] = targets
            self._targets = wanted
            for at in self._listeners.keys() - wanted.keys():
                self._listeners.pop(at).close()
            for at in wanted.keys() - self._listeners.keys():
                try:
                    self._listeners[at] = await self._listen(at)
                except OSError as error:
                    print(f"Service at {at[0]}:{at[1]}: {error}", flush=True)
            for service in list(self._services.values()):
                await self._assign(service)

    def _places(self, key: Key, service: Document) -> Iterable[tuple[Target, Document]]:
        address = service["spec"].get("clusterIP", "")
        for port in service["spec"].get("ports") or ():
            if port.get("protocol", "TCP") != "TCP":
                continue
            if address and address != "None":
                if ipaddress.ip_address(address) in self._network:
                    yield (address, port["port"]), port
                else:
                    print(f"Service {'/'.join(key)}: an address of an older testbed")
            if service["spec"].get("type") == "LoadBalancer":
                yield (self._gateway, port["port"]), port

    def _slices_of(self, key: Key) -> list[Document]:
        return [
            each
            for (namespace, _), each in self._slices.items()
            if namespace == key[0]
            and (each["metadata"].get("labels") or {}).get(_SLICE_OWNER) == key[1]
        ]

    def _endpoints(self, key: Key, port: Document) -> list[Target]:
        """Return the ready endpoints, or without any the ones that still serve."""
        ready: list[Target] = []
        serving: list[Target] = []
        for each in self._slices_of(key):
            numbers = [
                found["port"]
                for found in each.get("ports") or ()
                if (found.get("name") or "") == port.get("name", "")
            ]
            for endpoint in each.get("endpoints") or ():
                conditions = endpoint.get("conditions") or {}
                here = [
                    (address, number)
                    for address in endpoint["addresses"]
                    for number in numbers
                ]
                if conditions.get("ready", True):
                    ready += here
                elif conditions.get("serving"):
                    serving += here
        return ready or serving

    async def _listen(self, at: Target) -> asyncio.Server:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = asyncio.create_task(self._carry(at, reader, writer))
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)

        return await asyncio.start_server(accept, *at, backlog=_BACKLOG)

    async def _carry(
        self,
        at: Target,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            if (targets := self._targets[at]) is None:
                near = await asyncio.open_unix_connection(self._api)
            else:
                near = await asyncio.open_connection(*random.choice(targets))  # noqa: S311 - no secret
        except (OSError, KeyError):
            writer.transport.abort()
            return
        await asyncio.gather(pump(reader, near[1]), pump(near[0], writer))
        for each in (writer, near[1]):
            each.close()

    async def _assign(self, service: Document) -> None:
        """Give a load balancer its address."""
        wanted = {"ingress": [{"ip": self._gateway, "ipMode": "VIP"}]}
        status = service.get("status") or {}
        if (
            service["spec"].get("type") != "LoadBalancer"
            or status.get("loadBalancer") == wanted
        ):
            return
        with contextlib.suppress(KubeError, httpx.TransportError):
            # After a failure, the watch reports the next change.
            await self._kube.patch_status(service, {"loadBalancer": wanted})
