"""The plain adapter: nodes, ResourceSlices, ResourceClaims, and our own pods.

A node that is not Ready, is cordoned, or has a taint that engine pods do not tolerate takes nothing; neither does one whose devices
somebody else has claimed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from activities.capacity.objects import Objects, holds, milliseconds
from activities.kinds import LWS_NAME_LABEL
from api_types import labels
from api_types.capacity import ADMITTED, PENDING, Admission, CapacityPool

# Every engine pod tolerates the taint that keeps others off GPU nodes.
_TOLERATED = frozenset({"nvidia.com/gpu"})
_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_GATED = "SchedulingGated"


def pools(objects: Objects) -> list[CapacityPool]:
    """Count nodes and devices per pool, by name."""
    members: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node in objects.of("Node"):
        pool = (node["metadata"].get("labels") or {}).get(labels.POOL)
        if pool:
            members[pool].append(node)
    published = _published(objects)
    ours, theirs = _claimed(objects, published)
    return [_pool(name, nodes, published, ours, theirs) for name, nodes in sorted(members.items())]


def _pool(
    name: str,
    nodes: list[dict[str, Any]],
    published: dict[tuple[str, str], tuple[str, set[str]]],
    ours: Counter[tuple[str, str]],
    theirs: Counter[tuple[str, str]],
) -> CapacityPool:
    foreign = {node for (node, _), count in theirs.items() if count}
    usable = [node["metadata"]["name"] for node in nodes if _takes_pods(node)]
    histogram: dict[str, Counter[int]] = defaultdict(Counter)
    devices: Counter[tuple[str, str]] = Counter()
    for (driver, _), (node, names) in published.items():
        devices[node, driver] += len(names)
    for (node, driver), count in devices.items():
        if node in usable:
            histogram[driver][count - ours[node, driver] - theirs[node, driver]] += 1
    return CapacityPool(
        name=name,
        nodes_total=len(nodes),
        nodes_schedulable=sum(node not in foreign for node in usable),
        foreign_nodes=sum(node in foreign for node in usable),
        device_free={driver: dict(sorted(counts.items())) for driver, counts in sorted(histogram.items())},
    )


def _takes_pods(node: dict[str, Any]) -> bool:
    taints = node["spec"].get("taints") or ()
    blocked = any(taint.get("effect") in _BLOCKING and taint.get("key") not in _TOLERATED for taint in taints)
    return holds(node, "Ready") and not node["spec"].get("unschedulable") and not blocked


def _published(objects: Objects) -> dict[tuple[str, str], tuple[str, set[str]]]:
    """Give (driver, driver's pool) -> (node, devices); within a driver's pool only the newest generation counts."""
    newest: dict[tuple[str, str], int] = {}
    slices = list(objects.of("ResourceSlice"))
    for piece in slices:
        pool = piece["spec"].get("pool") or {}
        key = (piece["spec"].get("driver", ""), pool.get("name", ""))
        newest[key] = max(newest.get(key, 0), pool.get("generation", 0))
    found: dict[tuple[str, str], tuple[str, set[str]]] = {}
    for piece in slices:
        pool = piece["spec"].get("pool") or {}
        key = (piece["spec"].get("driver", ""), pool.get("name", ""))
        if pool.get("generation", 0) == newest[key]:
            node, names = found.setdefault(key, (piece["spec"].get("nodeName", ""), set()))
            names.update(device["name"] for device in piece["spec"].get("devices") or ())
            found[key] = (node, names)
    return found


def _claimed(
    objects: Objects, published: dict[tuple[str, str], tuple[str, set[str]]]
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Count allocated devices per (node, driver): ours, and everybody else's."""
    pods = {(pod["metadata"].get("namespace", ""), pod["metadata"]["name"]) for pod in objects.of("Pod")}
    ours: Counter[tuple[str, str]] = Counter()
    theirs: Counter[tuple[str, str]] = Counter()
    for claim in objects.of("ResourceClaim"):
        namespace = claim["metadata"].get("namespace", "")
        users = {(namespace, user.get("name", "")) for user in claim["status"].get("reservedFor") or ()}
        marked = (claim["metadata"].get("labels") or {}).get(labels.MANAGED_BY) == labels.MANAGED_BY_VALUE
        counted = ours if marked or users & pods else theirs
        results = ((claim["status"].get("allocation") or {}).get("devices") or {}).get("results") or ()
        for device in results:
            if device.get("adminAccess"):
                continue  # looks at a device that others use
            node, _ = published.get((device.get("driver", ""), device.get("pool", "")), ("", set()))
            counted[node, device.get("driver", "")] += 1
    return ours, theirs


def admission(objects: Objects, reasons: dict[tuple[str, str], str] | None = None) -> list[Admission]:
    """Say of each workload of ours whether all its pods were let onto nodes; `reasons` are an admission's own words by pod."""
    worst: dict[str, Admission] = {}
    # Followers of a gang do not carry the serving label; their leader does.
    gangs = {_label(pod, LWS_NAME_LABEL): _label(pod, labels.SERVING) for pod in objects.of("Pod") if _label(pod, labels.SERVING)}
    for pod in objects.of("Pod"):
        workload = _label(pod, labels.SERVING) or gangs.get(_label(pod, LWS_NAME_LABEL) or "-", "")
        if not workload:
            continue
        found = _pod_admission(workload, pod, reasons or {})
        known = worst.get(workload)
        if known is None or (found.state == PENDING and (known.state != PENDING or found.since < known.since)):
            worst[workload] = found
    return [worst[workload] for workload in sorted(worst)]


def _label(pod: dict[str, Any], key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))


def _pod_admission(workload: str, pod: dict[str, Any], reasons: dict[tuple[str, str], str]) -> Admission:
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = reasons.get((pod["metadata"].get("namespace", ""), pod["metadata"]["name"])) or condition.get("reason", "")
            return Admission(
                workload=workload, state=PENDING, reason=said or _GATED, since=milliseconds(condition.get("lastTransitionTime", ""))
            )
    return Admission(workload=workload, state=ADMITTED)


def pod_names(objects: Objects, annotation: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Give (value of an annotation, pod) for our pods that carry it."""
    for pod in objects.of("Pod"):
        value = (pod["metadata"].get("annotations") or {}).get(annotation)
        if value:
            yield value, (pod["metadata"].get("namespace", ""), pod["metadata"]["name"])
