"""Choose the replicas to remove when there are more than wanted.

Replicas that serve no traffic come first: replicas on clusters that are being deleted,
not Ready or without a gateway, then unready replicas, then replicas on tainted
clusters. Replicas that a partition keeps on the old template come last. Ties are
resolved by the most loaded cluster, the later name and the higher index. Other replicas
are never moved.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence

from scheduler.fleet.overlay import FleetOverlay
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model.inputs import DeploymentView
from scheduler.placement.retain import RetainedReplica

Rank = tuple[int, int, int, int]


def surplus_replicas(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    kept: Sequence[RetainedReplica],
    partitioned: Collection[str],
    surplus: int,
) -> list[RetainedReplica]:
    """Return `surplus` replicas to remove, in order.

    A partition keeps the replicas with the uids `partitioned`.
    """
    load = Counter(k.entry.cluster for k in kept)
    ranks: dict[str, Rank] = {}
    for k in kept:
        health = (0, 0, 0)
        if overlay.rules.remove_unhealthy_first:
            health = _health_rank(overlay, deployment, k)
        ranks[k.entry.uid] = (*health, int(k.entry.uid not in partitioned))
    heap = [
        (_key(k, ranks[k.entry.uid], load[k.entry.cluster]), i)
        for i, k in enumerate(kept)
    ]
    heapq.heapify(heap)
    chosen: list[RetainedReplica] = []
    while heap and len(chosen) < surplus:
        key, i = heapq.heappop(heap)
        cluster = kept[i].entry.cluster
        # Loads only decrease, so an old key can only sort too early. Then push the
        # replica back with its current key.
        current = _key(kept[i], ranks[kept[i].entry.uid], load[cluster])
        if current != key:
            heapq.heappush(heap, (current, i))
            continue
        load[cluster] -= 1
        chosen.append(kept[i])
    return chosen


def _health_rank(
    overlay: FleetOverlay, deployment: DeploymentView, kept: RetainedReplica
) -> tuple[int, int, int]:
    info = overlay.clusters.get(kept.entry.cluster)
    broken = (
        info is None
        or info.view.deleting
        or not info.view.ready
        or not info.view.gateway_address
    )
    tainted = (
        info is not None
        and untolerated(info.taints, deployment.tolerations) is not None
    )
    return (int(broken), int(not kept.entry.ready), int(tainted))


def _key(
    kept: RetainedReplica, rank: Rank, load: int
) -> tuple[Rank, int, _Reversed, int]:
    """Return a key for a min-heap: every value is negated."""
    broken, unready, tainted, free = rank
    return (
        (-broken, -unready, -tainted, -free),
        -load,
        _Reversed(kept.entry.cluster),
        -kept.entry.index,
    )


class _Reversed:
    """A text that sorts in reverse order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)
