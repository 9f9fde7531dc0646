"""What a ModelCache should know of one cluster: its volume claims, its hydration Jobs, and why a download failed.

A Job says that it failed; the reason is in the last pod that did. Of both only a small record is kept.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.ownership import Owner, owner_of
from activities.observe.conditions import find_condition
from activities.observe.digest import content_digest
from activities.observe.pods import not_ready_reason
from api_types import labels
from api_types.limits import OBSERVED_MAX
from api_types.messages.observations import ObservedCache, ObservedJob, ObservedVolume
from api_types.model_sources import is_commit, is_digest

MODEL_CACHE = "ModelCache"
COMPLETE, FAILED, RUNNING = "Complete", "Failed", "Running"
BOUND = "Bound"
_MESSAGE_MAX = 1024


def allows_expansion(storage_class: Mapping[str, Any]) -> bool:
    """Read a StorageClass: whether its volumes can be expanded."""
    return storage_class.get("allowVolumeExpansion") is True


class VolumeSeen(NamedTuple):
    """A volume claim of a cache."""

    owner: Owner
    volume: ObservedVolume


class JobSeen(NamedTuple):
    """A hydration Job, without what its pods report. `deleting`: it is being deleted."""

    owner: Owner
    claim: str
    uid: str
    state: str
    message: str
    deleting: bool


class JobPodSeen(NamedTuple):
    """A pod of a hydration Job; `ended_at` is empty unless it failed, `commit` unless it is complete and says what it staged."""

    job_uid: str
    claim: str
    ended_at: str
    exit_code: int
    message: str
    blocker: str
    commit: str = ""


def read_volume(item: Mapping[str, Any]) -> VolumeSeen | None:
    """Reduce a PersistentVolumeClaim; None if it is not of a cache."""
    owner = owner_of(item)
    if owner.kind != MODEL_CACHE:
        return None
    phase = (item.get("status") or {}).get("phase", "Pending")
    if item["metadata"].get("deletionTimestamp"):
        phase = "Terminating"
    return VolumeSeen(owner, ObservedVolume(claim=item["metadata"]["name"], phase=phase, digest=content_digest(item)))


def read_job(item: Mapping[str, Any]) -> JobSeen | None:
    """Reduce a Job; None if it is not of a cache. Only its conditions count: pod counters go up and down."""
    owner = owner_of(item)
    if owner.kind != MODEL_CACHE:
        return None
    metadata = item["metadata"]
    conditions = (item.get("status") or {}).get("conditions") or []
    failed = next((found for found in conditions if found.get("type") == FAILED and found.get("status") == "True"), None)
    state = FAILED if failed else COMPLETE if find_condition(conditions, COMPLETE).is_true else RUNNING
    return JobSeen(
        owner=owner,
        claim=(metadata.get("labels") or {}).get(labels.CACHE, ""),
        uid=metadata["uid"],
        state=state,
        message=": ".join(str(failed[part]) for part in ("reason", "message") if failed.get(part)) if failed else "",
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def read_job_pod(item: Mapping[str, Any]) -> JobPodSeen | None:
    """Reduce a pod; None if no Job made it."""
    metadata = item["metadata"]
    job = next((owner["uid"] for owner in metadata.get("ownerReferences") or [] if owner.get("kind") == "Job"), "")
    if not job:
        return None
    status = item.get("status") or {}
    states = [container.get("state") or {} for container in status.get("containerStatuses") or []]
    ended = next((state["terminated"] for state in states if (state.get("terminated") or {}).get("exitCode")), None)
    done = next((state["terminated"] for state in states if (state.get("terminated") or {}).get("exitCode") == 0), None)
    said = str(done.get("message") or "").strip() if done else ""
    not_ready = None if status.get("phase") in {"Running", "Succeeded", "Failed"} else not_ready_reason(item)
    return JobPodSeen(
        job_uid=job,
        claim=(metadata.get("labels") or {}).get(labels.CACHE, ""),
        ended_at=str(ended.get("finishedAt") or "") if ended else "",
        exit_code=int(ended["exitCode"]) if ended else 0,
        message=_short(str(ended.get("message") or "")) if ended else "",
        blocker=not_ready.text if not_ready else "",
        commit=said if is_commit(said) or is_digest(said) else "",
    )


def observe_cache(cluster: str, volumes: Iterable[VolumeSeen], jobs: Iterable[JobSeen], pods: Iterable[JobPodSeen]) -> ObservedCache:
    """Build what one cache should know of a cluster; `pods` may be of other caches' Jobs too. Jobs that are being deleted are left out."""
    by_job: dict[str, list[JobPodSeen]] = {}
    for pod in pods:
        by_job.setdefault(pod.job_uid, []).append(pod)
    return ObservedCache(
        cluster=cluster,
        volumes=sorted((seen.volume for seen in volumes), key=lambda volume: volume.claim)[:OBSERVED_MAX],
        jobs=[_job(job, by_job.get(job.uid, [])) for job in sorted(jobs, key=lambda job: job.claim) if not job.deleting][:OBSERVED_MAX],
    )


def _job(job: JobSeen, pods: list[JobPodSeen]) -> ObservedJob:
    last = max((pod for pod in pods if pod.exit_code), key=lambda pod: pod.ended_at, default=None)
    waiting = sorted(pod.blocker for pod in pods if pod.blocker)
    failed = job.state == FAILED
    return ObservedJob(
        claim=job.claim,
        uid=job.uid,
        state=job.state,
        exit_code=last.exit_code if failed and last else 0,
        message=(last.message if last and last.message else job.message) if failed else "",
        blocker=waiting[0] if waiting and job.state == RUNNING else "",
        commit=next((pod.commit for pod in pods if pod.commit), "") if job.state == COMPLETE else "",
    )


def _short(text: str) -> str:
    """Keep the end of a log, where programs print why they stopped, within the length of a status message."""
    text = " ".join(text.split())
    return text if len(text.encode()) <= _MESSAGE_MAX else text.encode()[-_MESSAGE_MAX:].decode(errors="ignore")
