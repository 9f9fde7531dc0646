"""How many replicas fit at most once all preemptable replicas are gone.

The bounds are cheap, and decide whether a search for victims can succeed at all.
"""

from __future__ import annotations

import math

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet
from scheduler.hardware.charged_devices import ClusterLoad, pods_on
from scheduler.hardware.template import charges
from scheduler.model.identity import Owner
from scheduler.placement.limits.device_accounting import (
    accounting_of,
    charged_load,
    counts_devices,
    most_beside,
)
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.victim_rules import VictimRules

# Steps of removing a replica from the load of a cluster, where devices are counted. To
# remove its nodes is one step.
_STEPS_PER_LOAD = 8


class VictimRoom:
    """Upper bounds of the replicas of one deployment that fit without the victims."""

    def __init__(self, placer: ReplicaPlacer, rules: VictimRules) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        self._rules = rules
        # By the pools of a cluster, whether it has room for each engine when empty.
        self._large_enough: dict[tuple[object, ...], bool] = {}

    def most_if_too_few(self, size: int, steps_max: int) -> float | None:
        """Return how many replicas fit at most if `size` do not fit; None if they may.

        Return None as well if more than `steps_max` steps would show it.
        """
        by_device = counts_devices(self._overlay)
        readable = steps_max // (_STEPS_PER_LOAD if by_device else 1)
        reachable = self._placer.passing
        # A quota that victims return has room on every cluster.
        if not self._placer.quota.limits:
            reachable = ClusterSet(reachable & (self._placer.open | self._lower()))
        found, read = 0.0, 0
        for info in self._overlay.index.each(reachable):
            if not self._is_large_enough(info):
                continue
            found += (
                self._most_by_device(info) if by_device else self._most_replicas(info)
            )
            read += len(self._overlay.ledger.on_cluster(info.name))
            if found >= size or read > readable:
                return None
        return found

    def _most_by_device(self, info: ClusterInfo) -> float:
        """Return an upper bound of the replicas whose devices fit without the victims."""
        victims = self._rules.preemptable(info)
        if any(entry.reuse for entry in victims):
            return math.inf
        gone = {entry.uid for entry in victims}
        return self._most_beside(
            info, charged_load(self._overlay, info, self._owner, gone)
        )

    def _most_beside(self, info: ClusterInfo, load: ClusterLoad) -> float:
        """Return an upper bound: each replica needs the devices of each of its engines."""
        compiled = self._placer.compiled
        bounds = []
        for i, engine in enumerate(compiled.on(info.layout).engines):
            most = 0.0
            for pool in (info.pools[p] for p in engine.positions):
                added = pods_on((compiled.place(i, pool.name, pool.device_set),), pool)
                most += most_beside(self._overlay, pool, load.on(pool), added)
            bounds.append(most)
        return min(bounds)

    def _is_large_enough(self, info: ClusterInfo) -> bool:
        """Return whether an empty cluster has the room for each engine alone."""
        # Many clusters have the same pools.
        key = (id(info.layout), info.nodes, self._accounting_of_pools(info))
        known = self._large_enough.get(key)
        if known is None:
            known = self._large_enough[key] = (
                self._most_beside(info, ClusterLoad(info.pools, ())) >= 1
                if counts_devices(self._overlay)
                else self._has_nodes_for_each(info)
            )
        return known

    def _accounting_of_pools(self, info: ClusterInfo) -> tuple[str, ...]:
        if not self._overlay.options.class_accounting:
            return ()
        return tuple(accounting_of(self._overlay, pool) for pool in info.pools)

    def _has_nodes_for_each(self, info: ClusterInfo) -> bool:
        return all(
            any(info.nodes[p] >= engine.cost for p in engine.positions)
            for engine in self._placer.compiled.on(info.layout).engines
        )

    def _most_replicas(self, info: ClusterInfo) -> float:
        """Return an upper bound of the replicas that fit without the victims.

        The bound is infinity if a victim reuses nodes.
        """
        room = self._overlay.free(info)
        reusable = self._overlay.reusable(info, *self._owner) or ()
        for p, nodes in enumerate(reusable):
            room[p] += nodes
        for entry in self._rules.preemptable(info):
            if entry.reuse:
                return math.inf
            for pool, nodes in charges(entry.charged).items():
                if pool in info.positions:
                    room[info.positions[pool]] += nodes
        engines = self._placer.compiled.on(info.layout).engines
        if len(engines) == 1:
            return sum(max(0, room[p]) // engines[0].cost for p in engines[0].positions)
        usable = {p for engine in engines for p in engine.positions}
        return sum(max(0, room[p]) for p in usable) // sum(
            engine.cost for engine in engines
        )

    def _lower(self) -> ClusterSet:
        """Return the clusters that have a replica of lower priority."""
        found = NO_CLUSTERS
        for priority, clusters in self._overlay.lowest_priorities().items():
            if priority < self._placer.priority:
                found = ClusterSet(found | clusters)
        return found
