"""Helpers for tests of serving topologies.

Deployments of every shape, and nodes, pods and claims over time.
"""

import asyncio
import copy
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from activities.messaging.search_attributes import CONNECTION_MEMO
from api_types import labels
from tests.environment.background import in_background
from tests.environment.waiting import TIMEOUT_SECONDS, pauses
from tests.workflows.environment.forking import forks
from tests.workflows.environment.harness import (
    SOON_SECONDS,
    ControlPlane,
    Json,
    condition,
    eventually,
)

CLUSTER = "prod-eu"
H100, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA L40S"
IMAGE = "registry.example/engine:1"
# An administrator adds this taint to a lost node. Its pods end at once, and no pod is
# placed there.
LOST = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}
POLL_SECONDS = 0.1
SURE_LOOKS = 5
WORKLOADS = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets",
}


def a_member(
    product: str,
    *,
    role: str = "",
    nodes: int = 0,
    gpus: int = 8,
    image: str = IMAGE,
    ready_after: str = "",
    **container: Any,
) -> Json:
    """Return one member that claims GPUs of one product."""
    slow = (
        {
            "metadata": {
                "annotations": {"testbed.modelplane.ai/ready-after": ready_after}
            }
        }
        if ready_after
        else {}
    )
    selector = {
        "cel": f'device.attributes["gpu.nvidia.com"].productName == "{product}"'
    }
    return {
        **({"role": role} if role else {}),
        **({"worker": {"nodes": nodes}} if nodes else {}),
        "nodeSelector": {
            "devices": [{"name": "gpu", "count": gpus, "selectors": [selector]}]
        },
        "template": {
            **slow,
            "spec": {"containers": [{"name": "engine", "image": image, **container}]},
        },
    }


def a_gang(product: str = H100, nodes: int = 3, copies: int = 1, **member: Any) -> Json:
    """Return an engine with one leader and `nodes` followers."""
    members = [
        a_member(product, role="Leader", **member),
        a_member(product, role="Worker", nodes=nodes, **member),
    ]
    return {"name": "main", "copies": copies, "members": members}


def an_engine(name: str, product: str, copies: int = 1, **more: Any) -> Json:
    """Return an engine whose copies are one pod each."""
    phase = {"phase": more.pop("phase")} if "phase" in more else {}
    return {
        "name": name,
        "copies": copies,
        **phase,
        "members": [a_member(product, **more)],
    }


def a_model(
    name: str,
    namespace: str,
    *engines: Json,
    replicas: int = 1,
    mode: str = "",
    **spec: Any,
) -> Json:
    """Return a ModelDeployment on the only cluster of these tests."""
    template = {
        "clusterSelector": {"matchLabels": {"modelplane.ai/region": "eu-west"}},
        **({"serving": {"mode": mode}} if mode else {}),
        "engines": list(engines),
        **spec.pop("template", {}),
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace, **spec.pop("metadata", {})},
        "spec": {
            "replicas": replicas,
            "template": {"spec": template},
            **spec,
        },
    }


def a_pair(
    namespace: str,
    name: str = "pair",
    prefills: int = 3,
    decodes: int = 2,
    **member: Any,
) -> Json:
    """Return a deployment with prefill and decode on separate pools."""
    prefill = an_engine("prefill", L40S, copies=prefills, phase="Prefill", **member)
    decode = an_engine("decode", H100, copies=decodes, phase="Decode", **member)
    return a_model(name, namespace, prefill, decode, mode="PrefillDecode")


def with_image(document: Json, image: str) -> Json:
    """Return the same deployment with another image in every engine."""
    changed: Json = copy.deepcopy(document)
    for engine in changed["spec"]["template"]["spec"]["engines"]:
        for member in engine["members"]:
            for container in member["template"]["spec"]["containers"]:
                container["image"] = image
    return changed


@asynccontextmanager
async def routed_by_pools(
    plane: ControlPlane, cluster: str = CLUSTER
) -> AsyncIterator[None]:
    """Route new replicas of a cluster through InferencePools with endpoint pickers
    while the body runs.
    """
    await route_by(plane, "pool", cluster)
    try:
        yield
    finally:
        await route_by(plane, "service", cluster)


async def route_by(plane: ControlPlane, surface: str, cluster: str = CLUSTER) -> None:
    """Set how a cluster routes, and wait until new replicas use that."""
    manifest = await plane.describe("InferenceCluster", cluster)
    kept = {
        key: manifest["metadata"].get(key, {})
        for key in ("name", "labels", "annotations")
    }
    kept["annotations"] = {**kept["annotations"], labels.ROUTING: surface}
    await plane.apply(
        {
            "apiVersion": manifest["apiVersion"],
            "kind": "InferenceCluster",
            "metadata": kept,
            "spec": manifest["spec"],
        }
    )

    async def routing() -> str:
        found: str = (await connection_of(plane, cluster))["facts"]["routing"]
        return found

    await eventually(
        routing, lambda found: found == surface, what=f"routing of {cluster}"
    )


async def connection_of(plane: ControlPlane, cluster: str = CLUSTER) -> Json:
    """Return the connection that replicas read from a cluster when they start."""
    found: Json = await (
        await plane.handle("InferenceCluster", cluster).describe()
    ).memo_value(CONNECTION_MEMO)
    return found


async def the_replica(plane: ControlPlane, name: str, namespace: str) -> Json:
    """Return the only replica of a deployment."""
    seen = await plane.describe("ModelDeployment", name, namespace)
    (placement,) = seen["status"]["placements"]
    return await plane.describe("ModelReplica", placement["replica"], namespace)


def pools_of(replica: Json) -> dict[str, str]:
    """Return the pool that the scheduler chose, by engine and role."""
    return {
        f"{engine['name']}/{member.get('role', 'Standalone')}": member["nodePoolName"]
        for engine in replica["spec"]["engines"]
        for member in engine["members"]
    }


def nodes_in_use(
    plane: ControlPlane, namespace: str, cluster: str = CLUSTER
) -> dict[str, set[str]]:
    """Return the nodes with pods of a namespace, by pool.

    A pod holds its node until it is gone.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for pod in plane.pods(cluster, namespace):
        pool = pod["spec"].get("nodeSelector", {}).get(labels.POOL)
        if pool and pod["spec"].get("nodeName"):
            found[pool].add(pod["spec"]["nodeName"])
    return dict(found)


def claimed_nodes(
    plane: ControlPlane, namespace: str, cluster: str = CLUSTER
) -> list[str]:
    """Return the node of each allocated device claim of a namespace."""
    claims = plane.get(
        cluster, f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    )["items"]
    allocated = [
        claim["status"]["allocation"]["devices"]["results"]
        for claim in claims
        if claim.get("status", {}).get("allocation")
    ]
    return sorted({result["pool"] for results in allocated for result in results})


def pool_of_node(plane: ControlPlane, node: str, cluster: str = CLUSTER) -> str:
    """Return the pool of a node."""
    found: str = plane.get(cluster, f"/api/v1/nodes/{node}")["metadata"]["labels"][
        labels.POOL
    ]
    return found


@asynccontextmanager
async def lost_node(
    plane: ControlPlane, node: str, cluster: str = CLUSTER
) -> AsyncIterator[None]:
    """Lose a node while the body runs: it stops reporting and is tainted as out of service."""
    await _switch(plane, cluster, node, offline=True)
    try:
        await _taint(plane, cluster, node, lost=True)
        async with _kept_lost(plane, cluster, node):
            yield
    finally:
        await _taint(plane, cluster, node, lost=False)
        await _switch(plane, cluster, node, offline=False)


@asynccontextmanager
async def _kept_lost(
    plane: ControlPlane, cluster: str, node: str
) -> AsyncIterator[None]:
    """Keep a node's taint, as an administrator would.

    The node controller overwrites all taints whenever it adds one.
    """

    found = asyncio.Event()

    async def keep() -> None:
        while not found.is_set():
            await asyncio.to_thread(_mark, plane, cluster, node, lost=True)
            await asyncio.sleep(POLL_SECONDS)

    keeper = asyncio.create_task(keep())
    try:
        yield
    finally:
        found.set()
        await keeper


async def _switch(
    plane: ControlPlane, cluster: str, node: str, *, offline: bool
) -> None:
    """Switch a node off or on, and wait until the node controller has noticed."""
    change = {
        "metadata": {
            "annotations": {
                "testbed.modelplane.ai/offline": "true" if offline else None
            }
        }
    }
    plane.call(
        cluster,
        "PATCH",
        f"/api/v1/nodes/{node}",
        change,
        "application/merge-patch+json",
    )

    async def noticed() -> bool:
        return any(
            taint["key"] == "node.kubernetes.io/not-ready"
            for taint in _taints(plane, cluster, node)
        )

    await eventually(
        noticed, lambda silent: silent is offline, what=f"the state of {node}"
    )


async def _taint(plane: ControlPlane, cluster: str, node: str, *, lost: bool) -> None:
    """Add or remove a node's taint.

    The node controller replaces all taints at once, so the taint may have to be added
    again.
    """

    async def marked() -> bool:
        return _mark(plane, cluster, node, lost=lost)

    for _ in range(SURE_LOOKS):
        await eventually(marked, lambda done: done)
        await asyncio.sleep(POLL_SECONDS)


def _mark(plane: ControlPlane, cluster: str, node: str, *, lost: bool) -> bool:
    """Add or remove a node's taint if necessary; return whether nothing had to change."""
    taints = _taints(plane, cluster, node)
    if (LOST["key"] in {taint["key"] for taint in taints}) is lost:
        return True
    others = [taint for taint in taints if taint["key"] != LOST["key"]]
    change = {"spec": {"taints": [*others, *([LOST] if lost else [])]}}
    plane.call(
        cluster,
        "PATCH",
        f"/api/v1/nodes/{node}",
        change,
        "application/merge-patch+json",
    )
    return False


def _taints(plane: ControlPlane, cluster: str, node: str) -> list[Json]:
    found: list[Json] = plane.get(cluster, f"/api/v1/nodes/{node}")["spec"].get(
        "taints", []
    )
    return found


@dataclass
class Watched:
    """Observations over a period: the most nodes held per pool, and the fewest published endpoints.

    `together` has the kinds of workloads that existed at the same time.
    """

    nodes_most: dict[str, int] = field(default_factory=dict)
    endpoints_fewest: int = 1000
    together: set[frozenset[str]] = field(default_factory=set)


@asynccontextmanager
async def watching(
    plane: ControlPlane, name: str, namespace: str, cluster: str = CLUSTER
) -> AsyncIterator[Watched]:
    """Poll nodes and replicas while the body runs."""
    seen = Watched()

    def poll_nodes() -> None:
        for pool, nodes in nodes_in_use(plane, namespace, cluster).items():
            seen.nodes_most[pool] = max(seen.nodes_most.get(pool, 0), len(nodes))
        seen.together.add(
            frozenset(
                kind
                for kind, path in WORKLOADS.items()
                if plane.get(cluster, path.format(namespace))["items"]
            )
        )

    async def poll() -> None:
        while True:
            await asyncio.to_thread(poll_nodes)
            status = (await plane.describe("ModelDeployment", name, namespace)).get(
                "status", {}
            )
            if "placements" in status:
                seen.endpoints_fewest = min(
                    seen.endpoints_fewest,
                    sum(bool(each["endpoint"]) for each in status["placements"]),
                )
            await asyncio.sleep(POLL_SECONDS)

    async with in_background(poll()):
        yield seen


async def rolled(
    plane: ControlPlane, document: Json, within: float = TIMEOUT_SECONDS
) -> Json:
    """Apply a changed deployment and wait until it is Ready."""
    name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
    request = await plane.apply(document)
    return await plane.until(
        "ModelDeployment",
        name,
        lambda seen: (
            request in seen["appliedRequestIds"]
            and condition(seen, "Ready") == "True"
            and seen["status"]["observedGeneration"] == seen["metadata"]["generation"]
        ),
        namespace,
        within,
    )


async def run(plane: ControlPlane, *words: str) -> tuple[int, str]:
    """Run one command of the client; return its exit code and output."""
    settings = {"MODELPLANE_TEMPORAL__ADDRESS": plane.running.temporal_address}
    with NamedTemporaryFile() as said:
        pid = forks().start(settings, Path(said.name), "client.main", words)
        for pause in pauses(shortest=SOON_SECONDS):
            if (code := forks().exit_code(pid)) is not None:
                return code, said.read().decode()
            await asyncio.sleep(pause)
    raise AssertionError(f"modelplane {' '.join(words)} does not end")


async def leave_nothing(plane: ControlPlane, name: str, namespace: str) -> None:
    """Delete a deployment and wait until no cluster has any object of it."""
    await plane.delete("ModelDeployment", name, namespace)
    await plane.gone("ModelDeployment", name, namespace)
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []
        assert plane.pods(cluster, namespace) == []
