"""Clusters, indexed so that a filter is one operation on the whole fleet.

Every cluster has a rank, its position in name order. A `ClusterSet` is an integer whose
bit `rank` represents that cluster. "Ready, in region eu, tolerated, and not known to be
full" is then a few `&` operations, whatever the size of the fleet, and the lowest bit
of the result is the first cluster by name. Changing a cluster flips its bits. Only an
added or removed name changes ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import NewType

from scheduler.fleet.change_log import ChangeLog
from scheduler.hardware.template import CompiledTemplate, PoolLayout
from scheduler.model.inputs import ClusterTaint, ClusterView, DeviceSet, PoolView

# An int at run time: `&`, `|` and `& ~` return ints, which are wrapped again when they
# are returned or stored.
ClusterSet = NewType("ClusterSet", int)
NO_CLUSTERS = ClusterSet(0)


class ClusterInfo:
    """One cluster of the index, with values derived from its view.

    A second pool of the same name is not used; `duplicates` lists its name.
    """

    __slots__ = (
        "duplicates",
        "layout",
        "name",
        "nodes",
        "observed",
        "offered",
        "pools",
        "positions",
        "rank",
        "taints",
        "view",
    )

    def __init__(
        self, view: ClusterView, layout: PoolLayout, pools: tuple[PoolView, ...]
    ) -> None:
        self.view = view
        self.name = view.name
        self.layout = layout
        self.pools = pools
        self.positions = {pool.name: p for p, pool in enumerate(pools)}
        self.nodes = tuple(pool.nodes for pool in pools)
        # Distinct digests of the devices of pools that accept new replicas, in pool
        # order.
        self.offered = tuple(dict.fromkeys(digest for digest in layout.key if digest))
        self.taints: tuple[ClusterTaint, ...] = tuple(
            sorted(view.taints, key=lambda t: (t.key, t.effect, t.value))
        )
        self.duplicates: tuple[str, ...] = ()
        if len(pools) < len(view.pools):
            counts = Counter(pool.name for pool in view.pools)
            self.duplicates = tuple(sorted(name for name in counts if counts[name] > 1))
        self.observed = bool(view.queues) or any(
            pool.observed is not None for pool in pools
        )
        self.rank = -1

    def device_set(self, pool: str) -> DeviceSet | None:
        """Return the devices of a pool, or None if the pool is not published."""
        p = self.positions.get(pool)
        return None if p is None else self.pools[p].device_set


class ClusterIndex:
    """All clusters, and the sets they belong to."""

    def __init__(self) -> None:
        self.clusters: dict[str, ClusterInfo] = {}
        self.device_sets: dict[str, DeviceSet] = {}
        self._layouts: dict[tuple[str, ...], PoolLayout] = {}
        self._stale = False
        self.ranked: list[ClusterInfo] = []
        # Increased when ranks change, which invalidates older sets of clusters.
        self.epoch = 0
        # Ranks whose layout changed, in order; a cache remembers its position in the
        # list.
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
        self.tainted: dict[tuple[ClusterTaint, ...], ClusterSet] = {}
        # Clusters by the features that they lack.
        self.lacking: dict[tuple[str, ...], ClusterSet] = {}
        self.layouts: dict[PoolLayout, ClusterSet] = {}
        # Clusters with a pool of these devices that takes new replicas, by digest.
        self.offering: dict[str, ClusterSet] = {}

    def put(self, view: ClusterView) -> None:
        pools: dict[str, PoolView] = {}
        for pool in view.pools:
            known = self.device_sets.setdefault(pool.device_set.digest, pool.device_set)
            pools.setdefault(
                pool.name, pool if pool.device_set is known else _with_set(pool, known)
            )
        sets = tuple(
            pool.device_set if pool.takes_new else None for pool in pools.values()
        )
        key = tuple("" if devices is None else devices.digest for devices in sets)
        info = ClusterInfo(
            view,
            self._layouts.setdefault(key, PoolLayout(key, sets)),
            tuple(pools.values()),
        )
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
        """Drop layouts and device sets that no cluster uses any more.

        Users edit classes as long as the fleet exists.
        """
        if old.layout not in self.layouts:
            self._layouts.pop(old.layout.key, None)
        for digest in old.offered:
            if not self.offering[digest]:
                del self.offering[digest]
                self.device_sets.pop(digest, None)

    def remove(self, name: str) -> None:
        """Remove a cluster; an unknown name is ignored."""
        if self.clusters.pop(name, None) is not None:
            self._stale = True

    def refresh(self) -> None:
        """Recompute ranks and sets if names were added or removed."""
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
        self.device_sets = {
            digest: devices
            for digest, devices in self.device_sets.items()
            if digest in used
        }
        self._layouts = {info.layout.key: info.layout for info in self.ranked}

    def _flip(self, info: ClusterInfo, *, present: bool) -> None:
        bit = 1 << info.rank
        view = info.view

        def flipped(clusters: ClusterSet, applies: bool) -> ClusterSet:
            return ClusterSet(
                clusters | bit if present and applies else clusters & ~bit
            )

        for pair in view.labels.items():
            self.labels[pair] = flipped(
                self.labels.get(pair, NO_CLUSTERS), applies=True
            )
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
            self.tainted[info.taints] = flipped(
                self.tainted.get(info.taints, NO_CLUSTERS), applies=True
            )
            if not self.tainted[info.taints]:
                del self.tainted[info.taints]
        if missing := view.missing_features:
            self.lacking[missing] = flipped(
                self.lacking.get(missing, NO_CLUSTERS), applies=True
            )
            if not self.lacking[missing]:
                del self.lacking[missing]
        for digest in info.offered:
            self.offering[digest] = flipped(
                self.offering.get(digest, NO_CLUSTERS), applies=True
            )
        self.layouts[info.layout] = flipped(
            self.layouts.get(info.layout, NO_CLUSTERS), applies=True
        )
        if not self.layouts[info.layout]:
            del self.layouts[info.layout]

    def having(self, labels: Mapping[str, str]) -> ClusterSet:
        """Return the clusters that have all of these labels."""
        found: int = self.everything
        for pair in labels.items():
            found &= self.labels.get(pair, 0)
        return ClusterSet(found)

    def named(self, names: Iterable[str]) -> ClusterSet:
        """Return the clusters with these names; unknown names are ignored."""
        ranks = []
        for name in dict.fromkeys(names):
            info = self.clusters.get(name)
            if info is not None:
                ranks.append(info.rank)
        return bits(ranks, len(self.ranked))

    def offered_sets(self) -> list[DeviceSet]:
        """Return the distinct devices of pools that accept new replicas, unordered."""
        return [
            self.device_sets[digest]
            for digest, clusters in self.offering.items()
            if clusters
        ]

    def blocked(self, compiled: CompiledTemplate) -> dict[int, ClusterSet]:
        """Return the clusters by the first engine that fits none of their pools.

        The key is -1 for clusters where every engine fits a pool. Node counts do not
        matter.
        """
        claimable = compiled.claimable_sets(self.device_sets.values())
        if claimable is not None:
            found: dict[int, ClusterSet] = {}
            left: int = self.everything
            for i, digests in enumerate(claimable):
                offering = reduce(
                    or_, (self.offering.get(digest, 0) for digest in digests), 0
                )
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
        # If every cluster has its own layout, setting single bits in a wide integer
        # would be quadratic.
        alone = {
            engine: bits(of_engine, len(self.ranked))
            for engine, of_engine in ranks.items()
        }
        for engine, clusters in alone.items():
            shared[engine] = shared.get(engine, 0) | clusters
        return {engine: ClusterSet(clusters) for engine, clusters in shared.items()}

    def each(self, clusters: ClusterSet) -> Iterator[ClusterInfo]:
        """Iterate over the clusters of a set in name order."""
        return map(self.ranked.__getitem__, ranks_of(clusters))


def ranks_of(clusters: ClusterSet) -> Iterator[int]:
    """Yield the ranks of the clusters of a set, in name order."""
    for start in range(0, clusters.bit_length(), _CHUNK):
        chunk = (clusters >> start) & _CHUNK_MASK
        while chunk:
            low = chunk & -chunk
            yield start + low.bit_length() - 1
            chunk ^= low


# Clearing single bits of a wide integer would copy all of it for each bit.
_CHUNK = 256
_CHUNK_MASK = (1 << _CHUNK) - 1


def is_ready(view: ClusterView) -> bool:
    """Return whether a cluster is Ready and its replicas are known."""
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
        pool.unusable,
        pool.shortage,
    )


class _SetBuilder:
    """Collects ranks as lists and joins them once.

    Setting single bits in wide integers would be quadratic.
    """

    def __init__(self) -> None:
        self.labels: dict[tuple[str, str], list[int]] = {}
        self.tainted: dict[tuple[ClusterTaint, ...], list[int]] = {}
        self.lacking: dict[tuple[str, ...], list[int]] = {}
        self.layouts: dict[PoolLayout, list[int]] = {}
        self.offering: dict[str, list[int]] = {}
        names = ("ready", "gateway", "deleting", "storage", "observed", "pooled")
        self.flags: dict[str, list[int]] = {flag: [] for flag in names}

    def add(self, info: ClusterInfo) -> None:
        view = info.view
        for pair in view.labels.items():
            self.labels.setdefault(pair, []).append(info.rank)
        if info.taints:
            self.tainted.setdefault(info.taints, []).append(info.rank)
        if view.missing_features:
            self.lacking.setdefault(view.missing_features, []).append(info.rank)
        self.layouts.setdefault(info.layout, []).append(info.rank)
        for digest in info.offered:
            self.offering.setdefault(digest, []).append(info.rank)
        flags = (
            is_ready(view),
            bool(view.gateway_address),
            view.deleting,
            bool(view.cache_storage_class),
            info.observed,
            bool(info.pools),
        )
        for ranks, held in zip(self.flags.values(), flags, strict=True):
            if held:
                ranks.append(info.rank)

    def build(self, index: ClusterIndex, size: int) -> None:
        index.everything = ClusterSet((1 << size) - 1)
        index.labels = {pair: bits(ranks, size) for pair, ranks in self.labels.items()}
        for (key, value), clusters in index.labels.items():
            index.label_values.setdefault(key, {})[value] = clusters
        index.tainted = {
            taints: bits(ranks, size) for taints, ranks in self.tainted.items()
        }
        index.lacking = {
            missing: bits(ranks, size) for missing, ranks in self.lacking.items()
        }
        index.layouts = {
            layout: bits(ranks, size) for layout, ranks in self.layouts.items()
        }
        index.offering = {
            digest: bits(ranks, size) for digest, ranks in self.offering.items()
        }
        flags = {flag: bits(ranks, size) for flag, ranks in self.flags.items()}
        index.ready = flags["ready"]
        index.gateway = flags["gateway"]
        index.deleting = flags["deleting"]
        index.storage = flags["storage"]
        index.observed = flags["observed"]
        index.with_pools = flags["pooled"]


def bits(ranks: list[int], size: int) -> ClusterSet:
    """Return the set of some ranks."""
    if len(ranks) == size:
        return ClusterSet((1 << size) - 1)
    raw = bytearray(size // 8 + 1)
    for rank in ranks:
        raw[rank >> 3] |= 1 << (rank & 7)
    return ClusterSet(int.from_bytes(raw, "little"))
