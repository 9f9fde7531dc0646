"""A private view of the fleet for one batch: the fleet plus the batch's own charges.

Through the overlay, the decisions of a batch see each other. Discarding the overlay
undoes them. Only the caches of the fleet change (ranks, clusters known to be full).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.fleet.caches.loads_beside import LoadsBeside
from scheduler.fleet.caches.quota_usage import QuotaUsage
from scheduler.fleet.caches.victim_index import Levels, in_order, moved
from scheduler.fleet.capacity import observed_limit
from scheduler.fleet.charged_nodes import NO_RELEASING_NODES
from scheduler.fleet.cluster_index import (
    NO_CLUSTERS,
    ClusterIndex,
    ClusterInfo,
    ClusterSet,
)
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.ledger import Ledger
from scheduler.fleet.queue_reservations import QueueReservation
from scheduler.hardware.template import CompiledTemplate
from scheduler.model.identity import Owner, RefusedPool
from scheduler.model.inputs import LedgerEntry
from scheduler.model.policy import SchedulerOptions
from scheduler.model.rules import PlacementRules


class FleetOverlay:
    """A fleet with changes that only the holder of the overlay sees."""

    def __init__(
        self, fleet: Fleet, now: int, options: SchedulerOptions | None = None
    ) -> None:
        fleet.index.refresh()
        fleet.ledger.changes.trim()
        fleet.index.changes.trim()
        self.fleet = fleet
        self.now = now
        self.options = options or fleet.options
        self.rules = PlacementRules.of(self.options)
        self.index: ClusterIndex = fleet.index
        self.ledger: Ledger = fleet.ledger.fork()
        self.quota_usage = QuotaUsage(
            fleet.index.clusters, self.ledger, fleet.quota_usage
        )
        self.preempted_at: dict[Owner, int] = {}
        self.refused: dict[RefusedPool, int] = dict(fleet.refused)
        self.unfinished_searches: dict[Owner, int] = dict(fleet.unfinished_searches)
        self.ended_searches: dict[Owner, int] = dict(fleet.ended_searches)
        self.queue_reservations: dict[Owner, QueueReservation] = (
            dict(fleet.queue_reservations) if self.rules.reserve_for_queue else {}
        )
        self._loads_beside: dict[Owner, LoadsBeside] = {}
        # Pools of each queue reservation, computed on first use.
        self.reserved_pools: dict[Owner, object] = {}
        # Work of the matched selectors. Each template is counted once.
        self.work = 0
        self._worked: set[str] = set()
        self._full: dict[str, ClusterSet] = {}
        self._freed_read = 0
        # Clusters where this overlay has freed nodes. A cluster that is full in the
        # fleet may not be full here.
        self._freed = NO_CLUSTERS

    def fork(self) -> FleetOverlay:
        """Return an overlay that starts equal to this one and changes independently."""
        other = FleetOverlay(self.fleet, self.now, self.options)
        other.ledger = self.ledger.fork()
        other.quota_usage = QuotaUsage(
            self.index.clusters, other.ledger, self.quota_usage
        )
        other.ledger.touched.update(self.ledger.touched)
        other.preempted_at = dict(self.preempted_at)
        other.queue_reservations = dict(self.queue_reservations)
        other.refused = dict(self.refused)
        other.unfinished_searches = dict(self.unfinished_searches)
        other.ended_searches = dict(self.ended_searches)
        self._catch_up()
        other._full = dict(self._full)
        other._freed = self._freed
        return other

    @property
    def clusters(self) -> Mapping[str, ClusterInfo]:
        return self.index.clusters

    def free(self, info: ClusterInfo) -> list[int]:
        """Return the number of free nodes in each pool of a cluster.

        The number is negative if more nodes are charged than exist.
        """
        used = self.ledger.used(info.name)
        free = list(info.nodes)
        if used:
            for p, pool in enumerate(info.pools):
                free[p] -= used.get(pool.name, 0)
        if info.observed:
            for p, pool in enumerate(info.pools):
                limit = observed_limit(
                    pool, used.get(pool.name, 0), self.now, self.options
                )
                free[p] = free[p] if limit is None else min(free[p], limit)
        return free

    def reusable(
        self, info: ClusterInfo, namespace: str, deployment: str
    ) -> list[int] | None:
        """Return the nodes per pool that a deployment's new replicas may still reuse.

        Releasing replicas of the deployment hold these nodes. Return None if there are
        no such replicas.
        """
        releasing = self.ledger.releasing(namespace, deployment, info.name)
        if not releasing:
            return None
        held = [releasing.get(pool.name, NO_RELEASING_NODES) for pool in info.pools]
        return [releasing_nodes.reusable for releasing_nodes in held]

    def loads_beside(self, owner: Owner) -> LoadsBeside:
        """Return the device loads of clusters, without an owner's releasing replicas."""
        known = self._loads_beside.get(owner)
        if known is None:
            known = self._loads_beside[owner] = LoadsBeside(self.ledger, owner)
        return known

    def replicas_by_priority(self, cluster: str) -> Sequence[LedgerEntry]:
        """Return the replicas of a cluster that are not releasing.

        They are sorted by priority, the lowest first, and within a priority the
        youngest first.
        """
        if self.ledger.differs_on(cluster, self.fleet.ledger):
            return in_order(self.ledger, cluster)
        return self.fleet.victims.on(cluster)

    def lowest_priorities(self) -> Levels:
        """Return the clusters by the lowest priority of a replica there."""
        changed = self.ledger.changed_clusters(self.fleet.ledger)
        levels = self.fleet.victims.levels()
        if not changed:
            return levels
        rows = ((name, in_order(self.ledger, name)) for name in changed)
        return moved(levels, self.index, rows)

    def charge_work(self, compiled: CompiledTemplate, work: int) -> None:
        """Count the work of a template's selectors once.

        After the first request the matches are cached and cost nothing.
        """
        if compiled.digest not in self._worked:
            self._worked.add(compiled.digest)
            self.work += work

    def matching(self, compiled: CompiledTemplate) -> ClusterSet:
        """Return the clusters whose pools fit a template, regardless of node counts."""
        return self.blocked(compiled).get(-1, NO_CLUSTERS)

    def blocked(self, compiled: CompiledTemplate) -> Mapping[int, ClusterSet]:
        """Return the clusters by the index of the first engine without a pool.

        The index is -1 if every engine has a pool.
        """
        return self.fleet.full_clusters.blocked(compiled)

    def full(self, compiled: CompiledTemplate) -> ClusterSet:
        """Return the clusters known to have no free capacity for a template."""
        self._catch_up()
        return ClusterSet(
            (self.fleet.full_clusters.full(compiled) & ~self._freed)
            | self._full.get(compiled.digest, 0)
        )

    def _catch_up(self) -> None:
        freed = self.ledger.freed
        if self._freed_read < len(freed):
            clusters = self.index.named(freed[self._freed_read :])
            self._freed_read = len(freed)
            self._freed = ClusterSet(self._freed | clusters)
            self._full = {
                digest: ClusterSet(full & ~clusters)
                for digest, full in self._full.items()
            }

    def add_full(self, compiled: CompiledTemplate, info: ClusterInfo) -> None:
        """Record that a cluster has no free capacity for a template.

        The record is stored in the fleet, unless this batch has changed the charges
        there.
        """
        if info.observed:
            return  # an observation expires by time, which no change log records
        if info.name in self.ledger.touched:
            self._full[compiled.digest] = ClusterSet(
                self._full.get(compiled.digest, 0) | 1 << info.rank
            )
        else:
            self.fleet.full_clusters.add_full(compiled, ClusterSet(1 << info.rank))
