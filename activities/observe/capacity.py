"""The nodes of a cluster's pools, and the devices that drivers publish for them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from activities.observe.conditions import find_condition
from api_types.labels import POOL
from api_types.limits import OBSERVED_MAX
from api_types.messages.observations import ObservedNodes


class NodeSeen(NamedTuple):
    """What is kept of one node."""

    name: str
    pool: str
    ready: bool
    schedulable: bool


class SliceSeen(NamedTuple):
    """What is kept of one ResourceSlice. Within a driver's pool only slices of the newest generation count."""

    driver: str
    pool: str
    generation: int
    node: str
    devices: int


def read_node(node: Mapping[str, Any]) -> NodeSeen | None:
    """Reduce a node; None if it is in none of our pools."""
    pool = (node["metadata"].get("labels") or {}).get(POOL)
    if not pool:
        return None
    ready = find_condition((node.get("status") or {}).get("conditions") or [], "Ready").is_true
    return NodeSeen(node["metadata"]["name"], pool, ready, schedulable=not (node.get("spec") or {}).get("unschedulable"))


def read_slice(item: Mapping[str, Any]) -> SliceSeen:
    """Reduce a ResourceSlice of any version."""
    spec = item.get("spec") or {}
    pool = spec.get("pool") or {}
    return SliceSeen(
        spec.get("driver", ""), pool.get("name", ""), pool.get("generation", 0), spec.get("nodeName", ""), len(spec.get("devices") or ())
    )


def observe_nodes(nodes: Iterable[NodeSeen], slices: Iterable[SliceSeen]) -> list[ObservedNodes]:
    """Count nodes and devices per pool, sorted by pool."""
    published = list(slices)
    newest: dict[tuple[str, str], int] = {}
    for piece in published:
        newest[piece[:2]] = max(piece.generation, newest.get(piece[:2], 0))
    devices: dict[str, int] = defaultdict(int)
    for piece in published:
        if piece.generation == newest[piece[:2]]:
            devices[piece.node] += piece.devices
    pools: dict[str, list[NodeSeen]] = defaultdict(list)
    for node in nodes:
        pools[node.pool].append(node)
    return [
        ObservedNodes(
            pool=pool,
            total=len(members),
            ready=sum(node.ready for node in members),
            schedulable=sum(node.ready and node.schedulable for node in members),
            devices=sum(devices[node.name] for node in members),
        )
        for pool, members in sorted(pools.items())[:OBSERVED_MAX]
    ]
