"""Who upgrades now: turns in the order of requests, each with a lease that progress renews. Pure.

An upgrade that fails keeps its turn while its lease lasts: what breaks one cluster shall not go on to the next at once. A holder that makes
no progress until then goes to the end of the queue, if others wait; so nobody waits for ever for a cluster that nobody serves.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from api_types.digests import short_hash
from api_types.messages.delivery import SignalRequest, entity
from api_types.messages.signals import InferenceClusterSignals
from api_types.messages.upgrades import HOLDERS_SHOWN_MAX, UpgradeRequest, UpgradeTurn
from workflows.entity.registering.registrations import drop_ended, is_newest
from workflows.stack_upgrades.state import Request, UpgradesState

# A step has minutes. Within this an upgrade has completed one, or something is wrong with it.
LEASE = timedelta(minutes=30)


class Turns:
    """The queue. `next_number` numbers answers, `record` takes reason and message of what people should know."""

    def __init__(self, state: UpgradesState, next_number: Callable[[int], int], record: Callable[[str, str], None]) -> None:
        self.requests = dict(state.requests)
        self._known = dict(state.known)
        self._last_number = state.last_number
        self._next_number = next_number
        self._record = record

    # --- messages -------------------------------------------------------------------------------------------------------------------

    def request(self, message: UpgradeRequest, now: datetime) -> None:
        """Note what a cluster wants. Raises UnusableMessage for one more cluster than there is room for."""
        if not is_newest(self._known, message.cluster, message.uid, message.sequence):
            return
        self._last_number = max(self._last_number, message.answer)
        before = self.requests.get(message.cluster)
        if not message.wanted:
            self.drop(message.cluster)
        elif before and (before.uid, before.turn) == (message.uid, message.turn):
            since = now.isoformat() if before.since and before.progress != message.progress else before.since
            # One that asks again may not know the answer.
            told = before.told if message.holds == bool(before.since) else ""
            changed = {"at_once": message.at_once, "since": since, "progress": message.progress, "told": told}
            self.requests[message.cluster] = before.model_copy(update=changed)
        else:
            self.drop(message.cluster)
            since = now.isoformat() if message.holds else ""
            self.requests[message.cluster] = Request(
                uid=message.uid, turn=message.turn, at_once=message.at_once, since=since, progress=message.progress
            )

    def drop(self, cluster: str, uid: str = "") -> None:
        """Forget the request of a cluster that wants no turn any more, or does not run; with a `uid` only that of the cluster with it."""
        if uid and cluster in self.requests and self.requests[cluster].uid != uid:
            return
        self.requests.pop(cluster, None)
        drop_ended(self._known, self.requests)

    # --- decisions ------------------------------------------------------------------------------------------------------------------

    @property
    def holders(self) -> list[str]:
        """The clusters that upgrade now."""
        return [cluster for cluster, request in self.requests.items() if request.since]

    @property
    def waiting(self) -> list[str]:
        """The clusters that wait, the next one first."""
        return [cluster for cluster, request in self.requests.items() if not request.since]

    def advance(self, now: datetime) -> None:
        """End leases that are over, and give turns to those who are next. Of different limits the smallest holds."""
        for cluster in self.holders if self.waiting else []:
            if self._ends_at(cluster) <= now:
                self._record("TurnEnded", f"cluster {cluster} made no progress for {LEASE.seconds // 60} min: the next one upgrades")
                self.requests[cluster] = self.requests.pop(cluster).model_copy(update={"since": ""})
        limit = min((request.at_once for request in self.requests.values()), default=1)
        for cluster in self.waiting[: max(0, limit - len(self.holders))]:
            self.requests[cluster] = self.requests[cluster].model_copy(update={"since": now.isoformat()})
            self._record("TurnGranted", f"cluster {cluster} upgrades its stack")

    def next_end(self) -> datetime | None:
        """Give when the next lease ends while others wait."""
        return min(map(self._ends_at, self.holders), default=None) if self.waiting else None

    def _ends_at(self, cluster: str) -> datetime:
        return datetime.fromisoformat(self.requests[cluster].since) + LEASE

    def answers(self) -> dict[str, SignalRequest]:
        """Give what clusters have not been told yet, by cluster, first to those whose turn is over; it counts as told."""
        holders = self.holders
        found = dict[str, SignalRequest]()
        for cluster in [*self.waiting, *holders]:
            request = self.requests[cluster]
            granted = bool(request.since)
            shown = [] if granted else holders[:HOLDERS_SHOWN_MAX]
            said = short_hash([request.uid, request.turn, granted, shown])
            if said == request.told:
                continue
            self.requests[cluster] = request.model_copy(update={"told": said})
            self._last_number = self._next_number(self._last_number)
            answer = UpgradeTurn(uid=request.uid, turn=request.turn, sequence=self._last_number, granted=granted, holders=shown)
            found[cluster] = InferenceClusterSignals.UPGRADE_TURN.request(entity(InferenceClusterSignals, "", cluster), answer)
        return found

    def carried(self, state: UpgradesState) -> UpgradesState:
        """Give the state for the next run."""
        return state.model_copy(update={"requests": self.requests, "known": self._known, "last_number": self._last_number})
