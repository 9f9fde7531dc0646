"""Labels and taint of nodes at all clouds, and the object of a Ready system node."""

from activities.clouds.desired.graph import DesiredObject
from activities.clouds.desired.owner import SYSTEM_POOL
from api_types import labels
from api_types.messages.clouds import SYSTEM_NODES

GPU_TAINT_KEY = "nvidia.com/gpu"
GPU_TAINT_VALUE = "true"


def gpu_node_labels(pool: str, accelerator: str) -> dict[str, str]:
    """Return the labels of GPU nodes: the pool's name in the spec, and the type of GPU."""
    return {labels.GPU: accelerator, labels.POOL: pool}


def system_node_labels() -> dict[str, str]:
    return {labels.POOL: SYSTEM_POOL}


def system_nodes(*needs: str) -> DesiredObject:
    """Return the object that is ready when the system pool has a Ready node.

    No call creates it, because the pool creates its nodes.
    """
    return DesiredObject(
        f"nodes/{SYSTEM_POOL}",
        SYSTEM_NODES,
        SYSTEM_POOL,
        needs,
        (),
        "a node that is Ready",
    )
