"""The plain adapter: nodes, ResourceSlices, ResourceClaims.

A node takes no pods if it is not Ready, is cordoned, has a taint that engine pods do
not tolerate, or has devices that foreign claims have allocated. The tolerations of a
pod depend on the devices that it claims, which are on the pool's nodes, and on the
`podPolicy` of the pool's class.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from activities.clusters.capacity.objects import CapacityObjects, is_true
from activities.render.objects.tolerations import keeps_pods_away, toleration_keys
from api_types import labels
from api_types.messages.capacity import CapacityPool

# By pool, in wire form.
Tolerations = Mapping[str, Sequence[Mapping[str, Any]]]
NO_TOLERATIONS: Tolerations = {}


def pools(
    objects: CapacityObjects,
    configured_keys: Iterable[str] = (),
    granted: Tolerations = NO_TOLERATIONS,
) -> list[CapacityPool]:
    """Count nodes and devices per pool.

    Returns the pools sorted by name.

    `configured_keys` are taints that engine pods tolerate on every node. `granted` are
    the additional tolerations on the nodes of a pool.
    """
    members: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node in objects.of("Node"):
        pool = (node["metadata"].get("labels") or {}).get(labels.POOL)
        if pool:
            members[pool].append(node)
    published = _published(objects)
    own, foreign = _claimed(objects, published)
    # Stored by node, and once for all pools, because the cluster controls the number of
    # both.
    devices: dict[str, Counter[str]] = defaultdict(Counter)
    for (driver, _), (where, names) in published.items():
        devices[where][driver] += len(names)
    free = {
        node: {
            driver: count - own[node, driver] - foreign[node, driver]
            for driver, count in found.items()
        }
        for node, found in devices.items()
    }
    foreign_nodes = {node for (node, _), count in foreign.items() if count}
    tolerated = {
        name: _tolerated(nodes, devices, configured_keys)
        for name, nodes in members.items()
    }
    usable = {
        name: [
            node["metadata"]["name"]
            for node in nodes
            if _takes_pods(node, tolerated[name], granted.get(name, ()))
        ]
        for name, nodes in members.items()
    }
    return [
        _pool(name, len(nodes), usable[name], free, foreign_nodes)
        for name, nodes in sorted(members.items())
    ]


def _tolerated(
    nodes: list[dict[str, Any]],
    devices: Mapping[str, Iterable[str]],
    configured_keys: Iterable[str],
) -> tuple[str, ...]:
    """Return the taints that pods on a pool tolerate because of its devices.

    `devices` has the drivers of each node.
    """
    drivers, resources = list[str](), list[str]()
    for node in nodes:
        drivers += devices.get(node["metadata"]["name"], ())
        resources += node["status"].get("allocatable") or ()
    return toleration_keys(configured_keys, drivers, resources)


def _pool(
    name: str,
    total: int,
    usable: list[str],
    free: dict[str, dict[str, int]],
    foreign_nodes: set[str],
) -> CapacityPool:
    histogram: dict[str, Counter[int]] = defaultdict(Counter)
    for node in usable:
        for driver, count in free.get(node, {}).items():
            histogram[driver][count] += 1
    return CapacityPool(
        name=name,
        nodes_total=total,
        nodes_schedulable=sum(node not in foreign_nodes for node in usable),
        foreign_nodes=sum(node in foreign_nodes for node in usable),
        device_free={
            driver: dict(sorted(counts.items()))
            for driver, counts in sorted(histogram.items())
        },
    )


def _takes_pods(
    node: dict[str, Any],
    tolerated: tuple[str, ...],
    granted: Iterable[Mapping[str, Any]],
) -> bool:
    blocked = any(
        keeps_pods_away(taint, tolerated, granted)
        for taint in node["spec"].get("taints") or ()
    )
    return (
        is_true(node, "Ready") and not node["spec"].get("unschedulable") and not blocked
    )


def _published(objects: CapacityObjects) -> dict[tuple[str, str], tuple[str, set[str]]]:
    """Return (driver, driver's pool) -> (node, devices).

    Within a driver's pool only the newest generation counts.
    """
    newest: dict[tuple[str, str], int] = {}
    slices = list(objects.of("ResourceSlice"))
    for item in slices:
        pool = item["spec"].get("pool") or {}
        key = (item["spec"].get("driver", ""), pool.get("name", ""))
        newest[key] = max(newest.get(key, 0), pool.get("generation", 0))
    found: dict[tuple[str, str], tuple[str, set[str]]] = {}
    for item in slices:
        pool = item["spec"].get("pool") or {}
        key = (item["spec"].get("driver", ""), pool.get("name", ""))
        if pool.get("generation", 0) == newest[key]:
            node, names = found.setdefault(
                key, (item["spec"].get("nodeName", ""), set())
            )
            names.update(device["name"] for device in item["spec"].get("devices") or ())
            found[key] = (node, names)
    return found


def _claimed(
    objects: CapacityObjects, published: dict[tuple[str, str], tuple[str, set[str]]]
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Count allocated devices per (node, driver), of our and of foreign claims."""
    pods = {
        (pod["metadata"].get("namespace", ""), pod["metadata"]["name"])
        for pod in objects.of("Pod")
    }
    own: Counter[tuple[str, str]] = Counter()
    foreign: Counter[tuple[str, str]] = Counter()
    for claim in objects.of("ResourceClaim"):
        namespace = claim["metadata"].get("namespace", "")
        users = {
            (namespace, user.get("name", ""))
            for user in claim["status"].get("reservedFor") or ()
        }
        marks = claim["metadata"].get("labels") or {}
        managed = marks.get(labels.MANAGED_BY) == labels.MANAGED_BY_VALUE
        counted = own if managed or users & pods else foreign
        allocation = claim["status"].get("allocation") or {}
        for device in (allocation.get("devices") or {}).get("results") or ():
            if device.get("adminAccess"):
                # A claim with admin access only monitors a device that others use.
                continue
            node, _ = published.get(
                (device.get("driver", ""), device.get("pool", "")), ("", set())
            )
            counted[node, device.get("driver", "")] += 1
    return own, foreign
