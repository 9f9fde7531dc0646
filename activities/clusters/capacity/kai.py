"""KAI: the GPUs that its Queues still admit, and why its PodGroups wait.

KAI sets a condition on a pod that it evicts, as kube-scheduler does on a pod that it
preempts. A PodGroup only has the reason of pending pods. The quota of a queue is its
guaranteed share, and the limit its maximum. A negative value means no limit. The
parents of a queue limit it too. A queue without a share of the surplus
(`overQuotaWeight` 0) never exceeds its quota. A fraction of a GPU counts as a whole
one.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from activities.clusters.capacity.admission import (
    Pod,
    PodAdmission,
    condition_text,
    pods_with,
)
from activities.clusters.capacity.counts import amount, ceiling, floor
from activities.clusters.capacity.objects import CapacityObjects
from api_types.messages.capacity import CapacityQueue

_GPU = "nvidia.com/gpu"
_POD_GROUP = "pod-group-name"
_UNLIMITED = -1
# KAI has two levels, and a few more with nested departments.
_CHAIN_MAX = 16


def queues(objects: CapacityObjects) -> list[CapacityQueue]:
    """Return the queues, sorted by name."""
    known = {queue["metadata"]["name"]: queue for queue in objects.of("Queue")}
    return [_queue(name, known) for name in sorted(known)]


def _queue(name: str, known: dict[str, dict[str, Any]]) -> CapacityQueue:
    queue = known[name]
    gpu = (queue["spec"].get("resources") or {}).get("gpu") or {}
    used = _amount_of(queue, "allocated")
    left = [_left(known[step]) for step in _chain(name, known)]
    bounds = [bound for bound in left if bound is not None]
    nominal, limit = (
        amount(gpu.get("quota", _UNLIMITED)),
        amount(gpu.get("limit", _UNLIMITED)),
    )
    return CapacityQueue(
        name=name,
        tenants=[name],
        nominal=_UNLIMITED if nominal < 0 else floor(nominal),
        used=ceiling(used),
        borrowed=0 if nominal < 0 else max(0, ceiling(used - nominal)),
        limit=_UNLIMITED if limit < 0 else floor(limit),
        free=max(0, min(bounds)) if bounds else _UNLIMITED,
        pending=max(0, ceiling(_amount_of(queue, "requested") - used)),
    )


def _chain(name: str, known: dict[str, dict[str, Any]]) -> list[str]:
    """Return a queue and its parents, up to a cycle or the maximum depth."""
    chain: list[str] = []
    while name in known and name not in chain and len(chain) < _CHAIN_MAX:
        chain.append(name)
        name = known[name]["spec"].get("parentQueue", "")
    return chain


def _left(queue: dict[str, Any]) -> int | None:
    """Return the whole GPUs that one queue still allows, or None for no limit."""
    gpu = (queue["spec"].get("resources") or {}).get("gpu") or {}
    limits = [amount(gpu.get("limit", _UNLIMITED))]
    if amount(gpu.get("overQuotaWeight", 1)) == 0:
        limits.append(amount(gpu.get("quota", _UNLIMITED)))
    bounds = [limit for limit in limits if limit >= 0]
    if not bounds:
        return None
    return floor(min(bounds)) - ceiling(_amount_of(queue, "allocated"))


def _amount_of(queue: dict[str, Any], field: str) -> Fraction:
    return amount((queue["status"].get(field) or {}).get(_GPU, 0))


def pod_admissions(objects: CapacityObjects) -> dict[Pod, PodAdmission]:
    """Return the reasons of waiting PodGroups, by pod."""
    waiting = {}
    for group in objects.of("PodGroup"):
        metadata = group["metadata"]
        if reason := _reason(group["status"]):
            key = metadata.get("namespace", ""), metadata["name"]
            waiting[key] = PodAdmission(reason)
    return {
        pod: waiting[pod[0], name]
        for name, pod in pods_with(objects, "annotations", _POD_GROUP)
        if (pod[0], name) in waiting
    }


def _reason(status: Mapping[str, Any]) -> str:
    """Return why a group does not run.

    The reason is in the newest scheduling condition. If there is none, it is in the
    plain conditions.
    """
    scheduling = [
        entry
        for entry in status.get("schedulingConditions") or ()
        if entry.get("status") == "True"
    ]
    if scheduling:
        newest = max(scheduling, key=_transition)
        reasons = "; ".join(map(condition_text, newest.get("reasons") or ()))
        return reasons or condition_text(newest)
    conditions = [
        c
        for c in status.get("conditions") or ()
        if c.get("status") == "True" and c.get("reason")
    ]
    if not conditions:
        return ""
    return condition_text(
        max(conditions, key=lambda c: str(c.get("lastTransitionTime", "")))
    )


def _transition(entry: Mapping[str, Any]) -> int:
    """Return the number of a scheduling condition.

    They are numbered because several can be written within one second.
    """
    number = str(entry.get("transitionID", ""))
    return int(number) if number.isascii() and number.isdigit() else -1
