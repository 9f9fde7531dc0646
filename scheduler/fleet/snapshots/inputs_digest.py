"""The digest of a decision's inputs.

The inputs are clusters, the ledger, the history of earlier decisions, the policy and
the requests. The time of a decision is not part of them, so two decisions with equal
knowledge have equal digests. The digest visits the whole fleet, so decisions do not
compute it. After the first call, unchanged objects are not read again.
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
    """Computes digests of one fleet as it changes.

    Views and entries are replaced when they change, so each object is read once.
    """

    def __init__(self) -> None:
        # Keyed by the id of the object. The object is stored so that no other object
        # gets that id.
        self._known: dict[int, tuple[Any, str]] = {}

    def of(self, fleet: Fleet, requests: Sequence[ScheduleRequest]) -> str:
        """Return the digest for the last of some requests, decided in order."""
        known: dict[int, tuple[Any, str]] = {}
        clusters = [
            self._digest(fleet.clusters[name].view, known)
            for name in sorted(fleet.clusters)
        ]
        replicas = [
            self._digest(entry, known)
            for entry in sorted(fleet.entries(), key=lambda entry: entry.uid)
        ]
        self._known = known
        return digest_of(
            [
                clusters,
                replicas,
                decision_history(fleet),
                to_wire(fleet.options),
                to_wire(tuple(requests)),
            ]
        )

    def _digest(
        self, item: ClusterView | LedgerEntry, known: dict[int, tuple[Any, str]]
    ) -> str:
        found = self._known.get(id(item)) or (item, digest_of(_tree(item)))
        known[id(item)] = found
        return found[1]


def _tree(item: ClusterView | LedgerEntry) -> Any:
    if isinstance(item, LedgerEntry):
        return to_wire(item)
    # Equal device sets have equal digests.
    return to_wire(
        replace(
            item,
            pools=tuple(
                replace(pool, device_set=DeviceSet(pool.device_set.digest, ()))
                for pool in item.pools
            ),
        )
    )
