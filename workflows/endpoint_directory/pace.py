"""How soon one list of endpoints may follow another.

A rollout changes many endpoints, and a route follows a replica within two seconds. A timer of Temporal fires up to a second late, however
short it is: so a few changes, of which each may be two lists, are told without any wait, and only of many does one wait for the next.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

LISTS_MAX = 6
LISTS_WITHIN = timedelta(seconds=3)
# Of histories of before: the time between two lists.
_INTERVAL = timedelta(milliseconds=500)
_LONG_INTERVAL = timedelta(seconds=1)
_INTERVAL_PATCH = "two-lists-a-second"
_BURST_PATCH = "six-lists-in-three-seconds"


class Pace:
    """Allows so many lists in a time, and no more. It is forgotten with the run."""

    def __init__(self, patched: Callable[[str], bool]) -> None:
        self._patched = patched
        self._sent: deque[datetime] = deque(maxlen=LISTS_MAX)

    def sent(self, now: datetime) -> None:
        """Note that lists were sent, to one service or to several."""
        self._sent.append(now)

    def wait(self, now: datetime) -> timedelta:
        """Give how long the next list has to wait; nothing or less for one that may be sent."""
        if not self._sent:
            return timedelta()
        if self._patched(_BURST_PATCH):
            return self._sent[0] + LISTS_WITHIN - now if len(self._sent) == LISTS_MAX else timedelta()
        return self._sent[-1] + (_INTERVAL if self._patched(_INTERVAL_PATCH) else _LONG_INTERVAL) - now
