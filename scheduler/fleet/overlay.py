"""One batch's private look at the fleet: the fleet itself below, this batch's own charges on top.

Decisions of a batch see each other through the frame; when it is dropped the fleet is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.fleet.capacity import observed_limit
from scheduler.fleet.cluster_index import ClusterIndex, Slot
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.ledger import Ledger
from scheduler.fleet.queue_reservations import QueueReservation
from scheduler.hardware.template import CompiledTemplate
from scheduler.model.identity import Owner
from scheduler.model.policy import SchedulerOptions
from scheduler.model.rules import PlacementRules


class FleetOverlay:
    """A fleet with changes that nobody else sees."""

    def __init__(self, fleet: Fleet, now: int, options: SchedulerOptions | None = None) -> None:
        fleet.index.refresh()
        self.fleet = fleet
        self.now = now
        self.options = options or fleet.options
        self.rules = PlacementRules.of(self.options)
        self.index: ClusterIndex = fleet.index
        self.ledger: Ledger = fleet.ledger.fork()
        self.preempted_at: dict[Owner, int] = {}
        self.refused: dict[tuple[str, str, str, str], int] = dict(fleet.refused)
        self.queue_reservations: dict[Owner, QueueReservation] = dict(fleet.queue_reservations) if self.rules.reserve_for_queue else {}
        # What the holds keep, worked out when first asked for.
        self.reserved_pools: dict[Owner, object] = {}
        self._full: dict[str, int] = {}
        self._freed_read = 0
        self._risen = 0

    def fork(self) -> FleetOverlay:
        """Give a frame that starts equal to this one and is thrown away alone."""
        other = FleetOverlay(self.fleet, self.now, self.options)
        other.ledger = self.ledger.fork()
        other.ledger.touched.update(self.ledger.touched)
        other.preempted_at = dict(self.preempted_at)
        other.queue_reservations = dict(self.queue_reservations)
        other.refused = dict(self.refused)
        self._catch_up()
        other._full = dict(self._full)  # same class
        other._risen = self._risen  # same class
        return other

    @property
    def clusters(self) -> Mapping[str, Slot]:
        """Clusters by name."""
        return self.index.slots

    def free(self, slot: Slot) -> list[int]:
        """Give the free nodes of each pool of a cluster; negative when it is in debt."""
        used = self.ledger.used(slot.name)
        free = [nodes - used.get(pool.name, 0) for nodes, pool in zip(slot.nodes, slot.pools, strict=True)] if used else list(slot.nodes)
        if slot.observed:
            for p, pool in enumerate(slot.pools):
                limit = observed_limit(pool, used.get(pool.name, 0), self.now, self.options)
                free[p] = free[p] if limit is None else min(free[p], limit)
        return free

    def reusable(self, slot: Slot, namespace: str, deployment: str) -> list[int] | None:
        """Give the nodes per pool that a deployment's own leaving replicas hold and nobody has taken over; None if there are none."""
        leaving = self.ledger.leaving(namespace, deployment, slot.name)
        if not leaving:
            return None
        counts = [leaving.get(pool.name, (0, 0)) for pool in slot.pools]
        return [max(0, nodes - taken) for nodes, taken in counts]

    def matching(self, compiled: CompiledTemplate) -> int:
        """Give the clusters whose pools fit a shape, node counts left aside."""
        return self.fleet.full_clusters.matching(compiled)

    def full(self, compiled: CompiledTemplate) -> int:
        """Give the clusters known to have no room for a shape."""
        self._catch_up()
        return (self.fleet.full_clusters.full(compiled) & ~self._risen) | self._full.get(compiled.digest, 0)

    def _catch_up(self) -> None:
        freed = self.ledger.freed
        if self._freed_read < len(freed):
            risen = 0
            for name in set(freed[self._freed_read :]):
                if name in self.index.slots:
                    risen |= 1 << self.index.slots[name].rank
            self._freed_read = len(freed)
            self._risen |= risen
            self._full = {digest: full & ~risen for digest, full in self._full.items()}

    def learn_full(self, compiled: CompiledTemplate, slot: Slot) -> None:
        """Remember that a cluster has no room for a shape, in the fleet if this batch has not charged that cluster."""
        if slot.observed:
            return  # what an adapter saw expires by time, which no log of changes tells
        if slot.name in self.ledger.touched:
            self._full[compiled.digest] = self._full.get(compiled.digest, 0) | 1 << slot.rank
        else:
            self.fleet.full_clusters.learn_full(compiled, 1 << slot.rank)
