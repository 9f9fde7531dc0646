"""The charged devices of clusters, without the releasing replicas of one deployment.

The deployment may reuse these devices. A decision reads the loads of every cluster that
it tries, and a large preemption leaves thousands of replicas releasing. So each cluster
is counted once, and the ledger's changes are applied afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.fleet.charged_nodes import leaves_for
from scheduler.fleet.ledger import Ledger
from scheduler.hardware.charged_devices import ClusterLoad
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry, PoolView


class LoadsBeside:
    def __init__(self, ledger: Ledger, owner: Owner) -> None:
        self._ledger = ledger
        self._owner = owner
        self._loads: dict[str, ClusterLoad] = {}
        self._read = ledger.changes.end

    def on(self, cluster: str, pools: Sequence[PoolView]) -> ClusterLoad:
        """Return the load of a cluster's published pools; callers must not change it."""
        self._catch_up()
        known = self._loads.get(cluster)
        if known is None or known.pools is not pools:
            known = self._loads[cluster] = self._ledger.load(cluster, pools).copy()
            for entry in self._ledger.leaving_on(self._owner, cluster):
                known.charge(entry, -1)
        return known

    def leaves(self, entry: LedgerEntry) -> bool:
        """Return whether a replica is releasing for the deployment."""
        return leaves_for(entry, self._owner)

    def _catch_up(self) -> None:
        changes = self._ledger.changes
        if self._read == changes.end:
            return
        found = changes.since(self._read)
        if found is None:
            self._loads.clear()
        for before, after in found or ():
            for entry, sign in ((before, -1), (after, 1)):
                if (
                    entry is not None
                    and not self.leaves(entry)
                    and entry.cluster in self._loads
                ):
                    self._loads[entry.cluster].charge(entry, sign)
        self._read = changes.end
