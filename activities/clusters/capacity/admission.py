"""Whether the pods of our workloads were admitted to nodes, are pending, or were evicted.

Pods report that in their conditions; an admission controller in front of the scheduler knows why, also for a pod that is gone already.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from activities.cluster_objects.kinds import LWS_NAME_LABEL
from activities.clusters.capacity.objects import Objects, condition_with, is_true, milliseconds
from api_types import labels
from api_types.messages.capacity import ADMITTED, EVICTED, PENDING, Admission
from api_types.payloads.limits import shortened

Pod = tuple[str, str]
_SCHEDULED = "PodScheduled"
_UNSEEN = "no scheduler has reported on it"
# A scheduler sets this condition on a pod before it deletes it in favour of another one.
_DISRUPTED, _PREEMPTED = "DisruptionTarget", "PreemptionByScheduler"
# What a text of others takes at most.
REASON_BYTES_MAX = 256
# The state of a workload whose pods differ.
_WORST_FIRST = (EVICTED, PENDING, ADMITTED)


@dataclass(frozen=True)
class PodAdmission:
    """What an admission controller reports of one pod: why it waits, or since when (ms) and why it is evicted."""

    reason: str
    evicted_at: int | None = None


def admission(objects: Objects, pod_admissions: Mapping[Pod, PodAdmission]) -> list[Admission]:
    """Give the admission of each workload of ours, by name; `pod_admissions` are those of the admission controller, by pod."""
    found: dict[str, Admission] = {}
    # Followers of a gang do not carry the serving label; their leader does.
    gangs = {_label(pod, LWS_NAME_LABEL): _label(pod, labels.SERVING) for pod in objects.of("Pod") if _label(pod, labels.SERVING)}
    for pod in objects.of("Pod"):
        workload = _label(pod, labels.SERVING) or gangs.get(_label(pod, LWS_NAME_LABEL) or "-", "")
        if not workload:
            continue
        seen = _of_pod(workload, pod, pod_admissions.get(pod_key(pod)))
        known = found.get(workload)
        if known is None or _rank(seen) < _rank(known):
            found[workload] = seen
    return [found[workload] for workload in sorted(found)]


def _rank(seen: Admission) -> tuple[int, int]:
    return _WORST_FIRST.index(seen.state), seen.since


def _of_pod(workload: str, pod: dict[str, Any], reported: PodAdmission | None) -> Admission:
    if reported and reported.evicted_at is not None:
        return Admission(workload=workload, state=EVICTED, reason=reported.reason, since=reported.evicted_at)
    disrupted = condition_with(pod, _DISRUPTED)
    if disrupted and disrupted.get("reason") == _PREEMPTED:
        return Admission(
            workload=workload, state=EVICTED, reason=condition_text(disrupted), since=milliseconds(disrupted.get("lastTransitionTime", ""))
        )
    if is_true(pod, _SCHEDULED):
        return Admission(workload=workload, state=ADMITTED)
    # A pod that no scheduler has handled yet has no such condition.
    waits = condition_with(pod, _SCHEDULED, "False") or {"lastTransitionTime": pod["metadata"].get("creationTimestamp", "")}
    reason = (reported.reason if reported else "") or waits.get("reason", "") or _UNSEEN
    return Admission(workload=workload, state=PENDING, reason=reason, since=milliseconds(waits.get("lastTransitionTime", "")))


def condition_text(condition: Mapping[str, Any]) -> str:
    """Give the text of a condition: `Reason: message`, shortened, for a cluster reports one for each of its workloads."""
    text = ": ".join(text for text in (condition.get("reason", ""), condition.get("message", "")) if text)
    return shortened(text, REASON_BYTES_MAX)


def pod_key(pod: Mapping[str, Any]) -> Pod:
    """Give namespace and name of a pod."""
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def pods_with(objects: Objects, field: str, key: str) -> Iterator[tuple[str, Pod]]:
    """Give (value, pod) for our pods with that key among their `labels` or `annotations` (`field`)."""
    for pod in objects.of("Pod"):
        value = (pod["metadata"].get(field) or {}).get(key)
        if value:
            yield value, pod_key(pod)


def _label(pod: dict[str, Any], key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))
