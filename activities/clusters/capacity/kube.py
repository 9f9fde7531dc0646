"""The plain adapter: nodes, ResourceSlices, ResourceClaims.

A node that is not Ready, is cordoned, or has a taint that engine pods do not tolerate takes no pods; neither does one with devices that
claims of others have allocated.
"""

from collections import Counter, defaultdict
from typing import Any

from activities.clusters.capacity.objects import Objects, is_true
from api_types import labels
from api_types.messages.capacity import CapacityPool

# Every engine pod tolerates the usual taint of GPU nodes.
_TOLERATED = frozenset({"nvidia.com/gpu"})
_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


def pools(objects: Objects) -> list[CapacityPool]:
    """Count nodes and devices per pool, by name."""
    members: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node in objects.of("Node"):
        pool = (node["metadata"].get("labels") or {}).get(labels.POOL)
        if pool:
            members[pool].append(node)
    published = _published(objects)
    own, foreign = _claimed(objects, published)
    # By node, and once for all pools: a cluster says how many there are of both.
    devices: dict[str, Counter[str]] = defaultdict(Counter)
    for (driver, _), (where, names) in published.items():
        devices[where][driver] += len(names)
    free = {
        node: {driver: count - own[node, driver] - foreign[node, driver] for driver, count in found.items()}
        for node, found in devices.items()
    }
    foreign_nodes = {node for (node, _), count in foreign.items() if count}
    return [_pool(name, nodes, free, foreign_nodes) for name, nodes in sorted(members.items())]


def _pool(name: str, nodes: list[dict[str, Any]], free: dict[str, dict[str, int]], foreign_nodes: set[str]) -> CapacityPool:
    usable = [node["metadata"]["name"] for node in nodes if _takes_pods(node)]
    histogram: dict[str, Counter[int]] = defaultdict(Counter)
    for node in usable:
        for driver, count in free.get(node, {}).items():
            histogram[driver][count] += 1
    return CapacityPool(
        name=name,
        nodes_total=len(nodes),
        nodes_schedulable=sum(node not in foreign_nodes for node in usable),
        foreign_nodes=sum(node in foreign_nodes for node in usable),
        device_free={driver: dict(sorted(counts.items())) for driver, counts in sorted(histogram.items())},
    )


def _takes_pods(node: dict[str, Any]) -> bool:
    taints = node["spec"].get("taints") or ()
    blocked = any(taint.get("effect") in _BLOCKING and taint.get("key") not in _TOLERATED for taint in taints)
    return is_true(node, "Ready") and not node["spec"].get("unschedulable") and not blocked


def _published(objects: Objects) -> dict[tuple[str, str], tuple[str, set[str]]]:
    """Give (driver, driver's pool) -> (node, devices); within a driver's pool only the newest generation counts."""
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
            node, names = found.setdefault(key, (item["spec"].get("nodeName", ""), set()))
            names.update(device["name"] for device in item["spec"].get("devices") or ())
            found[key] = (node, names)
    return found


def _claimed(
    objects: Objects, published: dict[tuple[str, str], tuple[str, set[str]]]
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Count allocated devices per (node, driver): of our claims, and of all others."""
    pods = {(pod["metadata"].get("namespace", ""), pod["metadata"]["name"]) for pod in objects.of("Pod")}
    own: Counter[tuple[str, str]] = Counter()
    foreign: Counter[tuple[str, str]] = Counter()
    for claim in objects.of("ResourceClaim"):
        namespace = claim["metadata"].get("namespace", "")
        users = {(namespace, user.get("name", "")) for user in claim["status"].get("reservedFor") or ()}
        managed = (claim["metadata"].get("labels") or {}).get(labels.MANAGED_BY) == labels.MANAGED_BY_VALUE
        counted = own if managed or users & pods else foreign
        results = ((claim["status"].get("allocation") or {}).get("devices") or {}).get("results") or ()
        for device in results:
            if device.get("adminAccess"):
                continue  # monitors a device that others use
            node, _ = published.get((device.get("driver", ""), device.get("pool", "")), ("", set()))
            counted[node, device.get("driver", "")] += 1
    return own, foreign
