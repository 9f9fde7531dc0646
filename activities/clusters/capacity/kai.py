"""KAI: what its Queues still admit, in GPUs, and why its PodGroups wait.

A pod that KAI evicts has a condition for it, like one that kube-scheduler preempts; the PodGroup only has the reason of pending pods.

A queue's quota is what it deserves, its limit what it may have at most; negative means without limit. Its parents bound it too. Without a
share of what is left over (`overQuotaWeight` 0) a queue never exceeds its quota. Fractions of a GPU count as a whole one.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from activities.clusters.capacity.admission import Pod, PodAdmission, condition_text, pods_with
from activities.clusters.capacity.counts import amount, ceiling, floor
from activities.clusters.capacity.objects import Objects
from api_types.messages.capacity import CapacityQueue

_GPU = "nvidia.com/gpu"
_POD_GROUP = "pod-group-name"
_UNLIMITED = -1
# KAI has two levels, and a few with nested departments.
_CHAIN_MAX = 16


def queues(objects: Objects) -> list[CapacityQueue]:
    """Give the queues by name."""
    known = {queue["metadata"]["name"]: queue for queue in objects.of("Queue")}
    return [_queue(name, known) for name in sorted(known)]


def _queue(name: str, known: dict[str, dict[str, Any]]) -> CapacityQueue:
    queue = known[name]
    gpu = (queue["spec"].get("resources") or {}).get("gpu") or {}
    used = _amount_of(queue, "allocated")
    bounds = [bound for step in _chain(name, known) if (bound := _left(known[step])) is not None]
    nominal, limit = amount(gpu.get("quota", _UNLIMITED)), amount(gpu.get("limit", _UNLIMITED))
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
    """Give a queue and its parents; a parent that is its own ancestor ends the chain, and so does one that is too far away."""
    chain: list[str] = []
    while name in known and name not in chain and len(chain) < _CHAIN_MAX:
        chain.append(name)
        name = known[name]["spec"].get("parentQueue", "")
    return chain


def _left(queue: dict[str, Any]) -> int | None:
    """Give the whole GPUs that one queue still allows, None for no limit."""
    gpu = (queue["spec"].get("resources") or {}).get("gpu") or {}
    limits = [amount(gpu.get("limit", _UNLIMITED))]
    if amount(gpu.get("overQuotaWeight", 1)) == 0:
        limits.append(amount(gpu.get("quota", _UNLIMITED)))
    bound = [limit for limit in limits if limit >= 0]
    return floor(min(bound)) - ceiling(_amount_of(queue, "allocated")) if bound else None


def _amount_of(queue: dict[str, Any], field: str) -> Fraction:
    return amount((queue["status"].get(field) or {}).get(_GPU, 0))


def pod_admissions(objects: Objects) -> dict[Pod, PodAdmission]:
    """Give the reason of PodGroups that wait, by pod."""
    waiting = {
        (group["metadata"].get("namespace", ""), group["metadata"]["name"]): PodAdmission(reason)
        for group in objects.of("PodGroup")
        if (reason := _reason(group["status"]))
    }
    return {pod: waiting[pod[0], group] for group, pod in pods_with(objects, "annotations", _POD_GROUP) if (pod[0], group) in waiting}


def _reason(status: Mapping[str, Any]) -> str:
    """Give why a group does not run: from the newest scheduling condition, else from the plain conditions."""
    scheduling = [entry for entry in status.get("schedulingConditions") or () if entry.get("status") == "True"]
    if scheduling:
        newest = max(scheduling, key=_transition)
        return "; ".join(condition_text(reason) for reason in newest.get("reasons") or ()) or condition_text(newest)
    conditions = [c for c in status.get("conditions") or () if c.get("status") == "True" and c.get("reason")]
    return condition_text(max(conditions, key=lambda c: str(c.get("lastTransitionTime", "")))) if conditions else ""


def _transition(entry: Mapping[str, Any]) -> int:
    """Give the number of a scheduling condition: they are numbered, because several are written within one second."""
    number = str(entry.get("transitionID", ""))
    return int(number) if number.isascii() and number.isdigit() else -1
