"""Labels and the taint that all clouds set on nodes; each cloud writes them in its own form."""

from activities.clouds.owner import SYSTEM_POOL
from api_types import labels

GPU_TAINT_KEY = "nvidia.com/gpu"
GPU_TAINT_VALUE = "true"


def gpu_node_labels(pool: str, accelerator: str) -> dict[str, str]:
    """Give the labels of GPU nodes: the pool as users wrote it, and the type of GPU."""
    return {labels.GPU: accelerator, labels.POOL: pool}


def system_node_labels() -> dict[str, str]:
    """Give the labels of nodes without GPUs."""
    return {labels.POOL: SYSTEM_POOL}
