"""How many nodes a pool starts with, and between which numbers the cloud scales it."""

from collections.abc import Iterator
from dataclasses import dataclass

from activities.clouds.desired import Problem
from api_types.resources.inference_cluster import NodePool


@dataclass(frozen=True)
class Counts:
    """Nodes of a pool, in the unit in which the cloud counts them; `least` and `most` are equal to `start` where nothing scales."""

    start: int
    least: int
    most: int
    autoscaled: bool


SYSTEM_COUNTS = Counts(start=1, least=1, most=2, autoscaled=True)
"""Of the pool that is added to every cluster."""


def pool_counts(pool: NodePool, least_default: int) -> Counts:
    """Give the counts of a pool; without a maximum its size is fixed. `least_default` is the minimum where none is written."""
    if pool.max_node_count is None:
        return Counts(pool.node_count, pool.node_count, pool.node_count, autoscaled=False)
    least = least_default if pool.min_node_count is None else pool.min_node_count
    return Counts(max(least, min(pool.node_count, pool.max_node_count)), least, pool.max_node_count, autoscaled=True)


def count_warnings(pool: NodePool, counts: Counts) -> Iterator[Problem]:
    """Warn where a pool has other counts than are written."""
    at = f"pool {pool.name}"
    if not counts.autoscaled and pool.min_node_count is not None:
        yield Problem("FixedSize", at, f"minNodeCount has no effect without maxNodeCount; the pool has {counts.start} nodes")
    if counts.autoscaled and counts.start != pool.node_count:
        yield Problem(
            "CountClamped", at, f"nodeCount {pool.node_count} is not between {counts.least} and {counts.most}; starts with {counts.start}"
        )
