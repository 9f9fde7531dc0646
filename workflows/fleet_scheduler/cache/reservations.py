"""Placed replicas that have not started, and the uids of released replicas."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from scheduler import Fleet, LedgerEntry

# The number of released replicas that are remembered. Late messages arrive within
# seconds, and fewer replicas than this end in that time.
RELEASED_KEPT = 5_000

# A deployment that does not answer is queried at growing intervals, up to this number
# of doublings.
_DOUBLINGS_MAX = 5


class Asked(NamedTuple):
    """The number of queries about a reservation, and the time of the next one in ms."""

    times: int
    due: int


class Reservations:
    """Placed replicas that have not started, and released replicas.

    `unbound` replicas are placed, and not reported as started. Some were released
    meanwhile. `released` replicas are freed, the newest last.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.unbound: dict[str, None] = {}
        self.released: dict[str, None] = {}
        self._asked: dict[str, Asked] = {}

    def entry(self, uid: str) -> LedgerEntry | None:
        """Return a replica that was not reported as started; None for all others."""
        return self._fleet.replica(uid) if uid in self.unbound else None

    def reserve(self, uid: str) -> None:
        self.unbound[uid] = None
        self.released.pop(uid, None)

    def bind(self, uid: str) -> None:
        """Record that a replica was started."""
        self.unbound.pop(uid, None)
        self._asked.pop(uid, None)
        self.released.pop(uid, None)

    def release(self, uid: str) -> None:
        """Record that the nodes of a replica are free."""
        self.unbound.pop(uid, None)
        self._asked.pop(uid, None)
        self.released.pop(uid, None)
        self.released[uid] = None
        while len(self.released) > RELEASED_KEPT:
            del self.released[next(iter(self.released))]

    # Queries about unused reservations

    def expired(self, now: int) -> list[LedgerEntry]:
        """Return the overdue replicas whose deployments are due for a query.

        The oldest comes first.
        """
        waiting = [entry for uid in self.unbound if (entry := self.entry(uid))]
        return sorted(
            (entry for entry in waiting if self._due(entry) <= now),
            key=lambda entry: (entry.since, entry.uid),
        )

    def asked(self, uids: Iterable[str], now: int) -> None:
        """Record that the deployments of these replicas are queried now."""
        for uid in uids:
            count = self._asked[uid].times if uid in self._asked else 0
            self._asked[uid] = Asked(
                count + 1, now + self._time_to_live() * 2 ** min(count, _DOUBLINGS_MAX)
            )

    def delay(self, now: int) -> timedelta | None:
        """Return the time until the next query; None if nothing is unbound."""
        due = [self._due(entry) for uid in self.unbound if (entry := self.entry(uid))]
        return timedelta(milliseconds=max(0, min(due) - now)) if due else None

    def _due(self, entry: LedgerEntry) -> int:
        asked = self._asked.get(entry.uid)
        return asked.due if asked else entry.since + self._time_to_live()

    def _time_to_live(self) -> int:
        return int(self._fleet.options.reservation_ttl_seconds * 1000)

    # From run to run

    def wire(self) -> dict[str, Any]:
        """Return the state as a JSON tree."""
        return {
            "unbound": list(self.unbound),
            "released": list(self.released),
            "asked": dict(self._asked),
        }

    def load(self, tree: Mapping[str, Any]) -> None:
        """Load the state that `wire` returned."""
        self.unbound = dict.fromkeys(tree.get("unbound", ()))
        self.released = dict.fromkeys(tree.get("released", ()))
        self._asked = {
            uid: Asked(*asked) for uid, asked in tree.get("asked", {}).items()
        }
