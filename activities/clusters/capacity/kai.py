"""KAI: what its Queues would still take, in GPUs, and why its PodGroups wait.

A pod that KAI evicts says so itself, like one that the plain scheduler preempts; the PodGroup only tells why the next ones wait.

A queue's quota is what it deserves, its limit what it may have at most; negative means without limit. Its parents bound it too. Without a
share of what is left over (`overQuotaWeight` 0) a queue never exceeds its quota. Parts of a GPU count as a whole one.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from activities.clusters.capacity.admission import Pod, Word, marked, said
from activities.clusters.capacity.counts import amount, ceiling, floor
from activities.clusters.capacity.objects import Objects
from api_types.messages.capacity import CapacityQueue

_GPU = "nvidia.com/gpu"
_POD_GROUP = "pod-group-name"
_UNLIMITED = -1


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
    """Give a queue and its parents; a parent that is its own ancestor ends the chain."""
    chain: list[str] = []
    while name in known and name not in chain:
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


def words(objects: Objects) -> dict[Pod, Word]:
    """Give the words of PodGroups that wait, by pod."""
    told = {
        (group["metadata"].get("namespace", ""), group["metadata"]["name"]): Word(reason)
        for group in objects.of("PodGroup")
        if (reason := _reason(group["status"]))
    }
    return {pod: told[pod[0], group] for group, pod in marked(objects, "annotations", _POD_GROUP) if (pod[0], group) in told}


def _reason(status: Mapping[str, Any]) -> str:
    """Give why a group does not run: of the scheduler's verdicts the newest, else of the plain conditions."""
    verdicts = [verdict for verdict in status.get("schedulingConditions") or () if verdict.get("status") == "True"]
    if verdicts:
        newest = max(verdicts, key=_transition)
        return "; ".join(said(reason) for reason in newest.get("reasons") or ()) or said(newest)
    conditions = [c for c in status.get("conditions") or () if c.get("status") == "True" and c.get("reason")]
    return said(max(conditions, key=lambda c: str(c.get("lastTransitionTime", "")))) if conditions else ""


def _transition(verdict: Mapping[str, Any]) -> int:
    """Give the number of a verdict: they are counted, because several come within one second."""
    number = str(verdict.get("transitionID", ""))
    return int(number) if number.isascii() and number.isdigit() else -1
