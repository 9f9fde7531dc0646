"""How the selector, the result of a step and a retry change the staging on a cluster: changes the given state; no I/O, no clock."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from activities.render.cache.artifact import IMAGE, NODE_LOCAL
from api_types import clock, labels, names
from api_types.messages.caches import CacheApplied
from api_types.resources.status import LeftBehind
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.model_cache.observation import record_observation
from workflows.model_cache.plan import NextStep, is_downloading, is_on_cluster, selects, turn_is_over
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import ClusterStaging, Copy


def update_selection(staging: ClusterStaging, desired: DesiredStaging, now: datetime, first: str = "") -> None:
    """Record whether the cluster is selected still, and which artifact shall be on it; not yet, if another cluster is the `first`."""
    staging.awaits = first if first != staging.site.name else ""
    if not desired.deleting:
        staging.volume_class, staging.by_pods = desired.volume_class, bool(desired.by_pods)
    if selects(desired.match_labels, staging.site):
        staging.unselected_since = ""
        if staging.can_stage and not desired.deleting and not staging.awaits:
            if desired.by_pods:
                _leave_to_pods(staging, desired, now)
            else:
                _move_to_front(staging, desired)
    elif not staging.unselected_since:
        staging.unselected_since = clock.timestamp(now)


def begin_turn(stagings: Mapping[str, ClusterStaging], first: str, now: datetime) -> None:
    """Record since when a cluster is the first to stage; without a `first` one, nobody had a turn."""
    for name, staging in stagings.items():
        over = turn_is_over(staging, now)
        if name == first:
            staging.turn_began = staging.turn_began if staging.turn_began and not over else clock.timestamp(now)
        elif not first or not over:
            staging.turn_began = ""


def _leave_to_pods(staging: ClusterStaging, desired: DesiredStaging, now: datetime) -> None:
    """Let pods get the artifact themselves. Without one commit or digest they could have different ones, so it is waited for."""
    if not desired.exact:
        return
    _move_to_front(staging, desired)
    current = staging.copies[0]
    current.node_local, current.ready_at = desired.by_pods == NODE_LOCAL, current.ready_at or clock.timestamp(now)
    if desired.by_pods == IMAGE:
        current.image, current.pull_secret = desired.image, desired.credential


def _move_to_front(staging: ClusterStaging, desired: DesiredStaging) -> None:
    if staging.copies and staging.copies[0].is_of(desired.artifact_key):
        return
    known = next((copy for copy in staging.copies if copy.is_of(desired.artifact_key)), None)
    new = Copy(artifact_key=desired.artifact_key, claim=desired.claim, revision=desired.revision, literal=not desired.pinned)
    current = known or new
    staging.copies = [current, *(copy for copy in staging.copies if copy is not current)]


def record_success(staging: ClusterStaging) -> None:
    """End the backoff of a cluster."""
    staging.error, staging.errors, staging.retry_at = NO_FAILURE, 0, ""


def record_failure(staging: ClusterStaging, failure: Failure, now: datetime) -> None:
    """Let the next step on a cluster wait, the longer the more have failed in a row."""
    staging.retry_at = (now + backoff_after(failure, staging.errors)).isoformat()
    staging.error, staging.errors = failure, staging.errors + 1


def record_applied(staging: ClusterStaging, copy: Copy, generation: int, applied: CacheApplied, now: datetime) -> None:
    """Record what was applied for an artifact; a Job with another uid is another attempt."""
    copy.applied_generation, copy.claim_digest, copy.warning = generation, applied.volume_digest, "; ".join(applied.warnings)
    copy.missing_credential, copy.access_mode = applied.credential_missing, applied.access_mode
    if applied.job_uid and applied.job_uid != copy.job_uid:
        copy.job_uid, copy.job_observed, copy.attempts = applied.job_uid, False, copy.attempts + 1
        copy.failure, copy.exit_code, copy.started_at = "", 0, clock.timestamp(now)
    if copy.missing_credential:
        copy.cleaned_up = True
    _record_earlier(staging, applied)
    if staging.observed:
        # The Job may have been observed before its apply was answered.
        record_observation(staging, staging.observed, now, fresh=False)


def _record_earlier(staging: ClusterStaging, applied: CacheApplied) -> None:
    """Record the volumes that earlier runs of the cache left, so that they are removed too."""
    own = [each for each in staging.copies if not each.owner_uid]
    earlier = [Copy(claim=found.claim, owner_uid=found.uid) for found in applied.earlier if all(each.claim != found.claim for each in own)]
    staging.copies = [*own, *earlier]


def drop_what_is_elsewhere(staging: ClusterStaging) -> None:
    """Drop artifacts of which nothing is on the cluster: nobody has to ask it to delete them."""
    staging.copies = [copy for copy in staging.copies if is_on_cluster(staging, copy)]


def record_deleted(staging: ClusterStaging, step: NextStep) -> None:
    """Record that a `clean_up` or `remove` was done."""
    step.copy.cleaned_up = True
    if step.kind == "remove":
        staging.copies = [copy for copy in staging.copies if copy is not step.copy]


def write_copies_again(stagings: Iterable[ClusterStaging]) -> None:
    """Have artifacts applied again that are being downloaded: only these have copies of Secrets on their clusters."""
    for staging in stagings:
        for copy in staging.copies[:1]:
            if is_downloading(copy):
                copy.applied_generation = 0


def reset_backoff(copy: Copy) -> None:
    """Let a failed download be repeated now, with all its attempts: a user requested it, or changed what may have caused the failure."""
    if copy.failed:
        copy.exit_code, copy.attempts, copy.retry_at = 0, 0, copy.retry_at and "1970-01-01T00:00:00Z"


def left_by_label(namespace: str, name: str, cluster: str, why: str) -> LeftBehind:
    """List all objects on a cluster with the label of a cache."""
    return LeftBehind(
        kind="label",
        name=f"{labels.MODEL_CACHE}={names.label_value(name)}",
        namespace=namespace,
        location=cluster,
        reason=f"{why}; there may be objects with this label",
    )


def left_behind(stagings: Mapping[str, ClusterStaging], namespace: str, reason: str) -> list[LeftBehind]:
    """List what may stay on clusters that are not waited for any more."""
    return [
        LeftBehind(kind=kind, name=name, namespace=namespace, location=cluster, reason=reason)
        for cluster, staging in sorted(stagings.items())
        for copy in staging.copies
        if is_on_cluster(staging, copy)
        for kind, name in (
            ("Job", names.cache_job_name(copy.claim)),
            ("Secret", names.cache_credential_name(copy.claim)),
            ("PersistentVolumeClaim", copy.claim),
        )
        if kind == "PersistentVolumeClaim" or not copy.cleaned_up
    ]
