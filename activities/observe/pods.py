"""Reduce a pod to the record that readiness and diagnosis need.

A watch sees thousands of pods, and only this small record of each is kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.kinds import (
    DEPLOYMENT,
    LEADER_WORKER_SET,
    LWS_GROUP_LABEL,
    LWS_NAME_LABEL,
)
from activities.observe.conditions import find_condition
from api_types import labels

_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
    }
)
_CONFIG_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_CRASHING = "CrashLoopBackOff"
_TEXT_MAX = 400
# The order in which reasons are reported if the pods of one workload have several:
# reasons that need an action come before temporary ones.
_CRASH, _IMAGE, _CONFIG, _UNSCHEDULABLE, _FAILED, _UNREADY, _STARTING = range(7)


class WorkloadKey(NamedTuple):
    kind: str
    namespace: str
    name: str


class NotReadyReason(NamedTuple):
    """Why a pod is not ready.

    The lowest rank is reported first. `text` omits the pod's name.
    """

    rank: int
    text: str


class PodSeen(NamedTuple):
    """The kept record of one pod.

    `serving` is True if requests reach it (followers of a gang get none). `group` is
    its gang within its set.
    """

    workload: WorkloadKey
    serving: bool
    ready: bool
    terminating: bool
    template_hash: str
    not_ready: NotReadyReason | None
    group: str = ""


def read_pod(pod: Mapping[str, Any]) -> PodSeen | None:
    """Reduce a pod. Returns None if it belongs to no engine."""
    metadata = pod["metadata"]
    pod_labels = metadata.get("labels") or {}
    namespace = metadata.get("namespace", "")
    if name := pod_labels.get(labels.WORKLOAD):
        workload = WorkloadKey(DEPLOYMENT.kind, namespace, name)
    elif name := pod_labels.get(LWS_NAME_LABEL):
        workload = WorkloadKey(LEADER_WORKER_SET.kind, namespace, name)
    else:
        return None
    ready = find_condition(
        (pod.get("status") or {}).get("conditions") or [], "Ready"
    ).is_true
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
    """Return the gangs with all `size` pods ready."""
    ready = Counter(pod.group for pod in pods if pod.ready and not pod.terminating)
    return frozenset(group for group, count in ready.items() if count >= size)


def dominant_reason(pods: Iterable[PodSeen]) -> str:
    """Return the first reason why a workload's pods are not ready, and their number.

    Returns "" if all are ready.
    """
    alive = [pod for pod in pods if not pod.terminating]
    reasons = sorted({pod.not_ready for pod in alive if pod.not_ready})
    if not reasons:
        return ""
    first = reasons[0]
    count = sum(
        1 for pod in alive if pod.not_ready and pod.not_ready.rank == first.rank
    )
    return f"{count} of {len(alive)} pods {first.text}"


def not_ready_reason(pod: Mapping[str, Any]) -> NotReadyReason:
    """Return the reason why a pod is not ready."""
    status = pod.get("status") or {}
    containers = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    reasons = filter(None, map(_container_reason, containers))
    first = min(reasons, default=None)
    if first:
        return first
    if status.get("phase") in {"Failed", "Succeeded"}:
        why = f"{status.get('reason') or status['phase']} {status.get('message') or ''}"
        return NotReadyReason(_FAILED, _text(f"ended: {why}"))
    conditions = status.get("conditions") or []
    scheduled = next(
        (entry for entry in conditions if entry.get("type") == "PodScheduled"), None
    )
    if scheduled and scheduled.get("status") == "False":
        why = scheduled.get("message") or scheduled.get("reason") or ""
        return NotReadyReason(_UNSCHEDULABLE, _text(f"unschedulable: {why}"))
    if containers and all(
        container.get("started") or "running" in (container.get("state") or {})
        for container in containers
    ):
        since = find_condition(conditions, "Ready").since or "the start"
        return NotReadyReason(_UNREADY, _text(f"running, not ready since {since}"))
    return NotReadyReason(_STARTING, "starting")


def _container_reason(container: Mapping[str, Any]) -> NotReadyReason | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    name = container.get("name", "")
    if reason in _IMAGE_REASONS:
        image = container.get("image", "")
        text = f"cannot pull image {image}: {reason}: {waiting.get('message') or ''}"
        return NotReadyReason(_IMAGE, _text(text))
    if reason in _CONFIG_REASONS:
        text = f"cannot create container {name}: {waiting.get('message') or reason}"
        return NotReadyReason(_CONFIG, _text(text))
    ended = state.get("terminated")
    if not ended and reason == _CRASHING:
        ended = (container.get("lastState") or {}).get("terminated")
    if ended and ended.get("exitCode") != 0:
        text = (
            f"crashing: container {name} ended with exit code {ended.get('exitCode')}, "
            f"{container.get('restartCount', 0)} restarts"
        )
        return NotReadyReason(_CRASH, _text(text))
    if reason == _CRASHING:
        text = f"crashing: container {name}: {waiting.get('message') or reason}"
        return NotReadyReason(_CRASH, _text(text))
    return None


def _text(text: str) -> str:
    text = " ".join(text.split()).rstrip(": ")
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
