"""What a whole replica needs of each pool of a cluster, beside what is free there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.hardware.template import CompiledTemplate, charges
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


def pool_needs(placer: ReplicaPlacer, info: ClusterInfo, free: Sequence[int]) -> tuple[PoolNeed, ...]:
    """Put the engines on the pools where the fewest nodes are missing, and say what each pool would need; published order.

    The engines with the fewest pools and the most nodes choose first. Only engines that fit a pool of the cluster are counted.
    """
    compiled = placer.compiled
    fits = compiled.on(info.layout).engines
    left = list(free)
    chosen: dict[int, list[int]] = {}
    for i in sorted(range(len(fits)), key=lambda i: (len(fits[i].positions), -fits[i].cost, i)):
        cost = fits[i].cost
        if not fits[i].positions:
            continue
        # A pool that lacks nodes already lacks all of the next engine.
        p = min(fits[i].positions, key=lambda p: (max(0, cost - max(left[p], 0)), -left[p], p))
        left[p] -= cost
        chosen.setdefault(p, []).append(i)
    return tuple(
        PoolNeed(
            info.pools[p].name,
            sum(fits[i].cost for i in chosen[p]),
            max(0, free[p]),
            tuple((unit_name(compiled, i), fits[i].cost) for i in sorted(chosen[p])),
        )
        for p in sorted(chosen)
    )


def unit_name(compiled: CompiledTemplate, i: int) -> str:
    """Name what is placed as a whole: an engine, or one member of an engine that may span pools."""
    engine = compiled.engines[i]
    return f"{engine.name} {engine.members[0].role}" if i in compiled.spanning else engine.name
