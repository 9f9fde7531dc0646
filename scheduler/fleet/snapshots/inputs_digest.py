"""The digest of what a decision was made from: clusters, the ledger, what earlier decisions left behind, the policy, the requests.

The time of a decision is not part of it, so two decisions on the same knowledge have the same digest. It visits the whole fleet and is not
for the path of a decision; of the second one on, what did not change is not read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots.decision_state import decision_history
from scheduler.model.digests import digest_of
from scheduler.model.inputs import ClusterView, DeviceSet, LedgerEntry, ScheduleRequest
from scheduler.model.wire import to_wire


class InputsDigest:
    """Gives digests over one fleet as it changes. Views and entries are replaced when they change, so each is read once."""

    def __init__(self) -> None:
        # By the id of the object, which is kept so that no other one gets that id.
        self._known: dict[int, tuple[Any, str]] = {}

    def of(self, fleet: Fleet, requests: Sequence[ScheduleRequest]) -> str:
        """Give the digest for the last of some requests that are decided in this order."""
        known: dict[int, tuple[Any, str]] = {}
        clusters = [self._digest(fleet.clusters[name].view, known) for name in sorted(fleet.clusters)]
        replicas = [self._digest(entry, known) for entry in sorted(fleet.entries(), key=lambda entry: entry.uid)]
        self._known = known
        return digest_of([clusters, replicas, decision_history(fleet), to_wire(fleet.options), to_wire(tuple(requests))])

    def _digest(self, item: ClusterView | LedgerEntry, known: dict[int, tuple[Any, str]]) -> str:
        found = self._known.get(id(item)) or (item, digest_of(_tree(item)))
        known[id(item)] = found
        return found[1]


def _tree(item: ClusterView | LedgerEntry) -> Any:
    if isinstance(item, LedgerEntry):
        return to_wire(item)
    # Equal device sets have equal digests.
    return to_wire(replace(item, pools=tuple(replace(pool, device_set=DeviceSet(pool.device_set.digest, ())) for pool in item.pools)))
