"""Update the staging on a cluster with step results and retries.

The functions change the state that they receive. They do no I/O and read no clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from activities.render.cache.artifact import IMAGE, NODE_LOCAL
from api_types import clock, labels, names
from api_types.messages.caches import CacheApplied, EarlierClaim
from api_types.resources.status import LeftBehind
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.model_cache.observation import record_observation
from workflows.model_cache.plan import (
    NextStep,
    is_downloading,
    is_on_cluster,
    selects,
    turn_is_over,
)
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import CacheCopy, ClusterStaging

# The kind of a leftover that stands for all objects with a label.
_LABEL = "label"


def update_selection(
    staging: ClusterStaging, desired: DesiredStaging, now: datetime, first: str = ""
) -> None:
    """Record whether the cluster is selected, and the artifact that it shall hold.

    The artifact is not set while another cluster is the `first`.
    """
    staging.awaits = first if first != staging.site.name else ""
    if not desired.deleting:
        staging.volume_class = desired.volume_class
        staging.by_pods = bool(desired.by_pods)
    if selects(desired.match_labels, staging.site):
        staging.unselected_since = ""
        if staging.can_stage and not desired.deleting and not staging.awaits:
            if desired.by_pods:
                _leave_to_pods(staging, desired, now)
            else:
                _move_to_front(staging, desired)
    elif not staging.unselected_since:
        staging.unselected_since = clock.timestamp(now)


def begin_turn(
    stagings: Mapping[str, ClusterStaging], first: str, now: datetime
) -> None:
    """Record when the turn of the `first` cluster began.

    Without a first cluster, all turns are reset.
    """
    for name, staging in stagings.items():
        over = turn_is_over(staging, now)
        if name == first:
            if over or not staging.turn_began:
                staging.turn_began = clock.timestamp(now)
        elif not first or not over:
            staging.turn_began = ""


def _leave_to_pods(
    staging: ClusterStaging, desired: DesiredStaging, now: datetime
) -> None:
    """Leave the artifact to the pods once the revision is exact.

    With an inexact reference, pods could get different revisions.
    """
    if not desired.exact:
        return
    _move_to_front(staging, desired)
    current = staging.copies[0]
    current.node_local = desired.by_pods == NODE_LOCAL
    current.ready_at = current.ready_at or clock.timestamp(now)
    if desired.by_pods == IMAGE:
        current.image, current.pull_secret = desired.image, desired.credential


def _move_to_front(staging: ClusterStaging, desired: DesiredStaging) -> None:
    if staging.copies and staging.copies[0].is_of(desired.artifact_key):
        return
    known = next(
        (copy for copy in staging.copies if copy.is_of(desired.artifact_key)), None
    )
    new = CacheCopy(
        artifact_key=desired.artifact_key,
        claim=desired.claim,
        revision=desired.revision,
        literal=not desired.pinned,
    )
    current = known or new
    others = [copy for copy in staging.copies if copy is not current]
    staging.copies = [current, *others]


def record_success(staging: ClusterStaging) -> None:
    staging.error, staging.errors, staging.retry_at = NO_FAILURE, 0, ""


def record_failure(staging: ClusterStaging, failure: Failure, now: datetime) -> None:
    """Set the backoff after a failure. It grows with consecutive failures."""
    staging.retry_at = (now + backoff_after(failure, staging.errors)).isoformat()
    staging.error, staging.errors = failure, staging.errors + 1


def record_applied(
    staging: ClusterStaging,
    copy: CacheCopy,
    generation: int,
    applied: CacheApplied,
    now: datetime,
    *,
    was_clean: bool,
) -> None:
    """Record the applied objects of an artifact.

    A new Job uid counts as a new attempt. `was_clean`: before the call, the cluster had
    neither a Job nor a credential. A call that lacks the credential makes neither, and
    leaves those of earlier calls.
    """
    copy.applied_generation, copy.claim_digest = generation, applied.volume_digest
    copy.warning = "; ".join(applied.warnings)
    copy.missing_credential = applied.credential_missing
    copy.access_mode = applied.access_mode
    if copy.missing_credential:
        copy.cleaned_up = was_clean
    if applied.job_uid and applied.job_uid != copy.job_uid:
        copy.job_uid, copy.job_observed = applied.job_uid, False
        copy.attempts += 1
        copy.failure, copy.exit_code, copy.started_at = "", 0, clock.timestamp(now)
    _record_earlier(staging, applied.earlier)
    if staging.observed:
        # The observer may have seen the Job before the apply returned.
        record_observation(staging, staging.observed, now, fresh=False)


def _record_earlier(staging: ClusterStaging, earlier: Iterable[EarlierClaim]) -> None:
    """Record the volumes of earlier runs of the cache, so that they are removed too."""
    own = [each for each in staging.copies if not each.owner_uid]
    found = [
        CacheCopy(claim=each.claim, owner_uid=each.uid)
        for each in earlier
        if all(each.claim != copy.claim for copy in own)
    ]
    staging.copies = [*own, *found]


def drop_what_is_elsewhere(staging: ClusterStaging) -> None:
    """Drop artifacts without objects on the cluster. No step has to delete them."""
    staging.copies = [copy for copy in staging.copies if is_on_cluster(staging, copy)]


def record_deleted(
    staging: ClusterStaging, step: NextStep, earlier: Iterable[EarlierClaim] = ()
) -> None:
    """Record that a `clean_up` or `remove` step is complete.

    The removal of the last artifact may find artifacts of `earlier` runs.
    """
    step.copy.cleaned_up = True
    if step.kind == "remove":
        staging.copies = [copy for copy in staging.copies if copy is not step.copy]
        if not staging.copies:
            _record_earlier(staging, earlier)


def write_copies_again(stagings: Iterable[ClusterStaging]) -> None:
    """Mark artifacts with a running download to be applied again.

    Only these have copies of Secrets on their clusters.
    """
    for staging in stagings:
        for copy in staging.copies[:1]:
            if is_downloading(copy):
                copy.applied_generation = 0


def reset_backoff(copy: CacheCopy) -> None:
    """Repeat a failed download now, with all of its attempts.

    A user requested it, or changed a possible cause of the failure.
    """
    if copy.failed:
        copy.exit_code, copy.attempts = 0, 0
        if copy.retry_at:
            copy.retry_at = "1970-01-01T00:00:00Z"


def left_by_label(namespace: str, name: str, cluster: str, why: str) -> LeftBehind:
    """Return an entry for all objects on a cluster with the label of a cache."""
    return LeftBehind(
        kind=_LABEL,
        name=f"{labels.MODEL_CACHE}={names.label_value(name)}",
        namespace=namespace,
        location=cluster,
        reason=f"{why}; there may be objects with this label",
    )


def left_behind(
    stagings: Mapping[str, ClusterStaging], namespace: str, reason: str
) -> list[LeftBehind]:
    """List the objects that may stay on clusters that are given up."""
    objects: list[tuple[str, str, str]] = []
    for cluster, staging in sorted(stagings.items()):
        for copy in staging.copies:
            if not is_on_cluster(staging, copy):
                continue
            # The cache does not know which of these objects an earlier cache deleted.
            if not copy.cleaned_up or copy.owner_uid:
                objects += [
                    (cluster, "Job", names.cache_job_name(copy.claim)),
                    (cluster, "Secret", names.cache_credential_name(copy.claim)),
                ]
            objects.append((cluster, "PersistentVolumeClaim", copy.claim))
    return [
        LeftBehind(
            kind=kind, name=name, namespace=namespace, location=cluster, reason=reason
        )
        for cluster, kind, name in objects
    ]


def not_taken_over(items: Sequence[LeftBehind], cluster: str) -> list[LeftBehind]:
    """Return the leftovers that stay when a cluster of this name holds the cache again.

    The cache finds its own objects there. Those of an earlier cache, which are listed by
    their label, have another owner.
    """
    return [item for item in items if item.location != cluster or item.kind == _LABEL]
