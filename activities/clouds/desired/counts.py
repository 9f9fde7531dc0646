"""The initial size of a pool, and the limits between which the cloud scales it."""

from collections.abc import Iterator
from dataclasses import dataclass

from activities.clouds.desired.plan import PlanProblem
from api_types.resources.inference_cluster import NodePool


@dataclass(frozen=True)
class Counts:
    """Nodes of a pool, in the unit of the cloud.

    Without scaling, `least` and `most` equal `start`.
    """

    start: int
    least: int
    most: int
    autoscaled: bool


SYSTEM_COUNTS = Counts(start=1, least=1, most=2, autoscaled=True)
"""The counts of the pool that is added to every cluster."""


def pool_counts(pool: NodePool, least_default: int) -> Counts:
    """Return the counts of a pool.

    The size is fixed if the spec has no maximum. `least_default` is the minimum if the
    spec has none.
    """
    if pool.max_node_count is None:
        return Counts(
            pool.node_count, pool.node_count, pool.node_count, autoscaled=False
        )
    least = least_default if pool.min_node_count is None else pool.min_node_count
    return Counts(
        max(least, min(pool.node_count, pool.max_node_count)),
        least,
        pool.max_node_count,
        autoscaled=True,
    )


def count_warnings(pool: NodePool, counts: Counts) -> Iterator[PlanProblem]:
    """Warn if a pool has other counts than its spec."""
    at = f"pool {pool.name}"
    if not counts.autoscaled and pool.min_node_count is not None:
        yield PlanProblem(
            "FixedSize",
            at,
            "minNodeCount has no effect without maxNodeCount; the pool has "
            f"{counts.start} nodes",
        )
    if counts.autoscaled and counts.start != pool.node_count:
        yield PlanProblem(
            "CountClamped",
            at,
            f"nodeCount {pool.node_count} is not between {counts.least} and "
            f"{counts.most}; the pool starts with {counts.start}",
        )
