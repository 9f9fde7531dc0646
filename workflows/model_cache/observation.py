"""How a report of a cluster's observer changes the artifacts there: changes the given state; no I/O, no clock."""

from datetime import datetime

from activities.observe.cache import BOUND, COMPLETE, FAILED
from api_types import clock
from api_types.messages.observations import ObservedCache, ObservedJob
from workflows.entity import backoff
from workflows.model_cache.state import ClusterStaging, Copy


def record_observation(staging: ClusterStaging, observed: ObservedCache, now: datetime, *, fresh: bool = True) -> list[str]:
    """Record volumes and Jobs as they were observed; gives a message for each volume that is lost.

    An observation that is older than the last apply (`fresh` False) cannot prove that something is gone.
    """
    staging.observed = observed
    volumes = {volume.claim: volume for volume in observed.volumes}
    losses: list[str] = []
    for copy in staging.copies:
        if not copy.applied_generation:
            continue
        volume = volumes.get(copy.claim)
        bound = volume is not None and volume.phase == BOUND
        if fresh and (volume is None or (copy.claim_digest and volume.digest != copy.claim_digest)):
            copy.applied_generation = 0
        if copy.ready_at and not bound and fresh:
            losses.append(f"the volume on {staging.site.name} is {volume.phase if volume else 'gone'}; it is filled again")
            # Filled again it would be another revision, if the reference that is written in the spec has moved.
            copy.ready_at = copy.job_uid = copy.failed_job_uid = copy.pinned_key = ""
            copy.job_observed = False
            continue
        job = next((job for job in observed.jobs if job.uid == copy.job_uid), None)
        if not copy.ready_at:
            _record_job(copy, job, now, bound=bound, fresh=fresh)
        if copy.literal and copy.ready_at and job and job.commit:
            copy.commit = job.commit
    return losses


def _record_job(copy: Copy, job: ObservedJob | None, now: datetime, *, bound: bool, fresh: bool) -> None:
    if job is None:
        if fresh and copy.job_observed and copy.job_uid and not copy.failed:
            # A user deleted it; the next one resumes the download.
            copy.job_uid, copy.job_observed = "", False
        return
    copy.job_observed = True
    if job.state == COMPLETE and bound:
        copy.ready_at = clock.timestamp(now)
        copy.failure, copy.exit_code, copy.retry_at, copy.failed_job_uid = "", 0, "", ""
    elif job.state == FAILED:
        if not copy.failed:
            copy.failed_job_uid = job.uid
            copy.retry_at = clock.timestamp(now + backoff.permanent(copy.attempts - 1))
        copy.failure, copy.exit_code = job.message or "the Job failed", job.exit_code
