"""A pod, reduced to what readiness and diagnosis need.

A watch sees thousands of pods; of each only this small record is kept, and the pod itself is forgotten at once.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.kinds import DEPLOYMENT, LEADER_WORKER_SET, LWS_GROUP_LABEL, LWS_NAME_LABEL
from activities.observe.conditions import pick
from api_types import labels

_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"})
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_CRASHING = "CrashLoopBackOff"
_TEXT_MAX = 400
# Which trouble is told first when pods of one workload have several: what a person must act on comes before what passes by itself.
_CRASH, _IMAGE, _CONFIG, _UNSCHEDULABLE, _FAILED, _UNREADY, _STARTING = range(7)


class WorkloadKey(NamedTuple):
    """The workload that a pod belongs to."""

    kind: str
    namespace: str
    name: str


class Trouble(NamedTuple):
    """Why a pod is not ready; the lower rank is told first. `text` says it without naming the pod."""

    rank: int
    text: str


class PodSeen(NamedTuple):
    """What is kept of one pod. `serving`: it answers requests (followers of a gang do not). `group`: the gang of its set that it is in."""

    workload: WorkloadKey
    serving: bool
    ready: bool
    terminating: bool
    template_hash: str
    trouble: Trouble | None
    group: str = ""


def read_pod(pod: Mapping[str, Any]) -> PodSeen | None:
    """Reduce a pod; None if it belongs to no engine."""
    metadata = pod["metadata"]
    marks = metadata.get("labels") or {}
    namespace = metadata.get("namespace", "")
    if name := marks.get(labels.WORKLOAD):
        workload = WorkloadKey(DEPLOYMENT.kind, namespace, name)
    elif name := marks.get(LWS_NAME_LABEL):
        workload = WorkloadKey(LEADER_WORKER_SET.kind, namespace, name)
    else:
        return None
    ready = pick((pod.get("status") or {}).get("conditions") or [], "Ready").holds
    return PodSeen(
        workload=workload,
        serving=labels.SERVING in marks,
        ready=ready,
        terminating=bool(metadata.get("deletionTimestamp")),
        template_hash=(metadata.get("annotations") or {}).get(labels.TEMPLATE_HASH, ""),
        trouble=None if ready else pod_trouble(pod),
        group=marks.get(LWS_GROUP_LABEL, ""),
    )


def whole_groups(pods: Iterable[PodSeen], size: int) -> frozenset[str]:
    """Name the gangs of which all `size` pods are ready."""
    ready = Counter(pod.group for pod in pods if pod.ready and not pod.terminating)
    return frozenset(group for group, count in ready.items() if count >= size)


def dominant(pods: Iterable[PodSeen]) -> str:
    """Say what keeps a workload's pods from being ready, worst first, with how many share it; empty if nothing does."""
    alive = [pod for pod in pods if not pod.terminating]
    troubles = sorted({pod.trouble for pod in alive if pod.trouble})
    if not troubles:
        return ""
    worst = troubles[0]
    count = sum(1 for pod in alive if pod.trouble and pod.trouble.rank == worst.rank)
    return f"{count} of {len(alive)} pods {worst.text}"


def pod_trouble(pod: Mapping[str, Any]) -> Trouble:
    """Say why a pod that is not ready is not ready."""
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    found = [trouble for container in containers if (trouble := _container_trouble(container))]
    if found:
        return min(found)
    if status.get("phase") in {"Failed", "Succeeded"}:
        return Trouble(_FAILED, _text(f"ended: {status.get('reason') or status['phase']} {status.get('message') or ''}"))
    conditions = status.get("conditions") or []
    scheduled = next((entry for entry in conditions if entry.get("type") == "PodScheduled"), None)
    if scheduled and scheduled.get("status") == "False":
        return Trouble(_UNSCHEDULABLE, _text(f"unschedulable: {scheduled.get('message') or scheduled.get('reason') or ''}"))
    if containers and all(container.get("started") or "running" in (container.get("state") or {}) for container in containers):
        return Trouble(_UNREADY, _text(f"running, not ready since {pick(conditions, 'Ready').since or 'the start'}"))
    return Trouble(_STARTING, "starting")


def _container_trouble(container: Mapping[str, Any]) -> Trouble | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    name = container.get("name", "")
    if reason in _IMAGE_REASONS:
        return Trouble(_IMAGE, _text(f"cannot pull image {container.get('image', '')}: {reason}: {waiting.get('message') or ''}"))
    if reason in _CONFIG_REASONS:
        return Trouble(_CONFIG, _text(f"cannot create container {name}: {waiting.get('message') or reason}"))
    ended = state.get("terminated") or ((container.get("lastState") or {}).get("terminated") if reason == _CRASHING else None)
    if ended and ended.get("exitCode") != 0:
        restarts = container.get("restartCount", 0)
        return Trouble(_CRASH, _text(f"crashing: container {name} ended with exit code {ended.get('exitCode')}, {restarts} restarts"))
    return Trouble(_CRASH, _text(f"crashing: container {name}: {waiting.get('message') or reason}")) if reason == _CRASHING else None


def _text(text: str) -> str:
    text = " ".join(text.split()).rstrip(": ")
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
