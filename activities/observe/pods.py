"""A pod, reduced to what readiness and diagnosis need.

A watch sees thousands of pods; of each only this small record is kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.kinds import DEPLOYMENT, LEADER_WORKER_SET, LWS_GROUP_LABEL, LWS_NAME_LABEL
from activities.observe.conditions import find_condition
from api_types import labels

_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_CRASHING = "CrashLoopBackOff"
_TEXT_MAX = 400
# Which reason is reported first when pods of one workload have several: what needs an action comes before what passes by itself.
_CRASH, _IMAGE, _CONFIG, _UNSCHEDULABLE, _FAILED, _UNREADY, _STARTING = range(7)


class WorkloadKey(NamedTuple):
    """The workload that a pod belongs to."""

    kind: str
    namespace: str
    name: str


class NotReadyReason(NamedTuple):
    """Why a pod is not ready; the lower rank is reported first. `text` does not name the pod."""

    rank: int
    text: str


class PodSeen(NamedTuple):
    """What is kept of one pod. `serving`: requests reach it (followers of a gang get none). `group`: the gang of its set that it is in."""

    workload: WorkloadKey
    serving: bool
    ready: bool
    terminating: bool
    template_hash: str
    not_ready: NotReadyReason | None
    group: str = ""


def read_pod(pod: Mapping[str, Any]) -> PodSeen | None:
    """Reduce a pod; None if it belongs to no engine."""
    metadata = pod["metadata"]
    pod_labels = metadata.get("labels") or {}
    namespace = metadata.get("namespace", "")
    if name := pod_labels.get(labels.WORKLOAD):
        workload = WorkloadKey(DEPLOYMENT.kind, namespace, name)
    elif name := pod_labels.get(LWS_NAME_LABEL):
        workload = WorkloadKey(LEADER_WORKER_SET.kind, namespace, name)
    else:
        return None
    ready = find_condition((pod.get("status") or {}).get("conditions") or [], "Ready").is_true
    return PodSeen(
        workload=workload,
        serving=labels.SERVING in pod_labels,
        ready=ready,
        terminating=bool(metadata.get("deletionTimestamp")),
        template_hash=(metadata.get("annotations") or {}).get(labels.TEMPLATE_HASH, ""),
        not_ready=None if ready else not_ready_reason(pod),
        group=pod_labels.get(LWS_GROUP_LABEL, ""),
    )


def ready_groups(pods: Iterable[PodSeen], size: int) -> frozenset[str]:
    """Name the gangs of which all `size` pods are ready."""
    ready = Counter(pod.group for pod in pods if pod.ready and not pod.terminating)
    return frozenset(group for group, count in ready.items() if count >= size)


def dominant_reason(pods: Iterable[PodSeen]) -> str:
    """Give the first reason why a workload's pods are not ready, with how many share it; empty if all are."""
    alive = [pod for pod in pods if not pod.terminating]
    reasons = sorted({pod.not_ready for pod in alive if pod.not_ready})
    if not reasons:
        return ""
    first = reasons[0]
    count = sum(1 for pod in alive if pod.not_ready and pod.not_ready.rank == first.rank)
    return f"{count} of {len(alive)} pods {first.text}"


def not_ready_reason(pod: Mapping[str, Any]) -> NotReadyReason:
    """Give the reason of a pod that is not ready."""
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    found = [reason for container in containers if (reason := _container_reason(container))]
    if found:
        return min(found)
    if status.get("phase") in {"Failed", "Succeeded"}:
        return NotReadyReason(_FAILED, _text(f"ended: {status.get('reason') or status['phase']} {status.get('message') or ''}"))
    conditions = status.get("conditions") or []
    scheduled = next((entry for entry in conditions if entry.get("type") == "PodScheduled"), None)
    if scheduled and scheduled.get("status") == "False":
        return NotReadyReason(_UNSCHEDULABLE, _text(f"unschedulable: {scheduled.get('message') or scheduled.get('reason') or ''}"))
    if containers and all(container.get("started") or "running" in (container.get("state") or {}) for container in containers):
        return NotReadyReason(_UNREADY, _text(f"running, not ready since {find_condition(conditions, 'Ready').since or 'the start'}"))
    return NotReadyReason(_STARTING, "starting")


def _container_reason(container: Mapping[str, Any]) -> NotReadyReason | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    name = container.get("name", "")
    if reason in _IMAGE_REASONS:
        return NotReadyReason(_IMAGE, _text(f"cannot pull image {container.get('image', '')}: {reason}: {waiting.get('message') or ''}"))
    if reason in _CONFIG_REASONS:
        return NotReadyReason(_CONFIG, _text(f"cannot create container {name}: {waiting.get('message') or reason}"))
    ended = state.get("terminated") or ((container.get("lastState") or {}).get("terminated") if reason == _CRASHING else None)
    if ended and ended.get("exitCode") != 0:
        restarts = container.get("restartCount", 0)
        return NotReadyReason(
            _CRASH, _text(f"crashing: container {name} ended with exit code {ended.get('exitCode')}, {restarts} restarts")
        )
    return NotReadyReason(_CRASH, _text(f"crashing: container {name}: {waiting.get('message') or reason}")) if reason == _CRASHING else None


def _text(text: str) -> str:
    text = " ".join(text.split()).rstrip(": ")
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
