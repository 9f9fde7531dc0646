"""The nearest miss: what would have to be freed or added, and where, to place one more replica.

A request that fits nowhere visits every cluster that passed the filters, so a visit is cheap and a text is written only for the nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from scheduler.explain.whole_replica import PoolCapacity, PoolNeed, choose_pools, engine_order, pool_needs, unit_name
from scheduler.fleet.caches.tried_clusters import TriedClusters
from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet, ranks_of
from scheduler.hardware.charged_devices import Pods, PoolLoad, capacity_of, pods_on
from scheduler.hardware.template import Layout
from scheduler.model.inputs import PoolView
from scheduler.placement.limits.device_accounting import Fragmentation, admits, charged_load, counts_devices, fragmentation
from scheduler.placement.placer import ReplicaPlacer


@dataclass(frozen=True, slots=True)
class Miss:
    """What a replica lacks on a cluster.

    Attributes:
        gap: nodes that are missing, or pods that find no devices.
        cluster: where.
        text: what is needed beside what is free, "" where the nodes would suffice.
        needs: nodes per pool; empty where devices are counted.
        pool: where devices are counted, the pool that takes most of the pods.

    """

    gap: int
    cluster: str
    text: str
    needs: tuple[PoolNeed, ...] = ()
    pool: str = ""


class NearestMiss:
    """Keeps the smallest gap, then the first cluster and pool by name, and the headline group it belongs to."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._key: tuple[int, str] | None = None
        self._found: tuple[ClusterInfo, int] | None = None
        self.group = ""
        self._orders: dict[Layout, list[int]] = {}

    def measure(self, parts: Sequence[tuple[TriedClusters, ClusterSet]]) -> None:
        """Measure the missing capacity on clusters that lack some, and remember the nearest.

        Each part has the outcomes of trials, and the clusters that they are about.
        """
        if counts_devices(self._placer.overlay):
            engines: dict[int, int] = {}
            for outcomes, clusters in parts:
                engines |= {rank: outcomes.trial(rank).failed for rank in ranks_of(clusters)}
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
        """Measure clusters by rank, given the engine that failed on each."""
        for rank in sorted(engines):
            nearest = self._key[0] if self._key else -1
            if 0 <= nearest <= 1:
                return  # no cluster that comes later by name can be nearer
            info = self._placer.overlay.index.ranked[rank]
            gap = _DeviceMiss(self._placer, info, engines[rank], nearest).gap
            self.remember(gap, info, engines[rank])

    def _missing_nodes(self, info: ClusterInfo) -> int:
        fits = self._placer.compiled.on(info.layout).engines
        order = self._orders.get(info.layout)
        if order is None:
            order = self._orders[info.layout] = engine_order(fits)
        # Where a search was cut short the nodes may suffice.
        return max(1, choose_pools(fits, order, PoolCapacity(self._placer, info).free)[0])

    def remember(self, gap: int, info: ClusterInfo, engine: int) -> None:
        """Remember what a replica lacks on a cluster if nothing smaller is known."""
        if self._key is None or (gap, info.name) < self._key:
            self._key = (gap, info.name)
            self._found = (info, engine)
            self.group = self._placer.compiled.engines[engine].name

    @property
    def miss(self) -> Miss | None:
        """The nearest miss, None without any."""
        return capacity_miss(self._placer, *self._found) if self._found else None


def capacity_miss(placer: ReplicaPlacer, info: ClusterInfo, engine: int) -> Miss:
    """Say what a replica lacks on a cluster whose pools have the devices for it, and where `engine` found no pool."""
    if counts_devices(placer.overlay):
        miss = _DeviceMiss(placer, info, engine)
        return Miss(miss.gap, info.name, miss.text, pool=info.pools[miss.p].name)
    needs = pool_needs(placer, info, PoolCapacity(placer, info).free)
    short = [need for need in needs if need.gap]
    text = " and ".join(need.text(info.name) for need in short)
    return Miss(sum(need.gap for need in short), info.name, text, needs)


class _DeviceMiss:
    """What an engine lacks where devices are counted: the engines before it are put where they fit, and it has the best pool left.

    Attributes:
        p: the pool that takes most of its pods.
        gap: pods that find no devices there.

    """

    def __init__(self, placer: ReplicaPlacer, info: ClusterInfo, engine: int, limit: int = -1) -> None:
        """Measure one cluster; a gap of `limit` or more is of no interest, if that is not negative."""
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
            # One question tells whether the gap would be smaller; how small it is takes several.
            if 0 < limit <= total and not _takes(placer, info, p, [*beside, *_first_of(pods, total - limit + 1)]):
                continue
            fitting = _fitting(placer, info, p, pods, beside)
            rows.append((max(1, total - fitting), p, fitting))
        self.gap, self.p, self._fitting = min(rows, default=(max(1, limit), 0, 0))

    @property
    def text(self) -> str:
        """Say what the engine needs of the pool beside what is free."""
        names = ", ".join(unit_name(self._placer.compiled, i) for i in self._beside.get(self.p, ()))
        text = device_text(self._placer, self._info, self.p, self._engine, self._fitting)
        return f"{text}, beside {names}" if text and names else text


def device_text(placer: ReplicaPlacer, info: ClusterInfo, p: int, engine: int, fitting: int | None = None) -> str:
    """Say what the pods of an engine need of the devices of a pool, beside what is free; `fitting` of them would find a node."""
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
        return f"needs {size[drawn[0]]} devices on one node, {found.largest} sure of {found.free} free on {where}"
    names = [entry.name for entry in pool.device_set.entries]
    capacity = capacity_of(pool)
    charged = list(_charged(placer, info, p).pods())
    free = [max(0, capacity[e] * pool.nodes - sum(group.size[e] * group.count for group in charged)) for e in range(len(size))]
    wanted = " and ".join(f"{size[e]} {names[e]}" for e in drawn)
    there = " and ".join(f"{free[e]} {names[e]}" for e in drawn)
    if total == 1:
        return f"needs {wanted} on one node, {there} free on {where}"
    apart = " on different nodes" if any(group.siblings for group in pods) else ""
    return f"needs {total} pods with {wanted} each{apart}, {fitting} fit on {where} with {there} free"


def _pods(placer: ReplicaPlacer, engine: int, pool: PoolView) -> list[Pods]:
    return pods_on((placer.compiled.place(engine, pool.name, pool.device_set),), pool)


def _charged(placer: ReplicaPlacer, info: ClusterInfo, p: int) -> PoolLoad:
    return charged_load(placer.overlay, info, (placer.deployment.namespace, placer.deployment.name)).on(info.pools[p])


def _fitting(placer: ReplicaPlacer, info: ClusterInfo, p: int, pods: list[Pods], added: list[Pods]) -> int:
    """Count how many of these pods a pool takes, in their order, beside those that are added already."""
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
    """Give the first so many of all pods."""
    found = []
    for group in pods:
        found.append(_first(group, min(group.count, count)))
        count -= group.count
        if count <= 0:
            break
    return found


def _first(group: Pods, count: int) -> Pods:
    return Pods(group.size, count, group.siblings, group.slots[:count])
