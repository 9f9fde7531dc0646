"""One simulated cluster by itself in virtual time, and objects for tests of the stand-ins."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from api_types.labels import POOL
from tests.simulation.clock import Clock, VirtualLoop, virtual_time
from tests.simulation.cluster import ApiServer, ClusterClient
from tests.simulation.fields import Json

ResultT = TypeVar("ResultT")
NAMESPACE = "ml"
POOL_NAME = "gpu"


def living(
    story: Callable[[ApiServer, ClusterClient], Awaitable[ResultT]], nodes: int = 4
) -> ResultT:
    """Run a story on a cluster with a pool of nodes with one device each."""
    draw = random.Random(1)  # noqa: S311 - repeatable on purpose

    async def run() -> ResultT:
        with virtual_time(Clock(asyncio.get_running_loop()), draw):
            server = ApiServer("eu-1", draw)
            server.create(an_object("v1", "Namespace", NAMESPACE, namespace=""))
            server.set_nodes(POOL_NAME, nodes, devices=1)
            return await story(server, ClusterClient(server))

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
        return runner.run(run())


def an_object(
    api_version: str, kind: str, name: str, *, namespace: str = NAMESPACE, **content: Any
) -> Json:
    """Return a manifest."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def a_template(image: str = "engine:1", devices: int = 1, **spec: Any) -> Json:
    """Return a pod template that asks for devices of the pool."""
    limits = {"nvidia.com/gpu": str(devices)} if devices else {}
    container = {"name": "engine", "image": image, "resources": {"limits": limits}}
    pod = {"containers": [container], "nodeSelector": {POOL: POOL_NAME}, **spec}
    return {"metadata": {"labels": {"app": "engine"}}, "spec": pod}


def a_deployment(replicas: int, *, image: str = "engine:1", strategy: Json | None = None) -> Json:
    """Return a Deployment of engines."""
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "engine"}},
        "strategy": strategy or {"type": "Recreate"},
        "template": a_template(image),
    }
    return an_object("apps/v1", "Deployment", "engine", spec=spec)


def a_gang(replicas: int, size: int, image: str = "engine:1") -> Json:
    """Return a LeaderWorkerSet."""
    templates = {"leaderTemplate": a_template(image), "workerTemplate": a_template(image)}
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, **templates}}
    return an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "gang", spec=spec)


def names(server: ApiServer, kind: str) -> list[str]:
    """Name the objects of a kind."""
    return [each["metadata"]["name"] for each in server.store.all_of(kind)]


def ready_pods(server: ApiServer) -> list[str]:
    """Name the pods that are Ready."""
    return [
        pod["metadata"]["name"]
        for pod in server.store.all_of("Pod")
        if {"Ready": "True"}.items()
        <= {each["type"]: each["status"] for each in pod["status"]["conditions"]}.items()
    ]
