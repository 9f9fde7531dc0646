"""How soon one list of endpoints may follow another.

A rollout changes many endpoints, and a route follows a replica within two seconds. A timer of Temporal fires up to a second late, however
short it is: so a few changes, of which each may be two lists, are told without any wait, and only of many does one wait for the next.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

# So many lists in a burst; after it one in each interval, and as long as none is sent the burst grows again by one in each.
LISTS_MAX = 6
INTERVAL = timedelta(milliseconds=500)
BURST_PATCH = "burst-of-six-lists"
# Of histories of before: the time between two lists.
_LONG_INTERVAL = timedelta(seconds=1)
_INTERVAL_PATCH = "two-lists-a-second"


class Pace:
    """Allows so many lists in a burst, and then one in each interval. It is forgotten with the run."""

    def __init__(self, patched: Callable[[str], bool]) -> None:
        self._patched = patched
        self._last: datetime | None = None
        # When a whole burst is allowed again.
        self._full_at: datetime | None = None

    def sent(self, now: datetime) -> None:
        """Note that lists were sent, to one service or to several."""
        self._last = now
        self._full_at = (now if self._full_at is None else max(self._full_at, now)) + INTERVAL

    def wait(self, now: datetime) -> timedelta:
        """Give how long the next list has to wait; nothing or less for one that may be sent."""
        if self._last is None or self._full_at is None:
            return timedelta()
        if self._patched(BURST_PATCH):
            return self._full_at - (LISTS_MAX - 1) * INTERVAL - now
        return self._last + (INTERVAL if self._patched(_INTERVAL_PATCH) else _LONG_INTERVAL) - now
