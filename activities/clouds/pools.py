"""The pools of a cluster with the nodes that their classes describe for its cloud, and which pools cannot be built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from activities.clouds.desired import INVALID_INPUT, INVALID_NODE_POOL, WAITING_FOR_CLASSES, Problem
from activities.clouds.owner import SYSTEM_POOL, pool_name
from api_types.resources.inference_class import Accelerator, InferenceClass, Provisioning
from api_types.resources.inference_cluster import InferenceCluster, NodePool
from api_types.validation.rules.metadata import is_label_value


class CloudNodes(Protocol):
    """What the blocks of all clouds have."""

    @property
    def accelerator(self) -> Accelerator:
        """The GPUs of a node."""
        ...


Nodes = TypeVar("Nodes", bound=CloudNodes)


@dataclass(frozen=True)
class CloudPool(Generic[Nodes]):
    """A pool that can be built: as users wrote it, the block of its class, and its name at the cloud."""

    pool: NodePool
    nodes: Nodes
    name: str

    @property
    def key(self) -> str:
        """The key of its object: of the name at the cloud, which has only characters that every mark takes."""
        return f"pool/{self.name}"

    @property
    def title(self) -> str:
        """The pool in a problem."""
        return f"pool {self.pool.name}"


def cloud_pools(
    cluster: InferenceCluster, classes: Mapping[str, InferenceClass], cloud: str, block: Callable[[Provisioning], Nodes | None]
) -> tuple[list[CloudPool[Nodes]], list[Problem]]:
    """Give the pools that can be built, in the order of the spec, and why others cannot."""
    built: list[CloudPool[Nodes]] = []
    refused: list[Problem] = []
    for pool in cluster.spec.node_pools or ():
        name = pool_name(pool.name)
        same = next((each.pool.name for each in built if each.name == name), None)
        found = classes.get(pool.class_name)
        nodes = block(found.spec.provisioning) if found and found.spec.provisioning else None
        if pool.name == SYSTEM_POOL:
            text = f'"{SYSTEM_POOL}" is the pool that is added to every cluster; choose another name'
            problem: tuple[str, str] | None = (INVALID_NODE_POOL, text)
        elif same is not None:
            problem = (INVALID_NODE_POOL, f"its name on {cloud} is {name}, as that of pool {same}; choose another name")
        else:
            problem = _class_problem(pool, found, nodes, cloud)
        if problem is not None:
            refused.append(Problem(problem[0], f"pool {pool.name}", problem[1]))
        elif nodes is not None:
            built.append(CloudPool(pool, nodes, name))
    return built, refused


def _class_problem(pool: NodePool, found: InferenceClass | None, nodes: CloudNodes | None, cloud: str) -> tuple[str, str] | None:
    """Give reason and text, or None for nodes that can be built."""
    if found is None:
        return WAITING_FOR_CLASSES, f"InferenceClass {pool.class_name} does not exist; apply it, or name its file too"
    if nodes is None:
        return INVALID_NODE_POOL, f"InferenceClass {pool.class_name} has no spec.provisioning.{cloud.lower()}; add it, or use another class"
    if bad := [value for value in (pool.name, nodes.accelerator.type) if not is_label_value(value)]:
        return INVALID_INPUT, f'"{bad[0]}" is not usable as a node label value'
    return None
