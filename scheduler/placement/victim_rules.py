"""Which replicas a deployment may preempt.

Spared are its own replicas, replicas of the same or a higher priority, replicas of
deployments that were preempted recently, and replicas that `minAvailable` needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.model import reasons
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.cluster_victims import limited, owner_of
from scheduler.placement.placer import ReplicaPlacer

# Reason why the deployment's own replicas are not preempted.
_OWN = "own"


class VictimRules:
    """Decides for one decision which replicas may be preempted."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._overlay = placer.overlay
        self._priority = placer.priority
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        self._preempted: set[Owner] = set()
        # Why no replica of a deployment may be preempted, or "".
        self._barred: dict[Owner, str] = {}

    def bar(self, owners: set[Owner]) -> None:
        """Do not preempt further replicas of these deployments."""
        self._preempted = owners
        self._barred.clear()

    def decide_again(self, owner: Owner) -> None:
        """Decide about a deployment again, because its replicas changed."""
        self._barred.pop(owner, None)

    def preemptable(self, info: ClusterInfo) -> list[LedgerEntry]:
        """Return the preemptable replicas of a cluster, the lowest priority first."""
        found = []
        for entry in self._overlay.replicas_by_priority(info.name):
            if entry.priority >= self._priority:
                break
            barred = self._barred.get((entry.namespace, entry.deployment))
            if barred is None:
                barred = self._why_barred(entry)
            if not barred:
                found.append(entry)
        return found

    def permit(self, victims: Sequence[LedgerEntry]) -> bool:
        """Return whether all these replicas may be preempted together."""
        if any(self._why_barred(entry) for entry in victims):
            return False
        return len(limited(victims, self.spare)) == len(victims)

    def spare(self, entry: LedgerEntry) -> int:
        """Return how many replicas the entry's deployment can lose."""
        owned = self._overlay.ledger.owned(entry.namespace, entry.deployment)
        if not entry.min_available:
            return len(owned)
        return (
            sum(e.state != reasons.RELEASING for e in owned.values())
            - entry.min_available
        )

    def count_barred(
        self, clusters: Iterable[ClusterInfo], most: int
    ) -> tuple[Counter[str], bool]:
        """Count the replicas that may not be preempted, by the reason.

        Return False in addition if the clusters have more than `most` replicas. Then
        some are not counted.
        """
        counted: Counter[str] = Counter()
        read = 0
        for info in clusters:
            entries = self._overlay.replicas_by_priority(info.name)
            read += len(entries)
            for entry in entries:
                if entry.priority >= self._priority:
                    reason = "priority"
                else:
                    reason = self._why_barred(entry)
                if reason and owner_of(entry) != self._owner:
                    counted[reason] += 1
            if read > most:
                return counted, False
        return counted, True

    def _why_barred(self, entry: LedgerEntry) -> str:
        """Return why no replica of an entry's deployment may be preempted, or ""."""
        owner = owner_of(entry)
        known = self._barred.get(owner)
        if known is None:
            known = self._barred[owner] = self._find_why_barred(owner, entry)
        return known

    def _find_why_barred(self, owner: Owner, entry: LedgerEntry) -> str:
        if owner == self._owner:
            return _OWN
        last = max(
            self._overlay.fleet.preempted_at.get(owner, -1),
            self._overlay.preempted_at.get(owner, -1),
        )
        cooldown = self._overlay.options.preemption_cooldown_seconds * 1000
        last = self._overlay.now if owner in self._preempted else last
        if last >= 0 and self._overlay.now - last < cooldown:
            return "cooldown"
        return "minAvailable" if self.spare(entry) < 1 else ""
