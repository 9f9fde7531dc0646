"""What the result of a step on a cluster means for the artefacts there. Pure."""

from collections.abc import Mapping
from datetime import datetime

from api_types import clock
from api_types.messages.caches import CacheApplied
from api_types.resources.status import LeftBehind
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.model_cache.observation import record_observation
from workflows.model_cache.plan import NextStep
from workflows.model_cache.state import ClusterStaging, Copy


def record_success(staging: ClusterStaging) -> None:
    """End the backoff of a cluster."""
    staging.error, staging.errors, staging.retry_at = NO_FAILURE, 0, ""


def record_failure(staging: ClusterStaging, failure: Failure, now: datetime) -> None:
    """Let the next step on a cluster wait, the longer the more have failed in a row."""
    staging.retry_at = (now + backoff_after(failure, staging.errors)).isoformat()
    staging.error, staging.errors = failure, staging.errors + 1


def record_applied(staging: ClusterStaging, copy: Copy, generation: int, applied: CacheApplied, now: datetime) -> None:
    """Record what was applied for an artefact; a Job with another uid is another attempt."""
    copy.applied_generation, copy.claim_digest, copy.warning = generation, applied.volume_digest, "; ".join(applied.warnings)
    copy.missing_credential = applied.credential_missing
    if applied.job_uid and applied.job_uid != copy.job_uid:
        copy.job_uid, copy.job_observed, copy.attempts = applied.job_uid, False, copy.attempts + 1
        copy.failure, copy.exit_code, copy.started_at = "", 0, clock.timestamp(now)
    if copy.missing_credential:
        copy.cleaned_up = True
    if staging.observed:
        # The Job may have been observed before its apply was answered.
        record_observation(staging, staging.observed, now, fresh=False)


def record_deleted(staging: ClusterStaging, step: NextStep) -> None:
    """Record that a `clean_up` or `remove` was done."""
    step.copy.cleaned_up = True
    if step.kind == "remove":
        staging.copies = [copy for copy in staging.copies if copy is not step.copy]


def left_behind(stagings: Mapping[str, ClusterStaging], namespace: str, reason: str) -> list[LeftBehind]:
    """List what may stay on the clusters when they are given up."""
    return [
        LeftBehind(kind=kind, name=f"{copy.claim}{suffix}", namespace=namespace, location=cluster, reason=reason)
        for cluster, staging in sorted(stagings.items())
        for copy in staging.copies
        for kind, suffix in (("Job", "-hyd"), ("Secret", "-auth"), ("PersistentVolumeClaim", ""))
        if kind == "PersistentVolumeClaim" or not copy.cleaned_up
    ]
