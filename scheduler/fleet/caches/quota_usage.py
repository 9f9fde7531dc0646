"""The use of quotas by namespaces, counted as replicas come and go.

A quota applies to pools, so a replica's use depends on its cluster as well. The cache
keeps the part of each cluster and recounts it when the cluster changes. An overlay
starts with the totals of its fleet and follows the changes of its own ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler.cel import SelectorError, compile_selector
from scheduler.cel.bounded_cache import remember
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.ledger import Ledger
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import LedgerEntry, PoolView
from scheduler.model.policy import Quota


class QuotaAmount(NamedTuple):
    """The use of a quota."""

    nodes: int = 0
    devices: int = 0

    def plus(self, other: QuotaAmount) -> QuotaAmount:
        return QuotaAmount(self.nodes + other.nodes, self.devices + other.devices)

    def minus(self, other: QuotaAmount) -> QuotaAmount:
        return QuotaAmount(self.nodes - other.nodes, self.devices - other.devices)


NOTHING = QuotaAmount()


def amount_of(
    quota: Quota, info: ClusterInfo, engines: Sequence[EnginePlacement]
) -> QuotaAmount:
    """Count the nodes and claimed devices of engines on the pools of a quota."""
    if not concerns_cluster(quota, info):
        return NOTHING
    nodes = devices = 0
    for engine in engines:
        for member in engine.members:
            p = info.positions.get(member.pool)
            if p is None or not member.requests or not _concerns(quota, info.pools[p]):
                continue
            pods = member.pods * engine.copies
            nodes += pods
            devices += pods * sum(request.count for request in member.requests)
    return QuotaAmount(nodes, devices)


def concerns_cluster(quota: Quota, info: ClusterInfo) -> bool:
    """Return whether a quota applies to any pool of a cluster, by the cluster's labels."""
    return all(
        info.view.labels.get(key) == value for key, value in quota.match_labels.items()
    )


def _concerns(quota: Quota, pool: PoolView) -> bool:
    if quota.class_name and quota.class_name != pool.class_name:
        return False
    if not quota.device_selector:
        return True
    key = (quota.device_selector, pool.device_set.digest)
    known = _selected.get(key)
    return (
        remember(_selected, key, _selects(quota.device_selector, pool), _SELECTED_MAX)
        if known is None
        else known
    )


def _selects(text: str, pool: PoolView) -> bool:
    try:
        selector = compile_selector(text)
    except SelectorError:
        return True  # a quota with an invalid selector applies to every pool
    return any(selector.match(entry).matched for entry in pool.device_set.entries)


# Whether a quota's selector matches devices of a set, by its text and the set's digest.
_selected: dict[tuple[str, str], bool] = {}
_SELECTED_MAX = 10_000


class QuotaUsage:
    """The totals of all quotas of a fleet, by their index in its policy.

    `clusters` and `ledger` belong to the fleet or to an overlay. For an overlay, `base`
    has the initial totals.
    """

    def __init__(
        self,
        clusters: Mapping[str, ClusterInfo],
        ledger: Ledger,
        base: QuotaUsage | None = None,
    ) -> None:
        self._clusters = clusters
        self._ledger = ledger
        self._quotas: tuple[Quota, ...] = ()
        self._totals: list[QuotaAmount] = []
        if base is not None:
            self._quotas = base._quotas  # noqa: SLF001  # same class
            self._totals = list(base._caught_up())  # noqa: SLF001  # same class
        self._by_namespace = _by_namespace(self._quotas)
        # Per cluster parts, kept for a fleet only: an overlay's clusters do not change.
        self._parts: dict[str, list[QuotaAmount]] | None = None if base else {}
        self._read = ledger.changes.end

    def set_quotas(self, quotas: tuple[Quota, ...]) -> None:
        """Replace the quotas and recount."""
        self._quotas = quotas
        self._by_namespace = _by_namespace(quotas)
        self._recount()

    def used(self, n: int) -> QuotaAmount:
        """Return the use of a quota by all replicas of its namespace in the ledger."""
        return self._caught_up()[n]

    def recount_cluster(self, name: str) -> None:
        """Recount the replicas of one cluster, because its labels or pools changed."""
        if not self._quotas or self._parts is None:
            return
        self._caught_up()
        old = self._parts.pop(name, None)
        for n, amount in enumerate(old or ()):
            self._totals[n] = self._totals[n].minus(amount)
        for entry in self._ledger.on_cluster(name).values():
            self._charge(entry, 1)

    def differences(self, other: QuotaUsage) -> list[str]:
        """Return one sentence per difference from other totals."""
        rows = zip(self._quotas, self._caught_up(), other._caught_up(), strict=True)
        return [
            f"quota {n} of namespace {quota.namespace}: "
            f"{own} counted, {recounted} by recount"
            for n, (quota, own, recounted) in enumerate(rows)
            if own != recounted
        ]

    def _caught_up(self) -> list[QuotaAmount]:
        changes = self._ledger.changes
        if self._quotas and self._read != changes.end:
            found = changes.since(self._read)
            if found is None:
                self._recount()
            else:
                for before, after in found:
                    if (
                        before
                        and after
                        and before.charged is after.charged
                        and before.cluster == after.cluster
                    ):
                        continue
                    if before is not None:
                        self._charge(before, -1)
                    if after is not None:
                        self._charge(after, 1)
        self._read = changes.end
        return self._totals

    def _recount(self) -> None:
        self._totals = [NOTHING] * len(self._quotas)
        if self._parts is not None:
            self._parts = {}
        for entry in self._ledger.entries() if self._quotas else ():
            self._charge(entry, 1)
        self._read = self._ledger.changes.end

    def _charge(self, entry: LedgerEntry, sign: int) -> None:
        numbers = self._by_namespace.get(entry.namespace)
        info = self._clusters.get(entry.cluster) if numbers else None
        if numbers is None or info is None:
            return
        for n in numbers:
            amount = amount_of(self._quotas[n], info, entry.charged)
            if amount == NOTHING:
                continue
            if sign < 0:
                amount = NOTHING.minus(amount)
            self._totals[n] = self._totals[n].plus(amount)
            if self._parts is not None:
                parts = self._parts.setdefault(
                    entry.cluster, [NOTHING] * len(self._quotas)
                )
                parts[n] = parts[n].plus(amount)


def _by_namespace(quotas: Sequence[Quota]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for n, quota in enumerate(quotas):
        found.setdefault(quota.namespace, []).append(n)
    return found
