"""Update the artifacts on a cluster with its observer's reports.

The functions change the state that they receive. They do no I/O and read no clock.
"""

from datetime import datetime

from activities.observe.cache import BOUND, COMPLETE, FAILED
from api_types import clock
from api_types.messages.observations import ObservedCache, ObservedJob
from workflows.entity import backoff
from workflows.model_cache.state import CacheCopy, ClusterStaging


def record_observation(
    staging: ClusterStaging,
    observed: ObservedCache,
    now: datetime,
    *,
    fresh: bool = True,
) -> list[str]:
    """Record the observed volumes and Jobs.

    Return a message for each lost volume. An observation from before the last apply
    (`fresh` is False) does not prove that an object is gone.
    """
    staging.observed = observed
    volumes = {volume.claim: volume for volume in observed.volumes}
    losses: list[str] = []
    for copy in staging.copies:
        if not copy.applied_generation:
            continue
        volume = volumes.get(copy.claim)
        bound = volume is not None and volume.phase == BOUND
        if fresh and (
            volume is None or (copy.claim_digest and volume.digest != copy.claim_digest)
        ):
            copy.applied_generation = 0
        if copy.ready_at and not bound and fresh:
            phase = volume.phase if volume else "gone"
            losses.append(
                f"the volume on {staging.site.name} is {phase}; it is filled again"
            )
            # If the reference has moved, filling the volume again results in another
            # revision.
            copy.ready_at = copy.job_uid = copy.failed_job_uid = copy.pinned_key = ""
            copy.job_observed = False
            continue
        job = next((job for job in observed.jobs if job.uid == copy.job_uid), None)
        if not copy.ready_at:
            _record_job(copy, job, now, bound=bound, fresh=fresh)
        if copy.literal and copy.ready_at and job and job.commit:
            copy.commit = job.commit
    return losses


def _record_job(
    copy: CacheCopy, job: ObservedJob | None, now: datetime, *, bound: bool, fresh: bool
) -> None:
    if job is None:
        if fresh and copy.job_observed and copy.job_uid and not copy.failed:
            # A user deleted the Job. The next one resumes the download.
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
