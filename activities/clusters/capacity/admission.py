"""Determine which pods of Modelplane's workloads are admitted, pending, or evicted.

Pods report this in their conditions. An admission controller in front of the scheduler
provides the reason, also for a pod that no longer exists.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from activities.cluster_objects.kinds import LWS_NAME_LABEL
from activities.clusters.capacity.objects import (
    CapacityObjects,
    condition_with,
    is_true,
    milliseconds,
)
from api_types import labels
from api_types.messages.capacity import ADMITTED, EVICTED, PENDING, Admission
from api_types.payloads.limits import shortened

Pod = tuple[str, str]
_SCHEDULED = "PodScheduled"
_UNSEEN = "no scheduler has reported on it"
# A scheduler sets this condition on a pod before it deletes the pod in favour of
# another one.
_DISRUPTED, _PREEMPTED = "DisruptionTarget", "PreemptionByScheduler"
# The maximum length of a text that the cluster wrote.
REASON_BYTES_MAX = 256
# The states in order: if the pods of a workload have different states, the first of
# them is the state of the workload.
_WORST_FIRST = (EVICTED, PENDING, ADMITTED)


@dataclass(frozen=True)
class PodAdmission:
    """An admission controller's report about one pod.

    `reason` says why the pod waits or was evicted. `evicted_at` is in ms.
    """

    reason: str
    evicted_at: int | None = None


def admission(
    objects: CapacityObjects, pod_admissions: Mapping[Pod, PodAdmission]
) -> list[Admission]:
    """Return the admission of each of Modelplane's workloads, sorted by name.

    `pod_admissions` are the reports of the admission controller, by pod.
    """
    found: dict[str, Admission] = {}
    # Only the leader of a gang has the serving label, not its followers.
    gangs = {
        _label(pod, LWS_NAME_LABEL): _label(pod, labels.SERVING)
        for pod in objects.of("Pod")
        if _label(pod, labels.SERVING)
    }
    for pod in objects.of("Pod"):
        workload = _label(pod, labels.SERVING) or gangs.get(
            _label(pod, LWS_NAME_LABEL) or "-", ""
        )
        if not workload:
            continue
        seen = _of_pod(workload, pod, pod_admissions.get(pod_key(pod)))
        known = found.get(workload)
        if known is None or _rank(seen) < _rank(known):
            found[workload] = seen
    return [found[workload] for workload in sorted(found)]


def _rank(seen: Admission) -> tuple[int, int]:
    return _WORST_FIRST.index(seen.state), seen.since


def _of_pod(
    workload: str, pod: dict[str, Any], reported: PodAdmission | None
) -> Admission:
    if reported and reported.evicted_at is not None:
        return Admission(
            workload=workload,
            state=EVICTED,
            reason=reported.reason,
            since=reported.evicted_at,
        )
    disrupted = condition_with(pod, _DISRUPTED)
    if disrupted and disrupted.get("reason") == _PREEMPTED:
        return Admission(
            workload=workload,
            state=EVICTED,
            reason=condition_text(disrupted),
            since=milliseconds(disrupted.get("lastTransitionTime", "")),
        )
    if is_true(pod, _SCHEDULED):
        return Admission(workload=workload, state=ADMITTED)
    # A pod that no scheduler has handled yet does not have the condition.
    waits = condition_with(pod, _SCHEDULED, "False") or {
        "lastTransitionTime": pod["metadata"].get("creationTimestamp", "")
    }
    reason = (reported.reason if reported else "") or waits.get("reason", "") or _UNSEEN
    return Admission(
        workload=workload,
        state=PENDING,
        reason=reason,
        since=milliseconds(waits.get("lastTransitionTime", "")),
    )


def condition_text(condition: Mapping[str, Any]) -> str:
    """Return the text of a condition as `Reason: message`.

    It is shortened, because a cluster reports one for each of its workloads.
    """
    parts = condition.get("reason", ""), condition.get("message", "")
    return shortened(": ".join(filter(None, parts)), REASON_BYTES_MAX)


def pod_key(pod: Mapping[str, Any]) -> Pod:
    """Return namespace and name of a pod."""
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def pods_with(
    objects: CapacityObjects, field: str, key: str
) -> Iterator[tuple[str, Pod]]:
    """Yield (value, pod) for Modelplane's pods that have `key`.

    `field` is `labels` or `annotations`, and determines where the key is looked up.
    """
    for pod in objects.of("Pod"):
        value = (pod["metadata"].get(field) or {}).get(key)
        if value:
            yield value, pod_key(pod)


def _label(pod: dict[str, Any], key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))
