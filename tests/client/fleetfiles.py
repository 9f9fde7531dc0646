"""A small fleet as manifests: two clusters of one class, and deployments for it."""

import json
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
API = "modelplane.ai/v1alpha1"


def at_least(memory: str) -> str:
    """A selector for GPUs with that much memory."""
    return (
        f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{memory}")) >= 0'
    )


def a_class(name: str = "h200", count: int = 8) -> Tree:
    device = {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": count,
    }
    return {
        "apiVersion": API,
        "kind": "InferenceClass",
        "metadata": {"name": name},
        "spec": {"devices": [{**device, "capacity": {"memory": {"value": "141Gi"}}}]},
    }


def a_cluster(
    name: str,
    nodes: int = 2,
    pools: tuple[str, ...] = ("h200",),
    storage: str = "",
    **parts: Any,
) -> Tree:
    existing = {
        "secretRef": {"name": f"{name}-kubeconfig"},
        **({"cache": {"storageClassName": storage}} if storage else {}),
    }
    return {
        "apiVersion": API,
        "kind": "InferenceCluster",
        "metadata": {
            "name": name,
            "labels": {"site": name},
            **parts.pop("metadata", {}),
        },
        "spec": {
            "cluster": {"source": "Existing", "existing": existing},
            "nodePools": [
                {"name": pool, "className": "h200", "nodeCount": nodes}
                for pool in pools
            ],
        },
        **parts,
    }


def a_deployment(
    name: str = "chat",
    replicas: int = 2,
    memory: str = "80Gi",
    spec: Tree | None = None,
    **template: Any,
) -> Tree:
    member = {
        "nodeSelector": {
            "devices": [
                {"name": "gpu", "count": 1, "selectors": [{"cel": at_least(memory)}]}
            ]
        },
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "image": "example.com/vllm:1",
                        "args": ["--model=a/b"],
                    }
                ]
            }
        },
    }
    engines = [{"name": "main", "members": [member]}]
    return {
        "apiVersion": API,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"engines": engines, **template}},
            **(spec or {}),
        },
    }


def a_replica(
    name: str, cluster: str, deployment: str = "chat", index: int = 0, **metadata: Any
) -> Tree:
    request = {
        "name": "gpu",
        "deviceClassName": "gpu.nvidia.com",
        "count": 1,
        "selectors": [{"cel": at_least("80Gi")}],
    }
    member = {
        "nodePoolName": "h200",
        "deviceRequests": [request],
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "image": "example.com/vllm:1",
                        "args": ["--model=a/b"],
                    }
                ]
            }
        },
    }
    labels = {
        "modelplane.ai/deployment": deployment,
        "modelplane.ai/replica-index": str(index),
        "modelplane.ai/cluster": cluster,
    }
    return {
        "apiVersion": API,
        "kind": "ModelReplica",
        "metadata": {"name": name, "namespace": "ml", "labels": labels, **metadata},
        "spec": {
            "clusterName": cluster,
            "engines": [{"name": "main", "members": [member]}],
        },
    }


def a_list(*trees: Tree) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(trees)})


def a_file(folder: Path, *trees: Tree, name: str = "fleet.json") -> str:
    """Write manifests to a file, and return its path."""
    file = folder / name
    file.write_text(a_list(*trees))
    return str(file)
