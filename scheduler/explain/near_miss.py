"""The nearest miss: the capacity to free or add, and where, for one more replica.

For a request that does not fit, every cluster that passed the filters is visited. A
visit must be cheap, so a text is written only for the nearest cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from scheduler.explain.whole_replica import (
    PoolCapacity,
    PoolNeed,
    choose_pools,
    engine_order,
    pool_needs,
    unit_name,
)
from scheduler.fleet.caches.tried_clusters import TriedClusters
from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet, ranks_of
from scheduler.hardware.charged_devices import Pods, PoolLoad, capacity_of, pods_on
from scheduler.hardware.template import PoolLayout
from scheduler.model.inputs import PoolView
from scheduler.placement.limits.device_accounting import (
    Fragmentation,
    admits,
    charged_load,
    counts_devices,
    fragmentation,
)
from scheduler.placement.placer import ReplicaPlacer

# The free nodes of a pool that no engine should choose.
_EXHAUSTED = -1_000_000


@dataclass(frozen=True, slots=True)
class Miss:
    """The capacity that a replica lacks on a cluster.

    Attributes:
        gap: missing nodes, or the number of pods that find no devices.
        cluster: name of the cluster.
        text: needed and free capacity, "" if the nodes would suffice.
        needs: nodes per pool; empty if devices are counted.
        pool: the pool that takes most of the pods, if devices are counted.

    """

    gap: int
    cluster: str
    text: str
    needs: tuple[PoolNeed, ...] = ()
    pool: str = ""


# Clusters whose missing devices are measured for one headline, in 0.1 ms each.
_MEASURED_MAX = 200


class NearestMiss:
    """Finds the smallest gap, then the first cluster and pool by name.

    `group` is the headline group of the nearest miss.
    """

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._key: tuple[int, str] | None = None
        self._found: tuple[ClusterInfo, int] | None = None
        self.group = ""
        self._orders: dict[PoolLayout, list[int]] = {}

    def measure(self, parts: Sequence[tuple[TriedClusters, ClusterSet]]) -> None:
        """Measure the missing capacity of clusters and remember the nearest.

        Each part has outcomes of trials and the clusters they concern.
        """
        if counts_devices(self._placer.overlay):
            engines: dict[int, int] = {}
            for outcomes, clusters in parts:
                engines |= {
                    rank: outcomes.trial(rank).failed for rank in ranks_of(clusters)
                }
            self._measure_devices(engines)
        else:
            for outcomes, clusters in parts:
                self._measure_nodes(outcomes, clusters)

    def _measure_nodes(self, outcomes: TriedClusters, clusters: ClusterSet) -> None:
        index = self._placer.overlay.index
        known: int = reduce(or_, outcomes.gaps.values(), 0)
        unmeasured = index.each(ClusterSet(clusters & ~known))
        outcomes.add_gaps({info.rank: self._missing_nodes(info) for info in unmeasured})
        for gap in sorted(outcomes.gaps):
            nearest = clusters & outcomes.gaps[gap]
            if nearest:
                info = index.ranked[(nearest & -nearest).bit_length() - 1]
                self.remember(gap, info, outcomes.trial(info.rank).failed)
                return

    def _measure_devices(self, engines: Mapping[int, int]) -> None:
        """Measure clusters by rank; the mapping has the engine that failed on each.

        Each measurement packs pods, and no cache has its result. So only the first
        clusters by name are measured.
        """
        for rank in sorted(engines)[:_MEASURED_MAX]:
            nearest = self._key[0] if self._key else -1
            if 0 <= nearest <= 1:
                return  # clusters that come later by name cannot be nearer
            info = self._placer.overlay.index.ranked[rank]
            gap = _DeviceMiss(self._placer, info, engines[rank], nearest).gap
            self.remember(gap, info, engines[rank])

    def _missing_nodes(self, info: ClusterInfo) -> int:
        fits = self._placer.compiled.on(info.layout).engines
        order = self._orders.get(info.layout)
        if order is None:
            order = self._orders[info.layout] = engine_order(fits)
        # If a search was cut short, the nodes may suffice after all.
        return max(
            1, choose_pools(fits, order, PoolCapacity(self._placer, info).free)[0]
        )

    def remember(self, gap: int, info: ClusterInfo, engine: int) -> None:
        """Keep this miss if it is nearer than the known one."""
        if self._key is None or (gap, info.name) < self._key:
            self._key = (gap, info.name)
            self._found = (info, engine)
            self.group = self._placer.compiled.engines[engine].name

    @property
    def miss(self) -> Miss | None:
        """Return the nearest miss, or None."""
        return capacity_miss(self._placer, *self._found) if self._found else None


def capacity_miss(
    placer: ReplicaPlacer, info: ClusterInfo, engine: int, *, growable: bool = False
) -> Miss:
    """Return the capacity that a replica lacks on a cluster.

    The pools of the cluster have the right devices, and `engine` found no pool. With
    `growable`, prefer pools for which the cloud has more nodes.
    """
    if counts_devices(placer.overlay):
        miss = _DeviceMiss(placer, info, engine)
        return Miss(miss.gap, info.name, miss.text, pool=info.pools[miss.p].name)
    free = PoolCapacity(placer, info).free
    if growable:
        least = min(fit.cost for fit in placer.compiled.on(info.layout).engines)
        free = [
            _EXHAUSTED if pool.shortage and nodes < least else nodes
            for pool, nodes in zip(info.pools, free, strict=True)
        ]
    needs = pool_needs(placer, info, free)
    short = [need for need in needs if need.gap]
    text = " and ".join(need.text(info.name) for need in short)
    return Miss(sum(need.gap for need in short), info.name, text, needs)


class _DeviceMiss:
    """The devices that an engine lacks if devices are counted.

    The engines before it take the first pool where they fit. The engine then gets the
    best remaining pool.

    Attributes:
        p: position of the pool that takes most of its pods.
        gap: pods that find no devices there.

    """

    def __init__(
        self, placer: ReplicaPlacer, info: ClusterInfo, engine: int, limit: int = -1
    ) -> None:
        """Measure one cluster; stop early once the gap reaches a non-negative `limit`."""
        self._placer = placer
        self._info = info
        self._engine = engine
        added: dict[int, list[Pods]] = {}
        self._beside: dict[int, list[int]] = {}
        fits = placer.compiled.on(info.layout).engines
        for i in range(engine):
            for p in fits[i].positions:
                more = [*added.get(p, ()), *_pods(placer, i, info.pools[p])]
                if _takes(placer, info, p, more):
                    added[p] = more
                    self._beside.setdefault(p, []).append(i)
                    break
        rows: list[tuple[int, int, int]] = []
        for p in fits[engine].positions:
            pods = _pods(placer, engine, info.pools[p])
            total = sum(group.count for group in pods)
            beside = added.get(p, [])
            # One check shows whether the gap is smaller than the limit. Measuring the
            # gap takes several checks.
            if 0 < limit <= total and not _takes(
                placer, info, p, [*beside, *_first_of(pods, total - limit + 1)]
            ):
                continue
            fitting = _fitting(placer, info, p, pods, beside)
            rows.append((max(1, total - fitting), p, fitting))
        self.gap, self.p, self._fitting = min(rows, default=(max(1, limit), 0, 0))

    @property
    def text(self) -> str:
        """Return the engine's need of the pool, and the free devices."""
        names = ", ".join(
            unit_name(self._placer.compiled, i) for i in self._beside.get(self.p, ())
        )
        text = device_text(
            self._placer, self._info, self.p, self._engine, self._fitting
        )
        return f"{text}, with {names} placed first" if text and names else text


def device_text(
    placer: ReplicaPlacer,
    info: ClusterInfo,
    p: int,
    engine: int,
    fitting: int | None = None,
) -> str:
    """Return the devices that an engine's pods need of a pool, and the free devices.

    `fitting` is the number of pods that would find a node.
    """
    pool = info.pools[p]
    pods = _pods(placer, engine, pool)
    total = sum(group.count for group in pods)
    if not total:
        return ""
    if fitting is None:
        fitting = _fitting(placer, info, p, pods, [])
    size = max((group.size for group in pods), key=sum)
    drawn = [e for e, count in enumerate(size) if count]
    where = f"{info.name}/{pool.name}"
    found = fragmentation(placer.overlay, info).get(pool.name, Fragmentation(0, 0, 0))
    if total == 1 and len(drawn) == 1 and size[drawn[0]] > found.largest:
        return (
            f"needs {size[drawn[0]]} devices on one node, "
            f"{found.largest} of {found.free} free guaranteed on {where}"
        )
    names = [entry.name for entry in pool.device_set.entries]
    capacity = capacity_of(pool)
    charged = list(_charged(placer, info, p).pods())
    free = []
    for e in range(len(size)):
        used = sum(group.size[e] * group.count for group in charged)
        free.append(max(0, capacity[e] * pool.nodes - used))
    wanted = " and ".join(f"{size[e]} {names[e]}" for e in drawn)
    there = " and ".join(f"{free[e]} {names[e]}" for e in drawn)
    if total == 1:
        return f"needs {wanted} on one node, {there} free on {where}"
    apart = " on different nodes" if any(group.siblings for group in pods) else ""
    return (
        f"needs {total} pods with {wanted} each{apart}, "
        f"{fitting} fit on {where} with {there} free"
    )


def _pods(placer: ReplicaPlacer, engine: int, pool: PoolView) -> list[Pods]:
    return pods_on((placer.compiled.place(engine, pool.name, pool.device_set),), pool)


def _charged(placer: ReplicaPlacer, info: ClusterInfo, p: int) -> PoolLoad:
    return charged_load(
        placer.overlay, info, (placer.deployment.namespace, placer.deployment.name)
    ).on(info.pools[p])


def _fitting(
    placer: ReplicaPlacer,
    info: ClusterInfo,
    p: int,
    pods: list[Pods],
    added: list[Pods],
) -> int:
    """Count how many of the pods fit on a pool, in order, after the added pods."""
    taken: list[Pods] = []
    for group in pods:
        low, high = 0, group.count
        while low < high:
            middle = (low + high + 1) // 2
            if _takes(placer, info, p, [*added, *taken, _first(group, middle)]):
                low = middle
            else:
                high = middle - 1
        taken.append(_first(group, low))
        if low < group.count:
            break
    return sum(group.count for group in taken)


def _takes(placer: ReplicaPlacer, info: ClusterInfo, p: int, pods: list[Pods]) -> bool:
    return admits(placer.overlay, info.pools[p], _charged(placer, info, p), pods)


def _first_of(pods: list[Pods], count: int) -> list[Pods]:
    """Return the first `count` pods."""
    found = []
    for group in pods:
        found.append(_first(group, min(group.count, count)))
        count -= group.count
        if count <= 0:
            break
    return found


def _first(group: Pods, count: int) -> Pods:
    return Pods(group.size, count, group.siblings, group.slots[:count])
