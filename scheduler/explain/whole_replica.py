"""A whole replica's need of each pool of a cluster, and the free nodes there."""

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
    """One replica's need of one pool: nodes per engine, and the number of free nodes."""

    pool: str
    nodes: int
    free: int
    engines: tuple[tuple[str, int], ...]

    @property
    def gap(self) -> int:
        """Return the number of missing nodes."""
        return max(0, self.nodes - self.free)

    def text(self, cluster: str) -> str:
        """Return the need as text, per engine if there are several."""
        if len(self.engines) == 1:
            return f"needs {self.nodes}, {self.free} free on {cluster}/{self.pool}"
        parts = ", ".join(f"{name} {nodes}" for name, nodes in self.engines)
        return (
            f"needs {self.nodes} nodes of {cluster}/{self.pool} together ({parts}), "
            f"{self.free} free"
        )


class PoolCapacity:
    """The nodes of a cluster's pools that one more replica could use.

    `free` is by position; `used` and `reserved` are by pool name.
    """

    def __init__(self, placer: ReplicaPlacer, info: ClusterInfo) -> None:
        self._overlay = placer.overlay
        self._info = info
        self.free: Sequence[int] = placer.reserved.left(info, placer.overlay.free(info))
        if info.view.queues:
            self.free = QueueLimits(
                placer.overlay,
                info,
                (placer.deployment.namespace, placer.deployment.name),
            ).nodes(self.free)
        reusable = placer.overlay.reusable(
            info, placer.deployment.namespace, placer.deployment.name
        )
        if reusable:
            self.free = [a + b for a, b in zip(self.free, reusable, strict=True)]
        self.used = placer.overlay.ledger.used(info.name)

    @cached_property
    def reserved(self) -> dict[str, int]:
        """Return the nodes of placed replicas that do not run yet."""
        found: dict[str, int] = {}
        for entry in self._overlay.ledger.on_cluster(self._info.name).values():
            if entry.state == reasons.RESERVED:
                for name, nodes in charges(entry.engines).items():
                    found[name] = found.get(name, 0) + nodes
        return found


def engine_order(fits: Sequence[EngineFit]) -> list[int]:
    """Return the engines that fit some pool, in the order in which they choose one.

    Engines with the fewest pools come first, then those with the most nodes.
    """
    order = sorted(
        range(len(fits)), key=lambda i: (len(fits[i].positions), -fits[i].cost, i)
    )
    return [i for i in order if fits[i].positions]


def choose_pools(
    fits: Sequence[EngineFit],
    order: Iterable[int],
    free: Sequence[int],
    limit: int = -1,
) -> tuple[int, dict[int, int]]:
    """Assign each engine to the pool where it lacks the fewest nodes.

    Return the total of missing nodes and the pool of each engine. Stop once a
    non-negative `limit` of missing nodes is reached.
    """
    left = list(free)
    chosen: dict[int, int] = {}
    gap = 0
    for i in order:
        cost = fits[i].cost
        best, least, most = -1, cost + 1, 0
        for p in fits[i].positions:
            nodes = left[p]
            # If a pool already lacks nodes, it lacks all nodes of the next engine.
            if nodes <= 0:
                lack = cost
            elif nodes < cost:
                lack = cost - nodes
            else:
                lack = 0
            if lack < least or (lack == least and nodes > most):
                best, least, most = p, lack, nodes
        left[best] -= cost
        chosen[i] = best
        gap += least
        if 0 <= limit <= gap:
            break
    return gap, chosen


def pool_needs(
    placer: ReplicaPlacer, info: ClusterInfo, free: Sequence[int]
) -> tuple[PoolNeed, ...]:
    """Return each pool's need with the fewest missing nodes, in published order."""
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
    """Return the name of an engine, or of an engine's member that is placed alone."""
    engine = compiled.engines[i]
    return (
        f"{engine.name} {engine.members[0].role}"
        if i in compiled.spanning
        else engine.name
    )
