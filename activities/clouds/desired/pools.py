"""Match the pools of a cluster with the nodes that their classes describe.

Pools that cannot be created become problems.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from activities.clouds.desired.owner import SYSTEM_POOL, pool_name
from activities.clouds.desired.plan import (
    INVALID_INPUT,
    INVALID_NODE_POOL,
    WAITING_FOR_CLASSES,
    PlanProblem,
)
from api_types.resources.inference_class import (
    Accelerator,
    InferenceClass,
    Provisioning,
)
from api_types.resources.inference_cluster import InferenceCluster, NodePool
from api_types.validation.rules.metadata import is_label_value


class CloudNodes(Protocol):
    """The common part of all clouds' provisioning blocks."""

    @property
    def accelerator(self) -> Accelerator:
        """The GPUs of a node."""
        ...


Nodes = TypeVar("Nodes", bound=CloudNodes)


@dataclass(frozen=True)
class CloudPool(Generic[Nodes]):
    """A pool that can be created: its spec, the block of its class, and its cloud name."""

    pool: NodePool
    nodes: Nodes
    name: str

    @property
    def key(self) -> str:
        """The key of its object. The name at the cloud is valid in every mark."""
        return f"pool/{self.name}"

    @property
    def title(self) -> str:
        return f"pool {self.pool.name}"


def cloud_pools(
    cluster: InferenceCluster,
    classes: Mapping[str, InferenceClass],
    cloud: str,
    block: Callable[[Provisioning], Nodes | None],
) -> tuple[list[CloudPool[Nodes]], list[PlanProblem]]:
    """Return the pools that can be created, in the order of the spec, and the problems."""
    built: list[CloudPool[Nodes]] = []
    refused: list[PlanProblem] = []
    for pool in cluster.spec.node_pools or ():
        name = pool_name(pool.name)
        same = next((each.pool.name for each in built if each.name == name), None)
        found = classes.get(pool.class_name)
        nodes = (
            block(found.spec.provisioning)
            if found and found.spec.provisioning
            else None
        )
        if pool.name == SYSTEM_POOL:
            text = (
                f'"{SYSTEM_POOL}" is the pool that is added to every cluster; choose '
                "another name"
            )
            problem: tuple[str, str] | None = (INVALID_NODE_POOL, text)
        elif same is not None:
            problem = (
                INVALID_NODE_POOL,
                f"pool {same} has the same name on {cloud}, {name}; choose another name",
            )
        else:
            problem = _class_problem(pool, found, nodes, cloud)
        if problem is not None:
            refused.append(PlanProblem(problem[0], f"pool {pool.name}", problem[1]))
        elif nodes is not None:
            built.append(CloudPool(pool, nodes, name))
    return built, refused


def _class_problem(
    pool: NodePool, found: InferenceClass | None, nodes: CloudNodes | None, cloud: str
) -> tuple[str, str] | None:
    """Return reason and text of a problem, or None if the nodes can be created."""
    title = f"InferenceClass {pool.class_name}"
    if found is None:
        text = f"{title} does not exist; apply it, or pass its file to the plan"
        return WAITING_FOR_CLASSES, text
    if nodes is None:
        block = f"spec.provisioning.{cloud.lower()}"
        text = f"{title} has no {block}; add it, or use another class"
        return INVALID_NODE_POOL, text
    for value in (pool.name, nodes.accelerator.type):
        if not is_label_value(value):
            return INVALID_INPUT, f'"{value}" is not usable as a node label value'
    return None
