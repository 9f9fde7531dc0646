"""Spontaneous faults of clusters, such as outages and lost nodes.

Each fault ends before the quiet part of the run.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from activities.cluster_objects.ownership import owner_of
from api_types.labels import POOL, SYSTEM_NAMESPACE
from tests.simulation.cluster import ApiServer, Mood
from tests.simulation.fields import Json
from tests.simulation.reconciling import is_deleted, is_ready, key_of
from tests.simulation.store import ObjectKey

if TYPE_CHECKING:
    from tests.simulation.parts import Parts

# The number of each fault per day, before the factor of the seed.
PER_DAY: dict[str, float] = {
    "cluster.outage": 6.0,
    "cluster.restart": 4.0,
    "cluster.silence": 4.0,
    "cluster.cut": 8.0,
    "node.lost": 4.0,
    "node.gone": 3.0,
    "pod.evicted": 8.0,
    "pod.crashed": 8.0,
    "pods.bad": 3.0,
    "finalizer.hangs": 4.0,
    "credential.gone": 3.0,
    "credential.rotated": 3.0,
    "hub.moves": 4.0,
}
_FACTORS = (0.0, 0.0, 0.3, 1.0, 3.0)
_MOODS: tuple[Mood, ...] = ("silent", "refuses", "throttles", "fails")
_LASTS = (20.0, 7200.0)
_FLAPPING = 0.2
"""The share of worlds whose pods flap."""
_FLAP_PAUSE_SECONDS, _FLAP_SECONDS, _FLAPS = 3600.0, (20.0, 90.0), (2, 12)
_HELD = "example.com/hold"
_HOLDABLE = ("Service", "HTTPRoute", "PersistentVolumeClaim", "Deployment", "Job", "Gateway")


class ClusterFaults:
    """Injects faults into all clusters, as drawn from the seed."""

    def __init__(self, parts: "Parts") -> None:
        self.parts, self.world = parts, parts.world
        self.draw = parts.world.source("cluster-faults")
        self._faults: dict[str, Callable[[ApiServer], Awaitable[None]]] = {
            "cluster.outage": self._outage,
            "cluster.restart": self._restart,
            "cluster.silence": self._silence,
            "cluster.cut": self._cut,
            "node.lost": self._lose_node,
            "node.gone": self._remove_node,
            "pod.evicted": self._evict,
            "pod.crashed": self._crash,
            "pods.bad": self._bad_pods,
            "finalizer.hangs": self._hold,
            "credential.gone": self._lose_credential,
            "credential.rotated": self._rotate_credential,
            "hub.moves": self._move_hub,
        }

    def start(self) -> None:
        """Start the kinds of faults that the seed draws."""
        none = self.draw.random() < 0.1
        for name, per_day in PER_DAY.items():
            rate = per_day * self.draw.choice(_FACTORS)
            if rate and not none:
                self.world.spawn(self._strike(name, rate), name)
        flapping = self.world.source("flapping")
        if not none and flapping.random() < _FLAPPING:
            self.world.spawn(self._flap_now_and_then(flapping), "pods.flap")

    async def _strike(self, name: str, per_day: float) -> None:
        while True:
            await asyncio.sleep(self.draw.expovariate(per_day / 86_400))
            if self.world.clock.seconds() >= self.world.faults.last:
                return
            servers = list(self.parts.servers.values())
            if self.world.faults.active:
                server = servers[self.draw.randrange(len(servers))]
                self.world.struck += 1
                self.world.note("fault", name, server.name)
                await self._faults[name](server)

    async def _for_a_while(self) -> None:
        """Wait for a drawn time that ends before the quiet part."""
        seconds = math.exp(self.draw.uniform(*map(math.log, _LASTS)))
        left = self.world.faults.last - self.world.clock.seconds()
        await asyncio.sleep(max(0.0, min(seconds, left)))

    # API servers

    async def _outage(self, server: ApiServer) -> None:
        server.mood = self.draw.choice(_MOODS)
        if self.draw.random() < 0.5:
            server.cut()
        await self._for_a_while()
        server.mood = "answers"
        if self.draw.random() < 0.5:
            server.restart()

    async def _restart(self, server: ApiServer) -> None:
        server.restart()

    async def _silence(self, server: ApiServer) -> None:
        """Stall the watches while the server answers other requests."""
        server.stalled_until = self.world.clock.seconds() + self.draw.uniform(30.0, 900.0)

    async def _cut(self, server: ApiServer) -> None:
        server.cut()

    # Nodes and pods

    async def _lose_node(self, server: ApiServer) -> None:
        node = self._a_node(server)
        if node:
            server.set_node_ready(node, ready=False)
            await self._for_a_while()
            server.set_node_ready(node, ready=True)

    async def _remove_node(self, server: ApiServer) -> None:
        """Remove a machine; its replacement joins the pool later, under the same name."""
        node = self._a_node(server)
        found = server.store.get(ObjectKey("", "Node", "", node)) if node else None
        if found is not None:
            server.remove_node(node)
            await self._for_a_while()
            if server.store.get(key_of(found)) is None:
                pool = found["metadata"]["labels"][POOL]
                server.add_node(node, pool, found["status"]["devices"])

    async def _flap_now_and_then(self, draw: Random) -> None:
        """Let all pods of a cluster become unready and ready again for some minutes.

        It draws from a source of its own, so that other worlds stay as they are.
        """
        ends = self.world.faults.last - 2 * max(_FLAP_SECONDS)
        while self.world.clock.seconds() < ends:
            await asyncio.sleep(draw.expovariate(1 / _FLAP_PAUSE_SECONDS))
            if self.world.faults.active and self.world.clock.seconds() < ends:
                server = draw.choice(list(self.parts.servers.values()))
                self.world.struck += 1
                self.world.note("fault", "pods.flap", server.name)
                for _ in range(draw.randint(*_FLAPS)):
                    if self.world.clock.seconds() > ends:
                        break
                    self._probe(server, ready=False)
                    await asyncio.sleep(draw.uniform(*_FLAP_SECONDS))
                    self._probe(server, ready=True)
                    await asyncio.sleep(draw.uniform(*_FLAP_SECONDS))

    def _probe(self, server: ApiServer, *, ready: bool) -> None:
        for pod in server.store.find("", "Pod"):
            server.kubelets.probe(key_of(pod), ready=ready)

    def _a_node(self, server: ApiServer) -> str:
        nodes = [each for each in server.store.find("", "Node") if is_ready(each)]
        pooled = [each for each in nodes if (each["metadata"].get("labels") or {}).get(POOL)]
        if not pooled:
            return ""
        return str(pooled[self.draw.randrange(len(pooled))]["metadata"]["name"])

    def _a_pod(self, server: ApiServer) -> Json | None:
        pods = [pod for pod in server.store.find("", "Pod") if not is_deleted(pod)]
        return pods[self.draw.randrange(len(pods))] if pods else None

    async def _evict(self, server: ApiServer) -> None:
        pod = self._a_pod(server)
        if pod is not None and self.draw.random() < 0.7:
            server.store.delete(key_of(pod), uid=pod["metadata"]["uid"])
        elif pod is not None:
            server.kubelets.fail(key_of(pod))

    async def _crash(self, server: ApiServer) -> None:
        pod = self._a_pod(server)
        if pod is not None:
            server.kubelets.crash(key_of(pod))

    async def _bad_pods(self, server: ApiServer) -> None:
        """Let images, engines and downloads of a cluster fail often for a while."""
        behaviour = server.behaviour
        behaviour.image_fails, behaviour.crashes, behaviour.download_fails = 0.5, 0.3, 0.6
        await self._for_a_while()
        behaviour.image_fails = behaviour.crashes = behaviour.download_fails = 0.0

    async def _hold(self, server: ApiServer) -> None:
        """Add a foreign finalizer to an object of the product."""
        ours = [
            each
            for kind in _HOLDABLE
            for each in server.store.all_of(kind)
            if owner_of(each).uid and not is_deleted(each)
        ]
        if not ours:
            return
        held = ours[self.draw.randrange(len(ours))]
        key, uid = key_of(held), held["metadata"]["uid"]
        server.store.set_finalizers(key, [*held["metadata"].get("finalizers", []), _HELD])
        await self._for_a_while()
        found = server.store.get(key)
        if found is not None and found["metadata"]["uid"] == uid:
            server.collector.without_finalizer(key, _HELD)

    # Credentials and hubs

    async def _lose_credential(self, server: ApiServer) -> None:
        places = [(SYSTEM_NAMESPACE, f"{server.name}-kubeconfig"), *self.parts.cloud_credentials()]
        place = places[self.draw.randrange(len(places))]
        held = self.parts.secrets.pop(place, None)
        if held is not None:
            await self._for_a_while()
            self.parts.secrets.setdefault(place, held)

    async def _rotate_credential(self, server: ApiServer) -> None:
        """Rotate the token of the API server; the secret store gets the new token
        later.
        """
        place = (SYSTEM_NAMESPACE, f"{server.name}-kubeconfig")
        if place not in self.parts.secrets:
            # Revoke the token of a cloud, or lose a credential for a while.
            return
        token = f"{self.draw.getrandbits(32):08x}"
        server.tokens = {token}
        await self._for_a_while()
        server.tokens = {token}
        self.parts.secrets[place] = {"kubeconfig": f"{server.name} {token}"}

    async def _move_hub(self, server: ApiServer) -> None:
        del server
        self.parts.hub.moves += 1
