"""A small fleet for page tests without a control plane: one of everything the page
shows.
"""

from typing import Any

from front.store.projection import LATE_MICROSECONDS, ObjectKey, Projection, Tree

START = 1_000 * LATE_MICROSECONDS
MARKUP = (
    "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"
)


POD = {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}}
_DEVICES = [{"name": "gpu", "count": 8, "selectors": [{"cel": "true"}]}]
TEMPLATE = {
    "spec": {
        "engines": [
            {
                "name": "main",
                "members": [{"nodeSelector": {"devices": _DEVICES}, "template": POD}],
            }
        ]
    }
}
"""The template of all deployments, with which they are valid."""


def an_object(
    kind: str,
    name: str,
    namespace: str = "",
    *,
    version: int = START,
    labels: dict[str, str] | None = None,
    **more: Any,
) -> Tree:
    """Return an object with the metadata that the front adds."""
    metadata = {
        "name": name,
        "uid": f"{kind}-{name}",
        "resourceVersion": str(version),
        "labels": labels or {},
    } | more.pop("metadata", {})
    metadata |= {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": {},
        "status": {},
        **more,
    }


def condition(
    status: str = "True", reason: str = "Ready", message: str = "", kind: str = "Ready"
) -> Tree:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def a_cluster(name: str, *, nodes: int = 4, gpus: int = 8, ready: bool = True) -> Tree:
    """A cluster with one pool."""
    device = {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": gpus,
    }
    status = {
        "phase": "Ready" if ready else "Unreachable",
        "conditions": [
            condition()
            if ready
            else condition("False", "Unreachable", "the API server does not answer")
        ],
        "gateway": {"address": "10.0.0.1"},
        "gpuPools": [{"name": "gpus", "nodes": nodes, "devices": [device]}],
        "nodes": [
            {
                "pool": "gpus",
                "total": nodes,
                "ready": nodes,
                "schedulable": nodes,
                "devices": nodes * gpus,
            }
        ],
    }
    spec = {
        "cluster": {"source": "Existing"},
        "nodePools": [{"name": "gpus", "className": "h100-8x", "nodeCount": nodes}],
    }
    return an_object("InferenceCluster", name, spec=spec, status=status)


def a_deployment(
    name: str,
    *,
    wanted: int = 1,
    ready: int = 1,
    conditions: tuple[Tree, ...] = (),
    version: int = START,
    **status: Any,
) -> Tree:
    """A deployment of team-a."""
    told = {
        "replicas": {"total": wanted, "ready": ready},
        "conditions": list(conditions) or [condition()],
        **status,
    }
    return an_object(
        "ModelDeployment",
        name,
        "team-a",
        version=version,
        spec={"replicas": wanted, "template": TEMPLATE},
        status=told,
    )


def a_replica(
    name: str,
    deployment: str,
    cluster: str,
    *,
    gpus: int = 8,
    workers: int = 0,
    metadata: Tree | None = None,
    **status: Any,
) -> Tree:
    """A replica of team-a with one pod, or with a leader and workers."""
    claim = {
        "template": POD,
        "nodePoolName": "gpus",
        "deviceRequests": [
            {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": gpus}
        ],
    }
    leader: Tree = {"role": "Leader" if workers else "Standalone", **claim}
    members = [leader] + (
        [{"role": "Worker", "worker": {"nodes": workers}, **claim}] if workers else []
    )
    spec = {"clusterName": cluster, "engines": [{"name": "main", "members": members}]}
    told = {"phase": "Ready", "conditions": [condition()]} | status
    labels = {"modelplane.ai/deployment": deployment}
    return an_object(
        "ModelReplica",
        name,
        "team-a",
        labels=labels,
        spec=spec,
        status=told,
        metadata=metadata or {},
    )


def a_service(name: str) -> Tree:
    """A service of team-a with an endpoint."""
    status = {
        "conditions": [condition()],
        "address": f"http://10.0.0.1/team-a/{name}",
        "entries": [
            {"name": "stable", "weight": 90, "matched": 2, "ready": 1, "routed": 1}
        ],
        "endpoints": [
            {
                "name": "chat-eu-0",
                "cluster": "eu",
                "weight": 90,
                "url": "http://10.0.0.1/team-a/chat-eu-0",
            }
        ],
    }
    selected = {"matchLabels": {"modelplane.ai/deployment": name}}
    spec = {"endpoints": [{"name": "stable", "weight": 90, "selector": selected}]}
    return an_object("ModelService", name, "team-a", spec=spec, status=status)


def a_teardown() -> Tree:
    """The progress of a replica's teardown."""
    steps = [
        {"number": 1, "title": "stop routing", "state": "Done"},
        {"number": 2, "title": "delete workloads", "state": "Running"},
    ]
    return {
        "step": 2,
        "since": "2026-01-01T10:00:00Z",
        "steps": steps,
        "waitingFor": [{"object": "apps/v1 Deployment x", "why": "a finalizer"}],
    }


def put(projection: Projection, *trees: Tree) -> None:
    """Put objects into the projection."""
    for tree in trees:
        projection.put(
            ObjectKey(
                tree["kind"],
                tree["metadata"].get("namespace", ""),
                tree["metadata"]["name"],
            ),
            tree,
        )


def a_fleet() -> Projection:
    """A projection of the fleet, fully loaded."""
    made = Projection()
    rollout = {"templateGeneration": 2, "updated": 1, "updatedReady": 1, "total": 3}
    waiting = condition(
        "False", "NoCapacity", "pool gpus of us: 0 nodes free, 2 needed"
    )
    put(
        made,
        a_cluster("eu"),
        a_cluster("us", nodes=300, ready=False),
        a_deployment(
            "chat",
            wanted=3,
            ready=2,
            conditions=(condition("False", "RollingOut", "1 of 3 replicas updated"),),
            rollout=rollout,
        ),
        a_deployment(
            "code",
            wanted=1,
            ready=0,
            conditions=(waiting, condition("False", "Refused", MARKUP, kind="Placed")),
        ),
        a_replica("chat-eu-0", "chat", "eu"),
        a_replica("chat-eu-1", "chat", "eu", gpus=2),
        a_replica(
            "chat-us-0",
            "chat",
            "us",
            workers=2,
            phase="Starting",
            conditions=[condition("False", "Starting", "engine main loads")],
        ),
        a_replica(
            "old-eu-0",
            "old",
            "eu",
            gpus=4,
            phase="Terminating",
            teardown=a_teardown(),
            metadata={"deletionTimestamp": "2026-01-01T10:00:00Z"},
        ),
        a_service("chat"),
    )
    made.complete = True
    return made
