"""What a ModelCache does next on a cluster: pure decisions over what is known.

A volume that somebody mounts, or may mount, is never taken away; a cluster that is badly described for a moment keeps what it has.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from activities.observe.cache import BOUND, COMPLETE, FAILED
from activities.render.cache.hydration import FINAL_EXIT_CODES
from activities.render.objects.teardown import CACHE_STEPS
from api_types import clock
from api_types.messages.caches import CacheSite
from api_types.messages.observations import ObservedCache, ObservedJob
from workflows.entity import backoff
from workflows.model_cache.state import ClusterStaging, Copy

AUTH_REFUSED = FINAL_EXIT_CODES[0]
_JOB_STEPS = [step.number for step in CACHE_STEPS if step.inventory_prefixes != ("cache-claim",)]
_CREDENTIAL_STEP = [step.number for step in CACHE_STEPS if step.inventory_prefixes == ("cache-auth",)]
_ALL_STEPS = [step.number for step in CACHE_STEPS]


class Wanted(NamedTuple):
    """What shall be staged, and where: `deleting` means nowhere."""

    artefact_key: str
    claim: str
    revision: str
    generation: int
    match_labels: Mapping[str, str]
    deleting: bool = False


class NextStep(NamedTuple):
    """The next step for one artefact on one cluster; `steps` are numbers of `CACHE_STEPS` for all but `stage`."""

    kind: Literal["stage", "tidy", "leave"]
    copy: Copy
    hydrate: bool = False
    steps: tuple[int, ...] = ()


def chooses(labels: Mapping[str, str], site: CacheSite) -> bool:
    """Tell whether a selector chooses a cluster."""
    return all(site.labels.get(key) == value for key, value in labels.items())


def can_begin(site: CacheSite) -> bool:
    """Tell whether something can be staged on a cluster where nothing is yet."""
    return site.present and not site.leaving and site.connection is not None and bool(site.storage_class_name)


def follow(place: ClusterStaging, wanted: Wanted, now: datetime) -> None:
    """Note what the wish and the cluster's description mean for a place, before anything is done."""
    if chooses(wanted.match_labels, place.site):
        place.unmatched_since = ""
        if can_begin(place.site) and not wanted.deleting:
            _put_first(place, wanted)
    elif not place.unmatched_since:
        place.unmatched_since = clock.timestamp(now)


def _put_first(place: ClusterStaging, wanted: Wanted) -> None:
    if place.copies and place.copies[0].artefact_key == wanted.artefact_key:
        return
    known = next((copy for copy in place.copies if copy.artefact_key == wanted.artefact_key), None)
    current = known or Copy(artefact_key=wanted.artefact_key, claim=wanted.claim, revision=wanted.revision)
    place.copies = [current, *(copy for copy in place.copies if copy is not current)]


def must_leave(place: ClusterStaging, wanted: Wanted, used: Collection[str], now: datetime) -> bool:
    """Tell whether a place has to be given up now. Nobody's volume is taken while it is `used`."""
    if used:
        return False
    return wanted.deleting or place.site.leaving or (bool(place.unmatched_since) and now >= _grace_ends(place))


def _grace_ends(place: ClusterStaging) -> datetime:
    return datetime.fromisoformat(place.unmatched_since) + timedelta(seconds=place.site.evict_grace_seconds)


def next_deed(place: ClusterStaging, wanted: Wanted, used: Collection[str], now: datetime) -> NextStep | None:
    """Give the next step on a cluster; None while there is nothing to do, or nothing can be done."""
    if place.site.connection is None or place.waits_until(now):
        return None
    if must_leave(place, wanted, used, now):
        return NextStep("leave", place.copies[-1], steps=tuple(_ALL_STEPS)) if place.copies else None
    for copy in place.copies:
        # A token lies on a cluster only while it is needed; the failed Job stays, for its log.
        if not copy.tidy and (copy.ready_at or copy.failed):
            return NextStep("tidy", copy, steps=tuple(_JOB_STEPS if copy.ready_at else _CREDENTIAL_STEP))
    if wanted.deleting or place.unmatched_since or not can_begin(place.site) or not place.copies:
        return None
    current, *older = place.copies
    for copy in older:
        if copy.claim not in used and (current.ready_at or not copy.ready_at):
            return NextStep("leave", copy, steps=tuple(_ALL_STEPS))
    hydrate = wants_attempt(current, place.site, now)
    if current.applied != wanted.generation or (hydrate and not current.missing):
        return NextStep("stage", current, hydrate=hydrate or _is_under_way(current))
    return None


def wants_attempt(copy: Copy, site: CacheSite, now: datetime) -> bool:
    """Tell whether a download has to be begun: there is none, or the last one failed and it is time for another."""
    if copy.ready_at:
        return False
    if not copy.failed:
        return not copy.job
    return not is_final(copy, site) and now >= datetime.fromisoformat(copy.retry_at)


def _is_under_way(copy: Copy) -> bool:
    return not copy.ready_at and bool(copy.job) and not copy.failed


def is_final(copy: Copy, site: CacheSite) -> bool:
    """Tell whether no further attempt is made by itself: trying cannot help, or has been tried often enough."""
    return copy.failed and (copy.exit_code in FINAL_EXIT_CODES or 0 < site.attempts_max <= copy.attempts)


def next_look(place: ClusterStaging, used: Collection[str]) -> datetime | None:
    """Give when time alone will change the answer of `next_deed`; None: never."""
    times = [datetime.fromisoformat(place.retry_at)] if place.retry_at else []
    times += [datetime.fromisoformat(copy.retry_at) for copy in place.copies[:1] if copy.failed and not is_final(copy, place.site)]
    if place.unmatched_since and not used:
        times.append(_grace_ends(place))
    return min(times, default=None)


def absorb(place: ClusterStaging, seen: ObservedCache, now: datetime, *, fresh: bool = True) -> list[str]:
    """Take over what the observer saw; gives what people should hear of.

    An observation that is older than our last apply (`fresh` False) cannot prove that something is gone.
    """
    place.observed = seen
    volumes = {volume.claim: volume for volume in seen.volumes}
    news: list[str] = []
    for copy in place.copies:
        if not copy.applied:
            continue
        volume = volumes.get(copy.claim)
        bound = volume is not None and volume.phase == BOUND
        if (fresh and volume is None) or (fresh and volume is not None and copy.digest and volume.digest != copy.digest):
            copy.applied = 0
        if copy.ready_at and not bound and fresh:
            news.append(f"the volume on {place.site.name} is {volume.phase if volume else 'gone'}; it has to be filled again")
            copy.ready_at = copy.job = copy.spent = ""
            copy.seen = False
        elif not copy.ready_at:
            job = next((job for job in seen.jobs if job.uid == copy.job), None)
            _absorb_job(copy, job, now, bound=bound, fresh=fresh)
    return news


def _absorb_job(copy: Copy, job: ObservedJob | None, now: datetime, *, bound: bool, fresh: bool) -> None:
    if job is None:
        if fresh and copy.seen and copy.job and not copy.failed:
            # Somebody deleted it by hand; the next one goes on where it stopped.
            copy.job, copy.seen = "", False
        return
    copy.seen = True
    if job.state == COMPLETE and bound:
        copy.ready_at = clock.timestamp(now)
        copy.failure, copy.exit_code, copy.retry_at, copy.spent = "", 0, "", ""
    elif job.state == FAILED:
        if not copy.failed:
            copy.spent = job.uid
            copy.retry_at = clock.timestamp(now + backoff.permanent(copy.attempts - 1))
        copy.failure, copy.exit_code = job.message or "the Job failed", job.exit_code


def reset_backoff(copy: Copy) -> None:
    """Let a failed download be tried again now: somebody changed something, or asked for it."""
    if copy.failed:
        copy.exit_code, copy.attempts, copy.retry_at = 0, 0, copy.retry_at and "1970-01-01T00:00:00Z"
