"""What a whole replica needs of each pool of a cluster, beside what is free there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.hardware.template import CompiledTemplate, EngineFit, charges
from scheduler.model import reasons
from scheduler.placement.limits.queue_limits import QueueLimits
from scheduler.placement.placer import ReplicaPlacer


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """What one replica needs of one pool: nodes per engine, and how many are free."""

    pool: str
    nodes: int
    free: int
    engines: tuple[tuple[str, int], ...]

    @property
    def gap(self) -> int:
        """Nodes that are missing."""
        return max(0, self.nodes - self.free)

    def text(self, cluster: str) -> str:
        """Say what is needed, by engine if there are several."""
        if len(self.engines) == 1:
            return f"needs {self.nodes}, {self.free} free on {cluster}/{self.pool}"
        parts = ", ".join(f"{name} {nodes}" for name, nodes in self.engines)
        return f"needs {self.nodes} nodes of {cluster}/{self.pool} together ({parts}), {self.free} free"


class PoolCapacity:
    """The nodes of a cluster's pools as one more replica finds them: free by position, used and reserved by name."""

    def __init__(self, placer: ReplicaPlacer, info: ClusterInfo) -> None:
        self._overlay = placer.overlay
        self._info = info
        self.free: Sequence[int] = placer.reserved.left(info, placer.overlay.free(info))
        if info.view.queues:
            self.free = QueueLimits(placer.overlay, info, (placer.deployment.namespace, placer.deployment.name)).nodes(self.free)
        reusable = placer.overlay.reusable(info, placer.deployment.namespace, placer.deployment.name)
        if reusable:
            self.free = [a + b for a, b in zip(self.free, reusable, strict=True)]
        self.used = placer.overlay.ledger.used(info.name)

    @cached_property
    def reserved(self) -> dict[str, int]:
        """Nodes of replicas that are placed and not running yet."""
        found: dict[str, int] = {}
        for entry in self._overlay.ledger.on_cluster(self._info.name).values():
            if entry.state == reasons.RESERVED:
                for name, nodes in charges(entry.engines).items():
                    found[name] = found.get(name, 0) + nodes
        return found


def engine_order(fits: Sequence[EngineFit]) -> list[int]:
    """Give the engines that fit some pool in the order in which they choose one: those with the fewest pools and the most nodes first."""
    order = sorted(range(len(fits)), key=lambda i: (len(fits[i].positions), -fits[i].cost, i))
    return [i for i in order if fits[i].positions]


def choose_pools(fits: Sequence[EngineFit], order: Iterable[int], free: Sequence[int], limit: int = -1) -> tuple[int, dict[int, int]]:
    """Put each engine on the pool where it lacks the fewest nodes; give how many are missing in all, and the pool of each engine.

    Stops where at least `limit` nodes are missing, if that is not negative.
    """
    left = list(free)
    chosen: dict[int, int] = {}
    gap = 0
    for i in order:
        cost = fits[i].cost
        best, least, most = -1, cost + 1, 0
        for p in fits[i].positions:
            nodes = left[p]
            # A pool that lacks nodes already lacks all of the next engine.
            lack = cost if nodes <= 0 else cost - nodes if nodes < cost else 0
            if lack < least or (lack == least and nodes > most):
                best, least, most = p, lack, nodes
        left[best] -= cost
        chosen[i] = best
        gap += least
        if 0 <= limit <= gap:
            break
    return gap, chosen


def pool_needs(placer: ReplicaPlacer, info: ClusterInfo, free: Sequence[int]) -> tuple[PoolNeed, ...]:
    """Say what each pool would need if the engines were put where the fewest nodes are missing; published order."""
    compiled = placer.compiled
    fits = compiled.on(info.layout).engines
    _, chosen = choose_pools(fits, engine_order(fits), free)
    engines: dict[int, list[int]] = {}
    for i, p in sorted(chosen.items()):
        engines.setdefault(p, []).append(i)
    return tuple(
        PoolNeed(
            info.pools[p].name,
            sum(fits[i].cost for i in engines[p]),
            max(0, free[p]),
            tuple((unit_name(compiled, i), fits[i].cost) for i in engines[p]),
        )
        for p in sorted(engines)
    )


def unit_name(compiled: CompiledTemplate, i: int) -> str:
    """Name what is placed as a whole: an engine, or one member of an engine that may span pools."""
    engine = compiled.engines[i]
    return f"{engine.name} {engine.members[0].role}" if i in compiled.spanning else engine.name
