"""Clusters, indexed so that a filter is one operation on a whole fleet.

Every cluster has a rank: its position in name order. A `ClusterSet` is one whole number whose bit `rank` stands for that cluster, so
"ready, in region eu, tolerated, and not known to be full" is a handful of `&` on numbers, whatever the size of the fleet, and the lowest
bit of the result is the first cluster by name. Changing a cluster flips its bits; only an added or removed name changes ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import NewType

from scheduler.fleet.change_log import ChangeLog
from scheduler.hardware.template import CompiledTemplate, Layout
from scheduler.model.inputs import ClusterView, DeviceSet, PoolView, Taint

# A plain int at run time: `&`, `|` and `& ~` give ints, which become a ClusterSet again where they are returned or kept.
ClusterSet = NewType("ClusterSet", int)
NO_CLUSTERS = ClusterSet(0)


class ClusterInfo:
    """One cluster of the index with what is derived from its view. A second pool of a name is not used, only listed in `duplicates`."""

    __slots__ = ("duplicates", "layout", "name", "nodes", "observed", "offered", "pools", "positions", "rank", "taints", "view")

    def __init__(self, view: ClusterView, layout: Layout, pools: tuple[PoolView, ...]) -> None:
        self.view = view
        self.name = view.name
        self.layout = layout
        self.pools = pools
        self.positions = {pool.name: p for p, pool in enumerate(pools)}
        self.nodes = tuple(pool.nodes for pool in pools)
        # Digests of the devices of pools that take new replicas, each once and in the order of the pools.
        self.offered = tuple(dict.fromkeys(digest for digest in layout.key if digest))
        self.taints: tuple[Taint, ...] = tuple(sorted(view.taints, key=lambda t: (t.key, t.effect, t.value)))
        self.duplicates = tuple(sorted({p.name for p in view.pools if sum(q.name == p.name for q in view.pools) > 1}))
        self.observed = bool(view.queues) or any(pool.observed is not None for pool in pools)
        self.rank = -1

    def device_set(self, pool: str) -> DeviceSet | None:
        """Give the devices behind a pool name, None if the pool is not published."""
        p = self.positions.get(pool)
        return None if p is None else self.pools[p].device_set


class ClusterIndex:
    """All clusters, and the sets they belong to."""

    def __init__(self) -> None:
        self.clusters: dict[str, ClusterInfo] = {}
        self.device_sets: dict[str, DeviceSet] = {}
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._stale = False
        self.ranked: list[ClusterInfo] = []
        # Raised when ranks change; sets of clusters from before are invalid then.
        self.epoch = 0
        # Ranks whose layout changed, in order; a cache of matches per cluster reads on from where it stopped.
        self.changed_layouts: list[int] = []
        # Ranks of clusters that were published again.
        self.changes = ChangeLog[int]()
        self._clear()

    def _clear(self) -> None:
        self.everything = NO_CLUSTERS
        self.labels: dict[tuple[str, str], ClusterSet] = {}
        self.label_values: dict[str, dict[str, ClusterSet]] = {}
        self.ready = NO_CLUSTERS
        self.gateway = NO_CLUSTERS
        self.deleting = NO_CLUSTERS
        self.storage = NO_CLUSTERS
        self.observed = NO_CLUSTERS
        self.with_pools = NO_CLUSTERS
        self.tainted: dict[tuple[Taint, ...], ClusterSet] = {}
        self.layouts: dict[Layout, ClusterSet] = {}
        # Clusters with a pool of these devices that takes new replicas, by digest.
        self.offering: dict[str, ClusterSet] = {}

    def put(self, view: ClusterView) -> None:
        """Add or replace a cluster."""
        pools: dict[str, PoolView] = {}
        for pool in view.pools:
            known = self.device_sets.setdefault(pool.device_set.digest, pool.device_set)
            pools.setdefault(pool.name, pool if pool.device_set is known else _with_set(pool, known))
        sets = tuple(None if pool.class_missing else pool.device_set for pool in pools.values())
        key = tuple("" if devices is None else devices.digest for devices in sets)
        info = ClusterInfo(view, self._layouts.setdefault(key, Layout(key, sets)), tuple(pools.values()))
        old = self.clusters.get(view.name)
        self.clusters[view.name] = info
        if old is None or self._stale:
            self._stale = True
            return
        info.rank = old.rank
        self.ranked[info.rank] = info
        self.changes.add(info.rank)
        self._flip(old, present=False)
        self._flip(info, present=True)
        if info.layout.key != old.layout.key:
            self.changed_layouts.append(info.rank)
            self._forget_unused(old)

    def _forget_unused(self, old: ClusterInfo) -> None:
        """Forget what the last cluster with it had: classes are edited for as long as a fleet is there."""
        if old.layout not in self.layouts:
            self._layouts.pop(old.layout.key, None)
        for digest in old.offered:
            if not self.offering[digest]:
                del self.offering[digest]
                self.device_sets.pop(digest, None)

    def remove(self, name: str) -> None:
        """Remove a cluster; an unknown name changes nothing."""
        if self.clusters.pop(name, None) is not None:
            self._stale = True

    def refresh(self) -> None:
        """Compute ranks and sets anew if names were added or removed."""
        if not self._stale:
            return
        self._stale = False
        self.ranked = [self.clusters[name] for name in sorted(self.clusters)]
        self._clear()
        self.epoch += 1
        self.changed_layouts.clear()
        builder = _SetBuilder()
        for rank, info in enumerate(self.ranked):
            info.rank = rank
            builder.add(info)
        builder.build(self, len(self.ranked))
        used = {pool.device_set.digest for info in self.ranked for pool in info.pools}
        self.device_sets = {digest: devices for digest, devices in self.device_sets.items() if digest in used}
        self._layouts = {info.layout.key: info.layout for info in self.ranked}

    def _flip(self, info: ClusterInfo, *, present: bool) -> None:
        bit = 1 << info.rank
        view = info.view

        def flipped(clusters: ClusterSet, applies: bool) -> ClusterSet:
            return ClusterSet(clusters | bit if present and applies else clusters & ~bit)

        for pair in view.labels.items():
            self.labels[pair] = flipped(self.labels.get(pair, NO_CLUSTERS), applies=True)
            values = self.label_values.setdefault(pair[0], {})
            values[pair[1]] = self.labels[pair]
            if not self.labels[pair]:
                del self.labels[pair], values[pair[1]]
                if not values:
                    del self.label_values[pair[0]]
        self.ready = flipped(self.ready, is_ready(view))
        self.gateway = flipped(self.gateway, bool(view.gateway_address))
        self.deleting = flipped(self.deleting, view.deleting)
        self.storage = flipped(self.storage, bool(view.cache_storage_class))
        self.observed = flipped(self.observed, info.observed)
        self.with_pools = flipped(self.with_pools, bool(info.pools))
        if info.taints:
            self.tainted[info.taints] = flipped(self.tainted.get(info.taints, NO_CLUSTERS), applies=True)
            if not self.tainted[info.taints]:
                del self.tainted[info.taints]
        for digest in info.offered:
            self.offering[digest] = flipped(self.offering.get(digest, NO_CLUSTERS), applies=True)
        self.layouts[info.layout] = flipped(self.layouts.get(info.layout, NO_CLUSTERS), applies=True)
        if not self.layouts[info.layout]:
            del self.layouts[info.layout]

    def having(self, labels: Mapping[str, str]) -> ClusterSet:
        """Give the clusters that carry every one of these labels."""
        found: int = self.everything
        for pair in labels.items():
            found &= self.labels.get(pair, 0)
        return ClusterSet(found)

    def named(self, names: Iterable[str]) -> ClusterSet:
        """Give the set of the clusters with these names; unknown names are left out."""
        ranks = [info.rank for name in dict.fromkeys(names) if (info := self.clusters.get(name)) is not None]
        return bits(ranks, len(self.ranked))

    def offered_sets(self) -> list[DeviceSet]:
        """Give the different devices of pools that take new replicas, in no order."""
        return [self.device_sets[digest] for digest, clusters in self.offering.items() if clusters]

    def blocked(self, compiled: CompiledTemplate) -> dict[int, ClusterSet]:
        """Return the clusters by the first engine that fits none of their pools, -1 if all fit one.

        Node counts do not matter.
        """
        claimable = compiled.claimable_sets(self.device_sets.values())
        if claimable is not None:
            found: dict[int, ClusterSet] = {}
            left: int = self.everything
            for i, digests in enumerate(claimable):
                offering = reduce(or_, (self.offering.get(digest, 0) for digest in digests), 0)
                found[i] = ClusterSet(left & ~offering)
                left &= offering
            return {**found, -1: ClusterSet(left)}
        shared: dict[int, int] = {}
        ranks: dict[int, list[int]] = {}
        for layout, clusters in self.layouts.items():
            engine = compiled.on(layout).blocked
            if clusters & (clusters - 1):
                shared[engine] = shared.get(engine, 0) | clusters
            else:
                ranks.setdefault(engine, []).append(clusters.bit_length() - 1)
        # Where every cluster has a layout of its own, setting bits one by one in a wide number would be quadratic.
        alone = {engine: bits(of_engine, len(self.ranked)) for engine, of_engine in ranks.items()}
        for engine, clusters in alone.items():
            shared[engine] = shared.get(engine, 0) | clusters
        return {engine: ClusterSet(clusters) for engine, clusters in shared.items()}

    def each(self, clusters: ClusterSet) -> Iterator[ClusterInfo]:
        """Give the clusters of a set in name order."""
        return map(self.ranked.__getitem__, ranks_of(clusters))


def ranks_of(clusters: ClusterSet) -> Iterator[int]:
    """Return the ranks of the clusters of a set, in name order."""
    for start in range(0, clusters.bit_length(), _CHUNK):
        chunk = (clusters >> start) & _CHUNK_MASK
        while chunk:
            low = chunk & -chunk
            yield start + low.bit_length() - 1
            chunk ^= low


# Walking a wide number bit by bit would copy it whole for each bit.
_CHUNK = 256
_CHUNK_MASK = (1 << _CHUNK) - 1


def is_ready(view: ClusterView) -> bool:
    """Whether a cluster may take new replicas: Ready, and what runs there is known."""
    return view.ready and view.accounted


def _with_set(pool: PoolView, devices: DeviceSet) -> PoolView:
    return PoolView(
        pool.name,
        pool.nodes,
        devices,
        pool.class_name,
        pool.class_missing,
        pool.network_domain,
        pool.price_milli,
        pool.observed,
    )


class _SetBuilder:
    """Collects ranks as lists and joins them once: setting bits one at a time in wide numbers is quadratic."""

    def __init__(self) -> None:
        self.labels: dict[tuple[str, str], list[int]] = {}
        self.tainted: dict[tuple[Taint, ...], list[int]] = {}
        self.layouts: dict[Layout, list[int]] = {}
        self.offering: dict[str, list[int]] = {}
        names = ("ready", "gateway", "deleting", "storage", "observed", "pooled")
        self.flags: dict[str, list[int]] = {flag: [] for flag in names}

    def add(self, info: ClusterInfo) -> None:
        view = info.view
        for pair in view.labels.items():
            self.labels.setdefault(pair, []).append(info.rank)
        if info.taints:
            self.tainted.setdefault(info.taints, []).append(info.rank)
        self.layouts.setdefault(info.layout, []).append(info.rank)
        for digest in info.offered:
            self.offering.setdefault(digest, []).append(info.rank)
        has_gateway, has_storage = bool(view.gateway_address), bool(view.cache_storage_class)
        flags = (is_ready(view), has_gateway, view.deleting, has_storage, info.observed, bool(info.pools))
        for ranks, held in zip(self.flags.values(), flags, strict=True):
            if held:
                ranks.append(info.rank)

    def build(self, index: ClusterIndex, size: int) -> None:
        index.everything = ClusterSet((1 << size) - 1)
        index.labels = {pair: bits(ranks, size) for pair, ranks in self.labels.items()}
        for (key, value), clusters in index.labels.items():
            index.label_values.setdefault(key, {})[value] = clusters
        index.tainted = {taints: bits(ranks, size) for taints, ranks in self.tainted.items()}
        index.layouts = {layout: bits(ranks, size) for layout, ranks in self.layouts.items()}
        index.offering = {digest: bits(ranks, size) for digest, ranks in self.offering.items()}
        flags = {flag: bits(ranks, size) for flag, ranks in self.flags.items()}
        index.ready, index.gateway, index.deleting = flags["ready"], flags["gateway"], flags["deleting"]
        index.storage, index.observed = flags["storage"], flags["observed"]
        index.with_pools = flags["pooled"]


def bits(ranks: list[int], size: int) -> ClusterSet:
    """Join ranks to a set."""
    if len(ranks) == size:
        return ClusterSet((1 << size) - 1)
    raw = bytearray(size // 8 + 1)
    for rank in ranks:
        raw[rank >> 3] |= 1 << (rank & 7)
    return ClusterSet(int.from_bytes(raw, "little"))
