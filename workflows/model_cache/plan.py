"""Decide the next step of a ModelCache on a cluster.

A volume that a pod mounts or may mount is never deleted. A cluster that temporarily
reports no storage class or other labels keeps its artifacts. All functions are pure.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from activities.render.cache.hydration import FINAL_EXIT_CODES
from activities.render.objects.teardown import CACHE_CREDENTIAL, CACHE_JOB, CACHE_VOLUME
from api_types.messages.caches import CacheSite
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import CacheCopy, ClusterStaging

AUTH_REFUSED = FINAL_EXIT_CODES[0]
# Long enough for most downloads, but not longer than a user waits before investigating.
FIRST_CLUSTER_TURN = timedelta(hours=1)
_DOWNLOAD_STEPS = (CACHE_JOB, CACHE_CREDENTIAL)
_ALL_STEPS = (*_DOWNLOAD_STEPS, CACHE_VOLUME)


class NextStep(NamedTuple):
    """The next step for one artifact on one cluster.

    Attributes:
        kind: `stage` applies the artifact, `clean_up` deletes the objects of a download,
            and `remove` also deletes the volume.
        hydrate: whether `stage` also applies the Job.
        teardown_steps: the numbers of the `CACHE_STEPS` for `clean_up` and `remove`.

    """

    kind: Literal["stage", "clean_up", "remove"]
    copy: CacheCopy
    hydrate: bool = False
    teardown_steps: tuple[int, ...] = ()


def selects(match_labels: Mapping[str, str], site: CacheSite) -> bool:
    return all(site.labels.get(key) == value for key, value in match_labels.items())


def is_on_cluster(staging: ClusterStaging, copy: CacheCopy) -> bool:
    """Return whether an artifact may have objects on the cluster.

    This is True from the start of the first apply, and for an artifact that was found
    there.
    """
    was_found_or_applied = bool(copy.claim_digest or copy.owner_uid)
    return not copy.by_pods and (staging.registered or was_found_or_applied)


def must_remove(
    staging: ClusterStaging,
    desired: DesiredStaging,
    used: Collection[str],
    now: datetime,
) -> bool:
    """Return whether everything must be removed from a cluster now.

    This is False while a claim on the cluster is `used`.
    """
    if used:
        return False
    return (
        desired.deleting
        or staging.site.deleting
        or (bool(staging.unselected_since) and now >= _grace_ends(staging))
    )


def can_forget(
    staging: ClusterStaging,
    desired: DesiredStaging,
    used: Collection[str],
    now: datetime,
) -> bool:
    """Return whether a cluster no longer concerns the cache.

    The cluster is gone, or it holds nothing and shall hold nothing.
    """
    if not staging.site.present:
        return True
    return not staging.copies and (
        must_remove(staging, desired, used, now)
        or not selects(desired.match_labels, staging.site)
    )


def _grace_ends(staging: ClusterStaging) -> datetime:
    return datetime.fromisoformat(staging.unselected_since) + timedelta(
        seconds=staging.site.evict_grace_seconds
    )


def next_step(
    staging: ClusterStaging,
    desired: DesiredStaging,
    used: Collection[str],
    now: datetime,
) -> NextStep | None:
    """Return the next step on a cluster, or None if no step is possible or necessary."""
    if staging.site.connection is None or staging.is_backing_off(now):
        return None
    if must_remove(staging, desired, used, now):
        if not staging.copies:
            return None
        return NextStep("remove", staging.copies[-1], teardown_steps=_ALL_STEPS)
    for copy in staging.copies:
        # A token is on a cluster only while it is needed. A failed Job stays for its
        # log.
        has_ended = copy.ready_at or copy.failed
        if has_ended and not copy.cleaned_up and not copy.says_commit_later(now):
            steps = _DOWNLOAD_STEPS if copy.ready_at else (CACHE_CREDENTIAL,)
            return NextStep("clean_up", copy, teardown_steps=steps)
    unready = not staging.can_stage or staging.awaits
    if desired.deleting or staging.unselected_since or unready or not staging.copies:
        return None
    current, *older = staging.copies
    for copy in older:
        # Pods of unregistered replicas may mount the volume of an earlier run.
        may_serve = bool(copy.ready_at or copy.owner_uid)
        if copy.claim not in used and (current.ready_at or not may_serve):
            return NextStep("remove", copy, teardown_steps=_ALL_STEPS)
    if current.by_pods:
        return None
    hydrate = needs_attempt(current, staging.site, now)
    if current.applied_generation != desired.generation or (
        hydrate and not current.missing_credential
    ):
        return NextStep("stage", current, hydrate=hydrate or is_downloading(current))
    return None


def needs_attempt(copy: CacheCopy, site: CacheSite, now: datetime) -> bool:
    """Return whether a download must start: the first one, or a due retry."""
    if copy.ready_at:
        return False
    if not copy.failed:
        return not copy.job_uid
    return not is_final(copy, site) and now >= datetime.fromisoformat(copy.retry_at)


def is_downloading(copy: CacheCopy) -> bool:
    """Return whether a Job fills the volume or waits to do so."""
    return not copy.ready_at and bool(copy.job_uid) and not copy.failed


def is_final(copy: CacheCopy, site: CacheSite) -> bool:
    """Return whether a failed download is not retried until something changes.

    Its error is permanent, or all attempts are used up.
    """
    return copy.failed and (
        copy.exit_code in FINAL_EXIT_CODES or 0 < site.attempts_max <= copy.attempts
    )


def next_check(
    staging: ClusterStaging, used: Collection[str], now: datetime
) -> datetime | None:
    """Return the next time at which `next_step` may change without an event, or None."""
    times = [datetime.fromisoformat(staging.retry_at)] if staging.retry_at else []
    if not staging.awaits:
        times += [
            datetime.fromisoformat(copy.retry_at)
            for copy in staging.copies[:1]
            if copy.failed and not is_final(copy, staging.site)
        ]
    times += [
        copy.commit_awaited_until
        for copy in staging.copies
        if not copy.cleaned_up and copy.says_commit_later(now)
    ]
    if staging.unselected_since and not used:
        times.append(_grace_ends(staging))
    # A step that is due but impossible waits for an event, for example a connection.
    return min((time for time in times if time > now), default=None)


def waits_for_credential(copy: CacheCopy) -> bool:
    """Return whether a download needs a change of the credential to continue."""
    return bool(copy.missing_credential) or (
        copy.failed and copy.exit_code == AUTH_REFUSED
    )


def download_started(stagings: Iterable[ClusterStaging]) -> bool:
    return any(any(copy.attempts for copy in each.copies) for each in stagings)


def may_tell_revision(copy: CacheCopy) -> bool:
    """Return whether a volume holds, or will hold, a revision.

    Such a volume determines the revision, and the reference is not resolved again.
    """
    return not copy.by_pods and (
        bool(copy.ready_at) or (bool(copy.job_uid) and not copy.failed)
    )


def first_to_stage(
    stagings: Mapping[str, ClusterStaging], desired: DesiredStaging, now: datetime
) -> str:
    """Return the cluster that stages an unresolved reference first.

    Return "" if all clusters may stage it. The target of a reference may change between
    two downloads. So one cluster downloads first, and the commit of its volume is the
    revision for all others. If the source's volumes do not report a commit, every
    cluster stages the reference.

    A cluster is first for `FIRST_CLUSTER_TURN` or until its download failed. Then
    another cluster is first, while the earlier download continues. The first complete
    download determines the revision. When each cluster had a turn, the turns start
    again. So a cluster without room for its Job delays the others but never blocks
    them, and all clusters get the same revision.
    """
    if desired.pinned or desired.by_pods or desired.deleting:
        return ""
    found = {
        name: [copy for copy in staging.copies if copy.is_of(desired.artifact_key)]
        for name, staging in stagings.items()
    }
    for copies in found.values():
        ready = [copy for copy in copies if copy.ready_at and not copy.commit]
        if not all(copy.says_commit_later(now) for copy in ready):
            return ""

    def order(name: str) -> tuple[bool, str, bool, int, str]:
        site, copies = stagings[name].site, found[name]
        begun = any(may_tell_revision(copy) for copy in copies)
        # Among clusters that had a turn, prefer the one whose turn is longest ago.
        former = stagings[name].turn_began if turn_is_over(stagings[name], now) else ""
        return (
            any(is_final(copy, site) for copy in copies),
            former,
            not begun,
            sum(copy.attempts for copy in copies),
            name,
        )

    able = [
        name
        for name, each in stagings.items()
        if selects(desired.match_labels, each.site) and each.can_stage
    ]
    return min(able, key=order, default="")


def turn_is_over(staging: ClusterStaging, now: datetime) -> bool:
    """Return whether a cluster's turn to stage first has ended."""
    return bool(staging.turn_began) and now >= turn_ends(staging)


def turn_ends(staging: ClusterStaging) -> datetime:
    """Return when a cluster's turn to stage first ends."""
    return datetime.fromisoformat(staging.turn_began) + FIRST_CLUSTER_TURN
