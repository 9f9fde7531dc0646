"""How long a workflow waits between attempts that it makes itself, on top of the retries inside one activity."""

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

# Repairs that follow one another within this time are a fight over a field, and each waits longer than the one before. It exceeds the
# longest of these waits, so that a fight that goes on stays one.
DRIFT_MEMORY = timedelta(minutes=15)


def transient(attempt: int) -> timedelta:
    """Give the wait before the next attempt at what may recover by itself: 2 s doubling to 2 min."""
    shortest, longest = _TRANSIENT_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(attempt, 8), longest))


def missing(attempt: int) -> timedelta:
    """Give the wait before the next look for what does not exist and reports itself when it does: 2 s doubling to 15 min."""
    shortest, longest = _MISSING_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(attempt, 9), longest))


def after_retries(attempt: int) -> timedelta:
    """Give the wait after an activity that was itself retried for seconds or minutes: 8 s doubling to an hour, the period of a resync.

    It is for what may stay so for ever, such as an entity that does not answer: each attempt costs some ten events.
    """
    shortest, longest = _AFTER_RETRIES_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(attempt, 9), longest))


def refused(attempt: int) -> timedelta:
    """Give the wait before a call is made again that a worker refused: 2 s doubling to 2 min, and after two hours an hour.

    An upgrade is over by then. A pass that waits cannot continue as new, and each attempt costs some ten events of its history.
    """
    return transient(attempt) if attempt < _ATTEMPTS_DURING_UPGRADE else timedelta(seconds=_AFTER_RETRIES_SECONDS[1])


def permanent(attempt: int) -> timedelta:
    """Give the wait before the next attempt at what only a new spec can fix: 1, 2, 4 ... 30 minutes."""
    return timedelta(minutes=min(2 ** min(attempt, 8), _PERMANENT_MINUTES_MAX))


def poll_timeout(polls: int) -> timedelta:
    """Give how long one attempt at a deletion may wait before it reports what remains: 10 s doubling to 10 min.

    The first report comes early, for users; later ones are rare, because each one is history.
    """
    shortest, longest = _POLL_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(polls, 8), longest))


def check_of_deletion(checks: int) -> timedelta:
    """Give the wait before the next check that a workflow which is being deleted still runs: 30 s doubling to 15 min."""
    shortest, longest = _DELETION_CHECK_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(checks, 8), longest))


def renderer(applies: int) -> timedelta:
    """Give the wait before an apply is made again that a worker of another version made: 15 s doubling to 30 min."""
    shortest, longest = _RENDERER_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(applies, 7), longest))


def repair(repairs: int) -> timedelta:
    """Give how long a difference must persist before it is repaired once more: 2 s at first, then 4 s doubling to 5 min.

    A controller that writes the same field would otherwise have the two of them write in turn for ever.
    """
    shortest, longest = _REPAIR_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(repairs, 8), longest))


def is_longest_repair(repairs: int) -> bool:
    """Tell whether no later repair waits longer than this one."""
    return repair(repairs) >= timedelta(seconds=_REPAIR_SECONDS[1])


def recent_repairs(repairs: int, repaired_at: str, now: datetime) -> int:
    """Count the repairs that followed one another, up to now: none if the last one was long ago."""
    return repairs if repaired_at and now - datetime.fromisoformat(repaired_at) <= DRIFT_MEMORY else 0
