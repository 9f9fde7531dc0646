"""Which replicas of a cluster a preemption would take first, kept in order as replicas come and go.

A search for victims visits thousands of clusters, so a visit must not sort what has not changed since the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.fleet.ledger import Ledger
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import RELEASING


class VictimIndex:
    """The replicas of each cluster that are not releasing: the lowest priority first, of equal ones the youngest."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rows: dict[str, Sequence[LedgerEntry]] = {}
        self._read = ledger.changes.end

    def on(self, cluster: str) -> Sequence[LedgerEntry]:
        """Give the replicas of a cluster."""
        self._catch_up()
        rows = self._rows.get(cluster)
        if rows is None:
            rows = self._rows[cluster] = in_order(self._ledger, cluster)
        return rows

    def _catch_up(self) -> None:
        changes = self._ledger.changes
        if self._read == changes.end:
            return
        found = changes.since(self._read) if self._rows else ()
        if found is None:
            self._rows.clear()
        else:
            for pair in found:
                for entry in pair:
                    if entry is not None:
                        self._rows.pop(entry.cluster, None)
        self._read = changes.end


def in_order(ledger: Ledger, cluster: str) -> list[LedgerEntry]:
    """Give the replicas of a cluster that are not releasing, in the order of the index."""
    entries = [entry for entry in ledger.on_cluster(cluster).values() if entry.state != RELEASING]
    entries.sort(key=lambda entry: (entry.priority, -entry.since, entry.namespace, entry.name, entry.uid))
    return entries
