"""The minimum interval between lists of endpoints.

A rollout changes many endpoints, and a route has to follow a replica within two
seconds. A Temporal timer may fire up to a second late, however short it is. So a few
changes, each of up to two lists, are sent without a wait. Lists are delayed only after
many changes.
"""

from datetime import datetime, timedelta

# The number of lists in a burst. After a burst one list is allowed per interval, and
# each interval without a list adds one to the next burst.
LISTS_MAX = 6
INTERVAL = timedelta(milliseconds=500)


class ListPace:
    """Allows a burst of lists, and then one per interval.

    A new run starts with a full burst.
    """

    def __init__(self) -> None:
        self._last: datetime | None = None
        # The time at which a whole burst is allowed again.
        self._full_at: datetime | None = None

    def sent(self, now: datetime) -> None:
        """Record that lists were sent, to one or several services."""
        self._last = now
        self._full_at = (
            now if self._full_at is None else max(self._full_at, now)
        ) + INTERVAL

    def wait(self, now: datetime) -> timedelta:
        """Return how long the next list has to wait; zero or less if it may be sent."""
        if self._last is None or self._full_at is None:
            return timedelta()
        return self._full_at - (LISTS_MAX - 1) * INTERVAL - now
