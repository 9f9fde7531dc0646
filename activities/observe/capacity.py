"""Observe the nodes of a cluster's pools, and the devices of their drivers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from activities.observe.conditions import find_condition
from api_types.labels import POOL
from api_types.limits import (
    NODE_RESOURCES_MAX,
    OBSERVED_MAX,
    POOLS_WITH_RESOURCES_MAX,
)
from api_types.messages.observations import ObservedNodes

# A server may return a string of any length.
_NAME_MAX = 253


class NodeSeen(NamedTuple):
    """The kept record of one node."""

    name: str
    pool: str
    ready: bool
    schedulable: bool
    resources: tuple[str, ...] = ()


class SliceSeen(NamedTuple):
    """The kept record of one ResourceSlice.

    Within a driver's pool only slices of the newest generation count.
    """

    driver: str
    pool: str
    generation: int
    node: str
    devices: int


def read_node(node: Mapping[str, Any]) -> NodeSeen | None:
    """Reduce a node. Returns None if it is in no pool of Modelplane."""
    pool = (node["metadata"].get("labels") or {}).get(POOL)
    if not pool:
        return None
    ready = find_condition(
        (node.get("status") or {}).get("conditions") or [], "Ready"
    ).is_true
    return NodeSeen(
        node["metadata"]["name"],
        pool,
        ready,
        schedulable=not (node.get("spec") or {}).get("unschedulable"),
        resources=_extended_resources(node),
    )


def _extended_resources(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the resources of device plugins that the node offers.

    A plugin that stops sets its resource to 0.
    """
    offered = (node.get("status") or {}).get("allocatable") or {}
    return tuple(
        str(name)[:_NAME_MAX]
        for name, amount in offered.items()
        if "/" in str(name) and str(amount) != "0"
    )


def read_slice(item: Mapping[str, Any]) -> SliceSeen:
    """Reduce a ResourceSlice of any version."""
    spec = item.get("spec") or {}
    pool = spec.get("pool") or {}
    return SliceSeen(
        spec.get("driver", ""),
        pool.get("name", ""),
        pool.get("generation", 0),
        spec.get("nodeName", ""),
        len(spec.get("devices") or ()),
    )


def observe_nodes(
    nodes: Iterable[NodeSeen], slices: Iterable[SliceSeen]
) -> list[ObservedNodes]:
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
            resources=_resources_of(members) if at < POOLS_WITH_RESOURCES_MAX else None,
        )
        for at, (pool, members) in enumerate(sorted(pools.items())[:OBSERVED_MAX])
    ]


def _resources_of(nodes: Iterable[NodeSeen]) -> list[str] | None:
    """Return what any Ready node offers, sorted, or None if that is too much."""
    ready = (node.resources for node in nodes if node.ready)
    found = sorted(set(chain.from_iterable(ready)))
    return found if len(found) <= NODE_RESOURCES_MAX else None
