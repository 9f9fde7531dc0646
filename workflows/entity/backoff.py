"""How long a workflow waits between its attempts, in addition to activity retries."""

from datetime import datetime, timedelta

_TRANSIENT_SECONDS = (2, 120)
_AFTER_RETRIES_SECONDS = (8, 3600)
_ATTEMPTS_DURING_UPGRADE = 65
_PERMANENT_MINUTES_MAX = 30
_MISSING_SECONDS = (2, 900)
_POLL_SECONDS = (10, 600)
_DELETION_CHECK_SECONDS = (30, 900)
_REPAIR_SECONDS = (2, 300)
_RENDERER_SECONDS = (15, 1800)

# Repairs that follow one another within this time mean that another controller writes
# the same field, and each repair waits longer than the previous one. The time exceeds
# the longest wait, so that a continuing conflict is still recognized.
DRIFT_MEMORY = timedelta(minutes=15)


def transient(attempt: int) -> timedelta:
    """Return the wait after a transient failure: 2 s doubling to 2 min."""
    shortest, longest = _TRANSIENT_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(attempt, 8), longest))


def missing(attempt: int) -> timedelta:
    """Return the wait before the next look-up of a missing object.

    It doubles from 2 s to 15 min. The object also announces itself when it is created.
    """
    shortest, longest = _MISSING_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(attempt, 9), longest))


def after_retries(attempt: int) -> timedelta:
    """Return the wait after an activity that retried for seconds or minutes.

    It doubles from 8 s to an hour, the period of a resync. Such a failure may last
    indefinitely, for example if an entity does not answer, and each attempt adds some
    ten events to the history.
    """
    shortest, longest = _AFTER_RETRIES_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(attempt, 9), longest))


def refused(attempt: int) -> timedelta:
    """Return the wait before a refused call is repeated.

    It doubles from 2 s to 2 min, and is an hour after the first two hours: an upgrade
    of the workers is over by then. A waiting pass cannot continue as new, and each
    attempt adds some ten events to its history.
    """
    return (
        transient(attempt)
        if attempt < _ATTEMPTS_DURING_UPGRADE
        else timedelta(seconds=_AFTER_RETRIES_SECONDS[1])
    )


def permanent(attempt: int) -> timedelta:
    """Return the wait after a failure that only a new spec can fix.

    It doubles from 1 to 30 minutes.
    """
    return timedelta(minutes=min(2 ** min(attempt, 8), _PERMANENT_MINUTES_MAX))


def poll_timeout(polls: int) -> timedelta:
    """Return how long one deletion attempt waits before it reports.

    It doubles from 10 s to 10 min. The first report of the remaining objects comes
    early, for users. Later reports are rare, because each adds to the history.
    """
    shortest, longest = _POLL_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(polls, 8), longest))


def check_of_deletion(checks: int) -> timedelta:
    """Return the wait before the next check on a workflow under deletion.

    It doubles from 30 s to 15 min. The check finds out whether the workflow still runs.
    """
    shortest, longest = _DELETION_CHECK_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(checks, 8), longest))


def renderer(applies: int) -> timedelta:
    """Return the wait before the apply of another worker version is repeated.

    It doubles from 15 s to 30 min.
    """
    shortest, longest = _RENDERER_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(applies, 7), longest))


def repair(repairs: int) -> timedelta:
    """Return how long a difference must persist before it is repaired again.

    It is 2 s at first, then 4 s doubling to 5 min. Without the wait, two controllers
    that write the same field would overwrite each other continuously.
    """
    shortest, longest = _REPAIR_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(repairs, 8), longest))


def recent_repairs(repairs: int, repaired_at: str, now: datetime) -> int:
    """Return the number of repairs in a row.

    It is 0 if the last repair was long ago.
    """
    return (
        repairs
        if repaired_at and now - datetime.fromisoformat(repaired_at) <= DRIFT_MEMORY
        else 0
    )
