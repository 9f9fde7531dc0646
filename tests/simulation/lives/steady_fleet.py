"""A fleet in virtual time without random faults, for scripted tests.

It has the API of the control plane under test. The product's workflows and activities
run on the simulated in-memory clusters. The auditors check every test, and at its end
every workflow is replayed.
"""

import asyncio
import functools
import inspect
import random
import re
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from api_types import labels
from api_types.sections.caches import CacheSettings
from tests.environment import waiting
from tests.simulation import watching
from tests.simulation.clock import Clock, VirtualLoop, virtual_time
from tests.simulation.cluster import ApiServer
from tests.simulation.manifests import API_VERSION
from tests.simulation.reconciling import ClusterBehaviour
from tests.simulation.store import ObjectKey, matches
from tests.simulation.world import World, logs_into
from tests.workflows.environment.harness import ControlPlane, Json, is_ours

CLUSTERS = {"prod-eu": "eu-west", "prod-us": "us-east"}
"""The clusters and their regions."""
CLASSES = {"h100": "NVIDIA H100 80GB HBM3", "l40s": "NVIDIA L40S"}
"""The classes of nodes and their product.

Each cluster has a pool for each class, with the same name.
"""
NODES, GPUS = 4, 8
SEED = 2
GRACE_SECONDS = CacheSettings().evict_grace
"""How long a cache keeps a volume on a cluster that it no longer selects."""
_QUICK = ClusterBehaviour(
    start=(0.2, 1.0),
    ready=(0.5, 3.0),
    end=(0.1, 1.0),
    bind=(0.1, 1.0),
    job=(3.0, 6.0),
    gateway=(0.1, 1.0),
    address=(0.1, 1.0),
    removal=(0.1, 1.0),
)
WITHIN_SECONDS = 590.0
"""The limit of waits: less than the 600 s after which the simulated workers force a deletion."""
_SHOWN_SECONDS = 60.0
_PATH = re.compile(
    r"/apis?/(?P<version>(?:[^/]+/)?v[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/?]+)(?:/(?P<name>[^/?]+))?(?:\?labelSelector=(?P<selector>.*))?"
)


class SteadyFleet(ControlPlane):
    """Two clusters that are Ready, and the requests of their users and administrators."""

    def __init__(self, world: World) -> None:
        clusters: Any = dict.fromkeys(CLUSTERS)
        running: Any = SimpleNamespace(clusters=clusters)
        client: Any = world.client
        super().__init__(client, running, None, lambda _: None)
        self.world = world

    async def begin(self) -> None:
        """Apply the classes and the clusters, and wait until they are Ready."""
        for name in CLASSES:
            await self.apply(a_class(name))
        for name in CLUSTERS:
            self.world.parts.add_cluster(name)
            self.server(name).behaviour.__dict__.update(vars(_QUICK))
            for pool in CLASSES:
                self.world.parts.set_nodes(name, pool, NODES, GPUS)
            await self.apply(a_cluster(name))
        for name in CLUSTERS:
            await self.ready("InferenceCluster", name)
        await self.shown()

    async def until(
        self,
        kind: str,
        name: str,
        holds: Callable[[Json], bool],
        namespace: str = "",
        within: float = WITHIN_SECONDS,
    ) -> Json:
        """See `ControlPlane`."""
        return await super().until(kind, name, holds, namespace, within)

    async def ready(
        self, kind: str, name: str, namespace: str = "", within: float = WITHIN_SECONDS
    ) -> Json:
        """See `ControlPlane`."""
        return await super().ready(kind, name, namespace, within)

    async def gone(
        self, kind: str, name: str, namespace: str = "", within: float = WITHIN_SECONDS
    ) -> None:
        """See `ControlPlane`."""
        await super().gone(kind, name, namespace, within)

    async def shown(self) -> None:
        """Wait until visibility shows every workflow that runs now."""
        await asyncio.sleep(_SHOWN_SECONDS)

    def server(self, cluster: str) -> ApiServer:
        """Return the API server of a cluster."""
        return self.world.parts.servers[cluster]

    def silence(self, workflow_id: str, seconds: float) -> None:
        """Let a workflow answer no query for some time."""
        run = self.world.server.find(workflow_id)
        run.silent_until = self.world.clock.seconds() + seconds

    def kill_worker(self) -> None:
        """Kill a worker; a new one replaces it seconds later."""
        self.world.workers.kill()

    def kill_workers(self) -> None:
        """Kill all workers. Their replacements read the settings again."""
        for worker in list(self.world.workers.all):
            self.world.workers.kill(worker)

    @contextmanager
    def no_workers(self) -> Iterator[None]:
        """Let no worker poll any task queue for a while, and let all of them lose their
        caches.
        """
        served = self.world.workers.pick
        self.kill_workers()
        with patch.object(self.world.workers, "pick", lambda *_: None):
            yield
        assert self.world.workers.pick == served

    def put_secret(self, namespace: str, name: str, content: dict[str, str]) -> None:
        """Write a Secret of a user."""
        self.world.parts.secrets[namespace, name] = content

    def our_objects(self, cluster: str, namespace: str) -> list[str]:
        """See `ControlPlane`."""
        return sorted(
            f"{item['kind']}/{item['metadata']['name']}"
            for item in self.server(cluster).store.everything()
            if item["metadata"].get("namespace", "") == namespace
            and (item["kind"] == "ResourceClaim" or is_ours(item["metadata"]))
        )

    def call(
        self,
        cluster: str,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        *,
        accept: str = "application/json",
    ) -> Any:
        """Act on a cluster as an administrator with kubectl."""
        del content_type, accept
        server = self.server(cluster)
        found = _PATH.fullmatch(path)
        assert found, path
        namespace, name = found["namespace"] or "", found["name"]
        group = found["version"].rpartition("/")[0]
        kind = next(
            kind.kind
            for kind, resource in server.served.items()
            if (resource.plural, kind.group) == (found["plural"], group)
        )
        key = ObjectKey(group, kind, namespace, name or "")
        if method == "POST":
            namespaced = {"metadata": {**body["metadata"], "namespace": namespace}}
            return server.create({**body, **(namespaced if namespace else {})})
        if method == "DELETE":
            propagation = (body or {}).get("propagationPolicy", "Background")
            return server.store.delete(key, propagation=propagation)
        if method == "PATCH":
            return server.store.edit(key, lambda content: _merged(content, body))
        if name:
            return server.store.get(key)
        items = server.store.find(group, kind, namespace)
        return {"items": [item for item in items if matches(item, found["selector"] or "")]}


def _merged(content: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    base = dict(content) if isinstance(content, dict) else {}
    for name, value in patch.items():
        if value is None:
            base.pop(name, None)
        else:
            base[name] = _merged(base.get(name), value)
    return base


def a_class(name: str, gpus: int = GPUS) -> Json:
    """Return a class of nodes with GPUs of one product."""
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": gpus,
        "attributes": {"productName": {"string": CLASSES[name]}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceClass",
        "metadata": {"name": name},
        "spec": {"devices": [device]},
    }


def a_cluster(name: str, *, of: str = "", **spec: Any) -> Json:
    """Return the manifest of a cluster; `of`: the cluster behind it, if it has another name."""
    origin = {
        "secretRef": {"name": f"{of or name}-kubeconfig"},
        "cache": {"storageClassName": "rwx"},
    }
    pools = [{"name": pool, "className": pool, "nodeCount": NODES} for pool in CLASSES]
    region = {"modelplane.ai/region": CLUSTERS[name]} if name in CLUSTERS else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": {
            "name": name,
            "labels": region,
            "annotations": {labels.STACK: "external", labels.ROUTING: "service"},
        },
        "spec": {"cluster": {"source": "Existing", "existing": origin}, "nodePools": pools, **spec},
    }


def a_namespace() -> str:
    """Return the name of a namespace that no other test has."""
    return f"t-{uuid.uuid4().hex[:8]}"


Story = Callable[..., Coroutine[Any, Any, None]]


def in_virtual_time(story: Story, size: str = "tiny") -> Callable[..., None]:
    """Make a test that runs with a `SteadyFleet` and a namespace as its first two
    parameters.

    `size` names the fleet of the script, which determines whether the fleet has a
    cloud.
    """

    @functools.wraps(story)
    def test(**arguments: Any) -> None:
        draw = random.Random(SEED)  # noqa: S311 - repeatable on purpose
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
            runner.run(_live(functools.partial(story, **arguments), draw, size))

    parameters = list(inspect.signature(story).parameters.values())
    test.__signature__ = inspect.Signature(parameters[2:])  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.slow(test)
    return marked


async def _live(story: Story, draw: random.Random, size: str) -> None:
    clock = Clock(asyncio.get_running_loop())
    with virtual_time(clock, draw), waits_in_virtual_time(clock):
        world = World(SEED, 1.0, size, clock)
        world.faults.end()
        world.observers.append(watching.Watch(world))
        try:
            with logs_into(world.logs):
                await world.follow(_told(world, story))
        finally:
            world.workers.end()


async def _told(world: World, story: Story) -> None:
    fleet = SteadyFleet(world)
    await fleet.begin()
    await story(fleet, a_namespace())
    world.server.replay_all()


@contextmanager
def waits_in_virtual_time(clock: Clock) -> Iterator[None]:
    """Let the waits of tests have their limits in virtual time."""
    with patch.object(waiting, "machine_seconds", clock.seconds):
        yield
