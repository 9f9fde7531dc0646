"""A connected and Ready cluster, for tests of its decisions and reports."""

from typing import Any

from api_types import labels
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import ObservedCluster
from workflows.inference_cluster.state import ClusterState, KnownClass

DEVICES = [
    {
        "name": "gpu",
        "count": 8,
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
    }
]
H100 = KnownClass(generation=1, spec={"devices": DEVICES})


def a_pool(
    name: str = "h100", class_name: str = "h100-8x", **fields: Any
) -> dict[str, Any]:
    return {"name": name, "className": class_name, "nodeCount": 2, **fields}


def a_spec(*pools: dict[str, Any], **fields: Any) -> dict[str, Any]:
    existing = {"secretRef": {"name": "eu-1"}, "cache": {"storageClassName": "rwx"}}
    return {
        "cluster": {"source": "Existing", "existing": existing},
        "nodePools": list(pools or (a_pool(),)),
        **fields,
    }


def a_cluster(**fields: Any) -> ClusterState:
    """Return a connected cluster with an observed gateway and a known class."""
    plain: dict[str, Any] = {
        "uid": "u",
        "generation": 2,
        "connected_generation": 2,
        "spec": a_spec(),
        "annotations": {labels.STACK: "external"},
        "classes": {"h100-8x": H100},
        "facts": ClusterFacts(
            kubernetes_version="1.35",
            dra_version="v1",
            storage_class_name="rwx",
            withdraw_after_seconds=300,
        ),
        "observed": ObservedCluster(reachable=True, gateway_address="192.0.2.1"),
        "sequence": 7,
    }
    return ClusterState(**{**plain, **fields})
