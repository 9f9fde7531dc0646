"""Observe a ModelCache on one cluster: volume claims, hydration Jobs, download errors.

A Job reports that it failed, and the last pod that failed reports the reason. Only a
small record is kept of both.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.ownership import ObjectOwner, owner_of
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
    """Return whether the volumes of a StorageClass can be expanded."""
    return storage_class.get("allowVolumeExpansion") is True


class VolumeSeen(NamedTuple):
    owner: ObjectOwner
    volume: ObservedVolume


class JobSeen(NamedTuple):
    """A hydration Job without the reports of its pods.

    `deleting` is True while it is being deleted.
    """

    owner: ObjectOwner
    claim: str
    uid: str
    state: str
    message: str
    deleting: bool


class JobPodSeen(NamedTuple):
    """A pod of a hydration Job.

    `ended_at` is empty unless it failed. `commit` is empty unless it completed and
    reported the staged revision.
    """

    job_uid: str
    claim: str
    ended_at: str
    exit_code: int
    message: str
    blocker: str
    commit: str = ""


def read_volume(item: Mapping[str, Any]) -> VolumeSeen | None:
    """Reduce a PersistentVolumeClaim. Returns None if it does not belong to a cache."""
    owner = owner_of(item)
    if owner.kind != MODEL_CACHE:
        return None
    phase = (item.get("status") or {}).get("phase", "Pending")
    if item["metadata"].get("deletionTimestamp"):
        phase = "Terminating"
    return VolumeSeen(
        owner,
        ObservedVolume(
            claim=item["metadata"]["name"], phase=phase, digest=content_digest(item)
        ),
    )


def read_job(item: Mapping[str, Any]) -> JobSeen | None:
    """Reduce a Job.

    Returns None if it does not belong to a cache.

    Only its conditions count, because pod counters go up and down.
    """
    owner = owner_of(item)
    if owner.kind != MODEL_CACHE:
        return None
    metadata = item["metadata"]
    conditions = (item.get("status") or {}).get("conditions") or []
    failed = next(
        (
            found
            for found in conditions
            if found.get("type") == FAILED and found.get("status") == "True"
        ),
        None,
    )
    message = ""
    if failed:
        state = FAILED
        parts = (failed.get("reason"), failed.get("message"))
        message = ": ".join(str(part) for part in parts if part)
    elif find_condition(conditions, COMPLETE).is_true:
        state = COMPLETE
    else:
        state = RUNNING
    return JobSeen(
        owner=owner,
        claim=(metadata.get("labels") or {}).get(labels.CACHE, ""),
        uid=metadata["uid"],
        state=state,
        message=message,
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def read_job_pod(item: Mapping[str, Any]) -> JobPodSeen | None:
    """Reduce a pod. Returns None if no Job created it."""
    metadata = item["metadata"]
    job = next(
        (
            owner["uid"]
            for owner in metadata.get("ownerReferences") or []
            if owner.get("kind") == "Job"
        ),
        "",
    )
    if not job:
        return None
    status = item.get("status") or {}
    terminated = [
        (container.get("state") or {}).get("terminated") or {}
        for container in status.get("containerStatuses") or []
    ]
    ended = next((state for state in terminated if state.get("exitCode")), None)
    done = next((state for state in terminated if state.get("exitCode") == 0), None)
    said = str(done.get("message") or "").strip() if done else ""
    blocker = ""
    if status.get("phase") not in {"Running", "Succeeded", "Failed"}:
        blocker = not_ready_reason(item).text
    return JobPodSeen(
        job_uid=job,
        claim=(metadata.get("labels") or {}).get(labels.CACHE, ""),
        ended_at=str(ended.get("finishedAt") or "") if ended else "",
        exit_code=int(ended["exitCode"]) if ended else 0,
        message=_short(str(ended.get("message") or "")) if ended else "",
        blocker=blocker,
        commit=said if is_commit(said) or is_digest(said) else "",
    )


def observe_cache(
    cluster: str,
    volumes: Iterable[VolumeSeen],
    jobs: Iterable[JobSeen],
    pods: Iterable[JobPodSeen],
) -> ObservedCache:
    """Return the observation of one cache on a cluster.

    `pods` may include pods of other caches' Jobs. Jobs that are being deleted are left
    out.
    """
    by_job: dict[str, list[JobPodSeen]] = {}
    for pod in pods:
        by_job.setdefault(pod.job_uid, []).append(pod)
    return ObservedCache(
        cluster=cluster,
        volumes=sorted(
            (seen.volume for seen in volumes), key=lambda volume: volume.claim
        )[:OBSERVED_MAX],
        jobs=[
            _job(job, by_job.get(job.uid, []))
            for job in sorted(jobs, key=lambda job: job.claim)
            if not job.deleting
        ][:OBSERVED_MAX],
    )


def _job(job: JobSeen, pods: list[JobPodSeen]) -> ObservedJob:
    last = max(
        (pod for pod in pods if pod.exit_code),
        key=lambda pod: pod.ended_at,
        default=None,
    )
    waiting = sorted(pod.blocker for pod in pods if pod.blocker)
    commit = next((pod.commit for pod in pods if pod.commit), "")
    exit_code, message = 0, ""
    if job.state == FAILED:
        exit_code = last.exit_code if last else 0
        message = last.message if last and last.message else job.message
    return ObservedJob(
        claim=job.claim,
        uid=job.uid,
        state=job.state,
        exit_code=exit_code,
        message=message,
        blocker=waiting[0] if waiting and job.state == RUNNING else "",
        commit=commit if job.state == COMPLETE else "",
    )


def _short(text: str) -> str:
    """Shorten a log to the length of a status message.

    The end is kept, where programs print the reason of their failure.
    """
    text = " ".join(text.split())
    return (
        text
        if len(text.encode()) <= _MESSAGE_MAX
        else text.encode()[-_MESSAGE_MAX:].decode(errors="ignore")
    )
