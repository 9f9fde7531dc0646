"""What all clouds have of nodes: the labels and the taint, which each writes in its own form, and that the system pool has a Ready one."""

from activities.clouds.graph import DesiredObject
from activities.clouds.owner import SYSTEM_POOL
from api_types import labels
from api_types.messages.clouds import SYSTEM_NODES

GPU_TAINT_KEY = "nvidia.com/gpu"
GPU_TAINT_VALUE = "true"


def gpu_node_labels(pool: str, accelerator: str) -> dict[str, str]:
    """Give the labels of GPU nodes: the pool as users wrote it, and the type of GPU."""
    return {labels.GPU: accelerator, labels.POOL: pool}


def system_node_labels() -> dict[str, str]:
    """Give the labels of nodes without GPUs."""
    return {labels.POOL: SYSTEM_POOL}


def system_nodes(*needs: str) -> DesiredObject:
    """Give what is Ready when the cluster itself has a Ready node of the system pool. Nothing is called to make it: the pool does that."""
    return DesiredObject(f"nodes/{SYSTEM_POOL}", SYSTEM_NODES, SYSTEM_POOL, needs, (), "a node that is Ready")
