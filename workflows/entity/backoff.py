"""How long a workflow waits between attempts that it makes itself, on top of the retries inside one activity."""

from datetime import timedelta

_TRANSIENT_SECONDS = (2, 120)
_PERMANENT_MINUTES_MAX = 30
_POLL_SECONDS = (10, 600)


def transient(attempt: int) -> timedelta:
    """Give the wait before the next attempt at what may recover by itself: 2 s doubling to 2 min."""
    shortest, longest = _TRANSIENT_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(attempt, 8), longest))


def after_retries(attempt: int) -> timedelta:
    """Give the wait after an activity that was itself retried for seconds or minutes: 8 s doubling to 2 min."""
    return transient(attempt + 2)


def permanent(attempt: int) -> timedelta:
    """Give the wait before the next attempt at what only a new spec can fix: 1, 2, 4 ... 30 minutes."""
    return timedelta(minutes=min(2 ** min(attempt, 8), _PERMANENT_MINUTES_MAX))


def poll_timeout(polls: int) -> timedelta:
    """Give how long one attempt at a deletion may wait before it reports what remains: 10 s doubling to 10 min.

    The first report comes early, for users; later ones are rare, because each one is history.
    """
    shortest, longest = _POLL_SECONDS
    return timedelta(seconds=min(shortest * 2 ** min(polls, 8), longest))
