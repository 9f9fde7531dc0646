"""The number of charged nodes per pool, without the replicas that hold them (`ledger`).

Charges are stored per (cluster, pool) by name. A pool that disappears charges nothing,
and its charges count again when it is published again. A deployment may place a new
replica on nodes that one of its releasing replicas still holds. The new entry records
these nodes (`reuse`), and both entries are charged once for them until the old one is
removed. For other deployments these nodes are not free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scheduler.hardware.template import charges
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import RELEASING

# Namespace and name of a deployment, and a cluster.
Group = tuple[str, str, str]
_NOTHING: Mapping[str, int] = {}


class ReleasingNodes(NamedTuple):
    """Nodes of one pool that a deployment's releasing replicas hold.

    `reused` is the number of them that new replicas already reuse.
    """

    nodes: int
    reused: int

    @property
    def reusable(self) -> int:
        """Return the nodes that can still be reused."""
        return max(0, self.nodes - self.reused)


NO_RELEASING_NODES = ReleasingNodes(0, 0)


class ChargedNodes:
    """Nodes charged per cluster and pool.

    A fork reads through to its parent and keeps its own changes.

    Attributes:
        freed: clusters where nodes were freed, in order; a cache of full clusters
            remembers its position in it.
        touched: clusters whose charges were changed here and not in the parent.

    """

    __slots__ = ("_parent", "_releasing", "_used", "freed", "touched")

    def __init__(self, parent: ChargedNodes | None = None) -> None:
        self._parent = parent
        self._used: dict[str, dict[str, int]] = {}
        # Only groups that have releasing nodes.
        self._releasing: dict[Group, dict[str, ReleasingNodes]] = {}
        self.freed: list[str] = []
        self.touched: set[str] = set()

    def used(self, cluster: str) -> Mapping[str, int]:
        """Return the nodes charged per pool of a cluster."""
        if cluster in self._used:
            return self._used[cluster]
        return self._parent.used(cluster) if self._parent else _NOTHING

    def releasing(
        self, namespace: str, deployment: str, cluster: str
    ) -> Mapping[str, ReleasingNodes]:
        """Return per pool the nodes that a deployment's releasing replicas hold."""
        group = (namespace, deployment, cluster)
        if group in self._releasing:
            return self._releasing[group]
        return (
            self._parent.releasing(namespace, deployment, cluster)
            if self._parent
            else {}
        )

    def charge(self, entry: LedgerEntry, sign: int) -> None:
        """Add or remove the charges of an entry; reused nodes are charged once.

        Args:
            entry: an entry of the ledger; for a removal, in the state in which it was
                charged.
            sign: 1 to add, -1 to remove.

        """
        group = reusing_group(entry)
        used = self._own_used(entry.cluster)
        is_releasing = entry.state == RELEASING
        freed = False
        for pool, nodes in charges(entry.charged).items():
            change = sign * nodes
            if is_releasing:
                change = self._shift_releasing(group, pool, sign * nodes, 0)
            freed = freed or change < 0
            _add(used, pool, change)
        for pool, nodes in entry.reuse:
            change = self._shift_releasing(group, pool, 0, sign * nodes)
            freed = freed or change < 0
            _add(used, pool, change)
        if freed:
            self.freed.append(entry.cluster)

    def differences(self, other: ChargedNodes) -> list[str]:
        """Return one sentence per pool whose charges differ."""
        found = []
        for cluster in sorted({*self._used, *other._used}):
            own, recounted = _nonzero(self.used(cluster)), _nonzero(other.used(cluster))
            found += [
                f"{cluster}/{pool}: {own.get(pool, 0)} nodes charged, "
                f"{recounted.get(pool, 0)} by recount"
                for pool in sorted({*own, *recounted})
                if own.get(pool, 0) != recounted.get(pool, 0)
            ]
        return found

    def _shift_releasing(
        self, group: Group, pool: str, releasing: int, reused: int
    ) -> int:
        own = self._releasing.get(group)
        if own is None:
            own = self._releasing[group] = (
                dict(self._parent.releasing(*group)) if self._parent else {}
            )
        old = own.get(pool, NO_RELEASING_NODES)
        new = ReleasingNodes(old.nodes + releasing, old.reused + reused)
        if new == NO_RELEASING_NODES:
            own.pop(pool, None)
            if not own and not self._parent:
                del self._releasing[group]
        else:
            own[pool] = new
        return new.reusable - old.reusable

    def _own_used(self, cluster: str) -> dict[str, int]:
        own = self._used.get(cluster)
        if own is None:
            own = self._used[cluster] = (
                dict(self._parent.used(cluster)) if self._parent else {}
            )
            self.touched.add(cluster)
        return own


def reusing_group(entry: LedgerEntry) -> Group:
    """Return the deployment that may reuse an entry's nodes while it is releasing.

    It is the entry's own deployment, or the deployment for which it was preempted.
    """
    namespace, deployment = entry.nominated_for or (entry.namespace, entry.deployment)
    return (namespace, deployment, entry.cluster)


def leaves_for(entry: LedgerEntry, owner: Owner) -> bool:
    """Return whether a replica is releasing and a deployment may reuse its nodes."""
    return (
        entry.state == RELEASING
        and (entry.nominated_for or (entry.namespace, entry.deployment)) == owner
    )


def charge_key(entry: LedgerEntry) -> tuple[object, ...]:
    """Return the values that the charges and the indices of an entry depend on."""
    return (
        entry.cluster,
        entry.name,
        entry.state == RELEASING,
        entry.reuse,
        entry.charged,
        entry.nominated_for,
    )


def _add(used: dict[str, int], pool: str, change: int) -> None:
    total = used.get(pool, 0) + change
    if total:
        used[pool] = total
    else:
        used.pop(pool, None)


def _nonzero(used: Mapping[str, int]) -> dict[str, int]:
    return {pool: nodes for pool, nodes in used.items() if nodes}
