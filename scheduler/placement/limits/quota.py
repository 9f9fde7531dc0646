"""Quotas of namespaces, checked when a replica is placed or grows, not while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scheduler.cel.bounded_cache import remember
from scheduler.fleet.caches.quota_usage import (
    NOTHING,
    QuotaAmount,
    amount_of,
    concerns_cluster,
)
from scheduler.fleet.charged_nodes import leaves_for
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.nomination import NONE_GONE, AssumedGone
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.node_fitting import Limit
from scheduler.hardware.template import CompiledTemplate, member_pods
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView, LedgerEntry, PoolView
from scheduler.model.policy import Quota

# Nodes or devices of each engine, by the position of its pool.
_Units = tuple[Mapping[int, int], ...]
# Limit of cached values per decision: some quotas on a few hundred kinds of clusters.
_UNITS_MAX = 1_000


class QuotaGate:
    """The quotas of one deployment's namespace and their remaining room.

    The use of quotas follows from the ledger. Replicas that are releasing for this
    deployment do not count, because its placements take over their nodes.
    """

    def __init__(
        self, overlay: FleetOverlay, deployment: DeploymentView, priority: int
    ) -> None:
        self._overlay = overlay
        self._owner = (deployment.namespace, deployment.name)
        self.priority = priority
        self._quotas = [
            (n, quota)
            for n, quota in enumerate(overlay.options.quotas)
            if quota.namespace == deployment.namespace
        ]
        # Per quota index, the use by replicas that are releasing for this deployment,
        # as of a position in the ledger's log.
        self._leaving: dict[int, QuotaAmount] = {}
        self._read = -1
        self._units: dict[object, tuple[_Units, _Units]] = {}

    @property
    def limits(self) -> bool:
        """Return whether the namespace has any quota."""
        return bool(self._quotas)

    def refuses(
        self,
        info: ClusterInfo,
        engines: Sequence[EnginePlacement],
        gone: AssumedGone = NONE_GONE,
    ) -> str:
        """Return the quota that a placement would exceed, or "".

        `gone` are replicas of the cluster that are assumed gone.
        """
        return next(self._refusals(info, (), engines, gone), "")

    def refuses_growth(
        self,
        info: ClusterInfo,
        before: Sequence[EnginePlacement],
        after: Sequence[EnginePlacement],
    ) -> str:
        """Return the quota that a growing replica would exceed, or ""."""
        return next(self._refusals(info, before, after), "")

    def may_refuse(self, compiled: CompiledTemplate) -> bool:
        """Return whether a replica may exceed a quota on some cluster."""
        most = _most(compiled)
        for n, quota in self._quotas:
            used = self._usage(n).plus(most)
            is_over = (
                0 <= quota.max_nodes < used.nodes
                or 0 <= quota.max_devices < used.devices
            )
            if is_over or self._below_floor(quota):
                return True
        return False

    def on(
        self,
        info: ClusterInfo,
        compiled: CompiledTemplate,
        gone: AssumedGone = NONE_GONE,
    ) -> list[Limit]:
        """Return the limits of the quotas for engines on the pools of a cluster.

        `gone` are replicas that are assumed gone.
        """
        found = []
        for n, quota in self._quotas:
            if not concerns_cluster(quota, info):
                continue
            nodes, devices = self._units_of(n, info, compiled)
            if not any(nodes):
                continue
            used = self._usage(n, gone, info)
            if self._below_floor(quota):
                found.append(Limit(0, nodes))
            if quota.max_nodes >= 0:
                found.append(Limit(quota.max_nodes - used.nodes, nodes))
            if quota.max_devices >= 0:
                found.append(Limit(quota.max_devices - used.devices, devices))
        return found

    def _units_of(
        self, n: int, info: ClusterInfo, compiled: CompiledTemplate
    ) -> tuple[_Units, _Units]:
        """Return the nodes and devices of a quota per engine, by pool position.

        They are the same on all clusters with equal pools. A decision may read them for
        thousands of clusters, or often for one.
        """
        key = (
            n,
            compiled.digest,
            info.layout.key,
            tuple(pool.class_name for pool in info.pools),
        )
        known = self._units.get(key)
        if known is None:
            quota = self._overlay.options.quotas[n]
            amounts: list[dict[int, QuotaAmount]] = []
            for i, fit in enumerate(compiled.on(info.layout).engines):
                placed = {p: _placed(compiled, i, info.pools[p]) for p in fit.positions}
                amounts.append(
                    {p: amount_of(quota, info, (e,)) for p, e in placed.items()}
                )
            nodes = tuple(
                {p: amount.nodes for p, amount in of_engine.items() if amount.nodes}
                for of_engine in amounts
            )
            devices = tuple(
                {p: amount.devices for p, amount in of_engine.items() if amount.devices}
                for of_engine in amounts
            )
            known = remember(self._units, key, (nodes, devices), _UNITS_MAX)
        return known

    def _below_floor(self, quota: Quota) -> bool:
        return quota.priority_floor is not None and self.priority < quota.priority_floor

    def _refusals(
        self,
        info: ClusterInfo,
        before: Sequence[EnginePlacement],
        after: Sequence[EnginePlacement],
        gone: AssumedGone = NONE_GONE,
    ) -> Iterator[str]:
        for n, quota in self._quotas:
            more = amount_of(quota, info, after).minus(amount_of(quota, info, before))
            if more.nodes <= 0 and more.devices <= 0:
                continue
            used = self._usage(n, gone, info)
            if self._below_floor(quota):
                yield f"priority {self.priority} is below {quota.priority_floor}"
            if 0 <= quota.max_nodes < used.nodes + more.nodes and more.nodes > 0:
                yield (
                    f"used {used.nodes} of {quota.max_nodes} nodes, "
                    f"needs {more.nodes} more"
                )
            devices = used.devices + more.devices
            if 0 <= quota.max_devices < devices and more.devices > 0:
                yield (
                    f"used {used.devices} of {quota.max_devices} devices, "
                    f"needs {more.devices} more"
                )

    def _usage(
        self, n: int, gone: AssumedGone = NONE_GONE, where: ClusterInfo | None = None
    ) -> QuotaAmount:
        """Return the use of a quota from the perspective of this deployment.

        `gone` are replicas on the cluster `where`.
        """
        overlay = self._overlay
        quota = overlay.options.quotas[n]
        self._follow_leaving()
        used = overlay.quota_usage.used(n).minus(self._leaving.get(n, NOTHING))
        for entry in gone.entries:
            if where is not None and entry.namespace == quota.namespace:
                used = used.minus(amount_of(quota, where, entry.charged))
        return used

    def _follow_leaving(self) -> None:
        """Follow replicas that begin or end releasing for this deployment."""
        changes = self._overlay.ledger.changes
        if self._read == changes.end:
            return
        found = changes.since(self._read) if self._read >= 0 else None
        if found is None:
            self._leaving.clear()
            found = (
                (None, entry) for entry in self._overlay.ledger.leaving_for(self._owner)
            )
        for before, after in found:
            self._count_leaving(before, -1)
            self._count_leaving(after, 1)
        self._read = changes.end

    def _count_leaving(self, entry: LedgerEntry | None, sign: int) -> None:
        if entry is None or not leaves_for(entry, self._owner):
            return
        info = self._overlay.clusters.get(entry.cluster)
        if info is None:
            return
        for n, quota in self._quotas:
            if entry.namespace == quota.namespace:
                amount = amount_of(quota, info, entry.charged)
                if sign < 0:
                    amount = NOTHING.minus(amount)
                self._leaving[n] = self._leaving.get(n, NOTHING).plus(amount)


def _most(compiled: CompiledTemplate) -> QuotaAmount:
    """Return the amount of a replica under a quota that counts every pool."""
    most = NOTHING
    for engine in compiled.engines:
        for member in engine.members:
            pods = member_pods(member) * engine.copies
            devices = sum(request.count for request in member.requests)
            most = most.plus(QuotaAmount(pods, pods * devices))
    return most


def _placed(compiled: CompiledTemplate, i: int, pool: PoolView) -> EnginePlacement:
    return compiled.place(i, pool.name, pool.device_set)
