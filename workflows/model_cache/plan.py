"""What a ModelCache does next on a cluster: pure decisions over what is known.

A volume that a pod mounts, or may mount, is never deleted. A cluster that for a moment reports no storage class, or other labels, keeps
what it has.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from activities.render.cache.hydration import FINAL_EXIT_CODES
from activities.render.objects.teardown import CACHE_CREDENTIAL, CACHE_JOB, CACHE_VOLUME
from api_types.messages.caches import CacheSite
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import ClusterStaging, Copy

AUTH_REFUSED = FINAL_EXIT_CODES[0]
# Long enough for most downloads, and no longer than a user waits who looks why nothing happens.
FIRST_CLUSTER_TURN = timedelta(hours=1)
_DOWNLOAD_STEPS = (CACHE_JOB, CACHE_CREDENTIAL)
_ALL_STEPS = (*_DOWNLOAD_STEPS, CACHE_VOLUME)


class NextStep(NamedTuple):
    """The next step for one artifact on one cluster; `teardown_steps` are numbers of `CACHE_STEPS` for all but `stage`.

    `clean_up` deletes what a download needs, `remove` the volume too. `hydrate`: a `stage` applies the Job too.
    """

    kind: Literal["stage", "clean_up", "remove"]
    copy: Copy
    hydrate: bool = False
    teardown_steps: tuple[int, ...] = ()


def selects(match_labels: Mapping[str, str], site: CacheSite) -> bool:
    """Tell whether a selector selects a cluster."""
    return all(site.labels.get(key) == value for key, value in match_labels.items())


def is_on_cluster(staging: ClusterStaging, copy: Copy) -> bool:
    """Tell whether objects of an artifact may be on the cluster: something was applied, or its apply was begun."""
    return not copy.by_pods and (staging.registered or bool(copy.claim_digest))


def must_remove(staging: ClusterStaging, desired: DesiredStaging, used: Collection[str], now: datetime) -> bool:
    """Tell whether all has to be removed from a cluster now; never while a claim there is `used`."""
    if used:
        return False
    return desired.deleting or staging.site.deleting or (bool(staging.unselected_since) and now >= _grace_ends(staging))


def can_forget(staging: ClusterStaging, desired: DesiredStaging, used: Collection[str], now: datetime) -> bool:
    """Tell whether a cluster does not concern the cache any more: its record is gone, or it holds nothing and shall hold nothing."""
    if not staging.site.present:
        return True
    return not staging.copies and (must_remove(staging, desired, used, now) or not selects(desired.match_labels, staging.site))


def _grace_ends(staging: ClusterStaging) -> datetime:
    return datetime.fromisoformat(staging.unselected_since) + timedelta(seconds=staging.site.evict_grace_seconds)


def next_step(staging: ClusterStaging, desired: DesiredStaging, used: Collection[str], now: datetime) -> NextStep | None:
    """Give the next step on a cluster; None while there is nothing to do, or nothing can be done."""
    if staging.site.connection is None or staging.is_backing_off(now):
        return None
    if must_remove(staging, desired, used, now):
        return NextStep("remove", staging.copies[-1], teardown_steps=_ALL_STEPS) if staging.copies else None
    for copy in staging.copies:
        # A token is on a cluster only while it is needed; the failed Job stays, for its log.
        if not copy.cleaned_up and (copy.ready_at or copy.failed) and not copy.says_commit_later(now):
            return NextStep("clean_up", copy, teardown_steps=_DOWNLOAD_STEPS if copy.ready_at else (CACHE_CREDENTIAL,))
    unready = not staging.can_stage or staging.awaits
    if desired.deleting or staging.unselected_since or unready or not staging.copies:
        return None
    current, *older = staging.copies
    for copy in older:
        # Pods of replicas that have not registered yet may mount the volume of an earlier run.
        may_serve = bool(copy.ready_at or copy.owner_uid)
        if copy.claim not in used and (current.ready_at or not may_serve):
            return NextStep("remove", copy, teardown_steps=_ALL_STEPS)
    if current.by_pods:
        return None
    hydrate = needs_attempt(current, staging.site, now)
    if current.applied_generation != desired.generation or (hydrate and not current.missing_credential):
        return NextStep("stage", current, hydrate=hydrate or is_downloading(current))
    return None


def needs_attempt(copy: Copy, site: CacheSite, now: datetime) -> bool:
    """Tell whether a download has to be started: there is none, or the last one failed and its backoff is over."""
    if copy.ready_at:
        return False
    if not copy.failed:
        return not copy.job_uid
    return not is_final(copy, site) and now >= datetime.fromisoformat(copy.retry_at)


def is_downloading(copy: Copy) -> bool:
    """Tell whether a Job fills the volume, or waits to do so."""
    return not copy.ready_at and bool(copy.job_uid) and not copy.failed


def is_final(copy: Copy, site: CacheSite) -> bool:
    """Tell whether no further attempt is made without a change: another one cannot help, or all attempts are used up."""
    return copy.failed and (copy.exit_code in FINAL_EXIT_CODES or 0 < site.attempts_max <= copy.attempts)


def next_check(staging: ClusterStaging, used: Collection[str], now: datetime) -> datetime | None:
    """Give when time alone will change the answer of `next_step`; None: never."""
    times = [datetime.fromisoformat(staging.retry_at)] if staging.retry_at else []
    if not staging.awaits:
        times += [datetime.fromisoformat(copy.retry_at) for copy in staging.copies[:1] if copy.failed and not is_final(copy, staging.site)]
    times += [copy.commit_awaited_until for copy in staging.copies if not copy.cleaned_up and copy.says_commit_later(now)]
    if staging.unselected_since and not used:
        times.append(_grace_ends(staging))
    return min(times, default=None)


def waits_for_credential(copy: Copy) -> bool:
    """Tell whether only a change of the credential can let a download go on."""
    return bool(copy.missing_credential) or (copy.failed and copy.exit_code == AUTH_REFUSED)


def download_started(stagings: Iterable[ClusterStaging]) -> bool:
    """Tell whether a download was started on some cluster."""
    return any(copy.attempts for staging in stagings for copy in staging.copies)


def may_tell_revision(copy: Copy) -> bool:
    """Tell whether a volume holds, or will hold, some revision: then it counts, and the reference is not resolved again."""
    return not copy.by_pods and (bool(copy.ready_at) or (bool(copy.job_uid) and not copy.failed))


def first_to_stage(stagings: Mapping[str, ClusterStaging], desired: DesiredStaging, now: datetime) -> str:
    """Name the cluster that stages a reference as it is written; empty if all do what is desired.

    What the reference means may change from one download to the next. So one cluster downloads, and the commit of its volume is the
    revision of all others. A source whose volumes do not say it cannot be waited for: then every cluster stages what it finds.

    A cluster is the first for `FIRST_CLUSTER_TURN`, or until its download failed. After that another one is, and what the one before it has
    begun goes on: whichever is complete first says the revision of all. When each cluster had its turn, the turns begin again. So a
    cluster without room for its Job delays the others and never stops them, and still all of them get one revision.
    """
    if desired.pinned or desired.by_pods or desired.deleting:
        return ""
    found = {name: [copy for copy in staging.copies if copy.is_of(desired.artifact_key)] for name, staging in stagings.items()}
    if any(copy.ready_at and not copy.commit and not copy.says_commit_later(now) for copies in found.values() for copy in copies):
        return ""

    def order(name: str) -> tuple[bool, str, bool, int, str]:
        site, copies = stagings[name].site, found[name]
        begun = any(may_tell_revision(copy) for copy in copies)
        # Of those that had their turn, the one whose turn is longest ago.
        former = stagings[name].turn_began if turn_is_over(stagings[name], now) else ""
        return (any(is_final(copy, site) for copy in copies), former, not begun, sum(copy.attempts for copy in copies), name)

    able = [name for name, each in stagings.items() if selects(desired.match_labels, each.site) and each.can_stage]
    return min(able, key=order, default="")


def turn_is_over(staging: ClusterStaging, now: datetime) -> bool:
    """Tell whether a cluster was the first to stage for as long as the others wait for one."""
    return bool(staging.turn_began) and now >= turn_ends(staging)


def turn_ends(staging: ClusterStaging) -> datetime:
    """Give when another cluster may be the first to stage, after one whose turn has begun."""
    return datetime.fromisoformat(staging.turn_began) + FIRST_CLUSTER_TURN
