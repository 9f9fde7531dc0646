"""Turns to upgrade, in the order of requests.

Each turn has a lease that progress renews. A failed upgrade keeps its turn until its
lease ends, so that the same failure does not hit the next cluster at once. A holder
without progress until then goes to the end of the queue, if others wait. So no cluster
waits indefinitely for a cluster that no worker serves. All functions are pure.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from api_types.digests import short_hash
from api_types.messages.delivery import SignalRequest, entity
from api_types.messages.signals import InferenceClusterSignals
from api_types.messages.upgrades import HOLDERS_SHOWN_MAX, UpgradeRequest, UpgradeTurn
from workflows.entity.registering.registrations import drop_ended, is_newest
from workflows.stack_upgrades.state import TurnRequest, UpgradesState

# A step takes minutes. An upgrade that completes no step within this time has a
# problem.
LEASE = timedelta(minutes=30)


class UpgradeTurns:
    """The queue of requests.

    `next_number` numbers answers. `record` records the reason and message of an event
    for users.
    """

    def __init__(
        self,
        state: UpgradesState,
        next_number: Callable[[int], int],
        record: Callable[[str, str], None],
    ) -> None:
        self.requests = dict(state.requests)
        self._known = dict(state.known)
        self._last_number = state.last_number
        self._next_number = next_number
        self._record = record

    # Messages

    def request(self, message: UpgradeRequest, now: datetime) -> None:
        """Record a cluster's request.

        Raises UnusableMessage if there is no room for another cluster.
        """
        if not is_newest(self._known, message.cluster, message.uid, message.sequence):
            return
        self._last_number = max(self._last_number, message.answer)
        before = self.requests.get(message.cluster)
        if not message.wanted:
            self.drop(message.cluster)
        elif before and (before.uid, before.turn) == (message.uid, message.turn):
            since = (
                now.isoformat()
                if before.since and before.progress != message.progress
                else before.since
            )
            # A cluster that repeats its request may not know the answer.
            told = before.told if message.holds == bool(before.since) else ""
            changed = {
                "at_once": message.at_once,
                "since": since,
                "progress": message.progress,
                "told": told,
            }
            self.requests[message.cluster] = before.model_copy(update=changed)
        else:
            self.drop(message.cluster)
            since = now.isoformat() if message.holds else ""
            self.requests[message.cluster] = TurnRequest(
                uid=message.uid,
                turn=message.turn,
                at_once=message.at_once,
                since=since,
                progress=message.progress,
            )

    def drop(self, cluster: str, uid: str = "") -> None:
        """Forget the request of a cluster.

        With a `uid`, forget it only if the cluster has this uid.
        """
        if uid and cluster in self.requests and self.requests[cluster].uid != uid:
            return
        self.requests.pop(cluster, None)
        drop_ended(self._known, self.requests)

    # Decisions

    @property
    def holders(self) -> list[str]:
        """Return the clusters that upgrade now."""
        return [cluster for cluster, request in self.requests.items() if request.since]

    @property
    def waiting(self) -> list[str]:
        """Return the clusters that wait, the next one first."""
        return [
            cluster for cluster, request in self.requests.items() if not request.since
        ]

    def advance(self, now: datetime) -> None:
        """End expired leases, and grant turns to the next clusters.

        The smallest of their limits applies.
        """
        for cluster in self.holders if self.waiting else []:
            if self._ends_at(cluster) <= now:
                self._record(
                    "TurnEnded",
                    f"cluster {cluster} made no progress for {LEASE.seconds // 60} min: "
                    "the next cluster upgrades",
                )
                self.requests[cluster] = self.requests.pop(cluster).model_copy(
                    update={"since": ""}
                )
        limit = min((request.at_once for request in self.requests.values()), default=1)
        for cluster in self.waiting[: max(0, limit - len(self.holders))]:
            self.requests[cluster] = self.requests[cluster].model_copy(
                update={"since": now.isoformat()}
            )
            self._record("TurnGranted", f"cluster {cluster} upgrades its stack")

    def next_end(self) -> datetime | None:
        """Return when the next lease ends while others wait."""
        return (
            min(map(self._ends_at, self.holders), default=None)
            if self.waiting
            else None
        )

    def _ends_at(self, cluster: str) -> datetime:
        return datetime.fromisoformat(self.requests[cluster].since) + LEASE

    def answers(self) -> dict[str, SignalRequest]:
        """Return new answers by cluster, first to clusters without a turn.

        They are recorded as sent.
        """
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
            answer = UpgradeTurn(
                uid=request.uid,
                turn=request.turn,
                sequence=self._last_number,
                granted=granted,
                holders=shown,
            )
            found[cluster] = InferenceClusterSignals.UPGRADE_TURN.request(
                entity(InferenceClusterSignals, "", cluster), answer
            )
        return found

    def carried(self, state: UpgradesState) -> UpgradesState:
        """Return the state for the next run."""
        return state.model_copy(
            update={
                "requests": self.requests,
                "known": self._known,
                "last_number": self._last_number,
            }
        )
