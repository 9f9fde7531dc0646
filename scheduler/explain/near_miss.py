"""The nearest miss: what would have to be freed or added, and where, to place one more replica.

A request that fits nowhere visits every cluster that passed the filters, so a visit is cheap and a text is written only for the nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.hardware.charged_devices import pods_on
from scheduler.placement.limits.device_accounting import Fragmentation, counts_devices, fragmentation
from scheduler.placement.placer import ReplicaPlacer


@dataclass(frozen=True, slots=True)
class Miss:
    """A pool that an engine does not fit: `gap` nodes are missing, or so many devices on one node."""

    gap: int
    cluster: str
    pool: str
    text: str


class NearestMiss:
    """Keeps the smallest gap, then the first cluster and pool by name, and the headline group it belongs to."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._key: tuple[int, str] | None = None
        self._found: tuple[ClusterInfo, int] | None = None
        self.group = ""
        self._simple = placer.trials.is_simple

    def missing_nodes(self, info: ClusterInfo) -> int | None:
        """Give how many nodes the only engine lacks on a cluster, 0 if it fits; None where only a full trial can tell."""
        if not self._simple or info.observed or self._placer.trials.has_reusable(info):
            return None
        used = self._placer.overlay.ledger.used(info.name)
        engine = self._placer.compiled.on(info.layout).engines[0]
        most = max(info.nodes[p] - used.get(info.pools[p].name, 0) for p in engine.positions)
        return 0 if most >= engine.cost else engine.cost - max(most, 0)

    def measure(self, info: ClusterInfo, engine: int) -> None:
        """Measure what an engine lacks on a cluster, and remember it if nothing smaller is known."""
        self.remember(capacity_miss(self._placer, info, engine).gap, info, engine)

    def remember(self, gap: int, info: ClusterInfo, engine: int) -> None:
        """Remember what an engine lacks on a cluster if nothing smaller is known."""
        if self._key is None or (gap, info.name) < self._key:
            self._key = (gap, info.name)
            self._found = (info, engine)
            self.group = self._placer.compiled.engines[engine].name

    @property
    def text(self) -> str:
        """Describe the nearest miss, "" without any."""
        return capacity_miss(self._placer, *self._found).text if self._found else ""


def capacity_miss(placer: ReplicaPlacer, info: ClusterInfo, engine: int) -> Miss:
    """Give the pool with the smallest gap for an engine, on a cluster whose pools have the devices for it."""
    fit = placer.compiled.on(info.layout)
    free = placer.overlay.free(info)
    reusable = placer.overlay.reusable(info, placer.deployment.namespace, placer.deployment.name) or [0] * len(free)
    left = [a + b for a, b in zip(free, reusable, strict=True)]
    for earlier in fit.engines[:engine]:
        p = next((p for p in earlier.positions if left[p] >= earlier.cost), -1)
        if p >= 0:
            left[p] -= earlier.cost
    cost = fit.engines[engine].cost
    # The first of equal pools in published order.
    p = max(fit.engines[engine].positions, key=lambda q: (left[q], -q))
    if counts_devices(placer.overlay):
        return _device_miss(placer, info, engine, p)
    text = f"best: needs {cost}, {max(left[p], 0)} free on {info.name}/{info.pools[p].name}"
    return Miss(cost - max(left[p], 0), info.name, info.pools[p].name, text)


def _device_miss(placer: ReplicaPlacer, info: ClusterInfo, engine: int, p: int) -> Miss:
    pool = info.pools[p]
    placed = placer.compiled.place(engine, pool.name, pool.device_set)
    needed = max((sum(pods.size) for pods in pods_on((placed,), pool)), default=0)
    found = fragmentation(placer.overlay, info).get(pool.name, Fragmentation(0, 0, 0))
    text = f"best: needs {needed} devices on one node, {found.largest} sure of {found.free} free on {info.name}/{pool.name}"
    return Miss(needed - found.largest, info.name, pool.name, text)
