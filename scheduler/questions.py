"""Questions that a plan answers: can this cluster be drained, how many more fit, which cluster would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.decide import decide
from scheduler.fleet import Fleet
from scheduler.plan import end_state
from scheduler.types import ClusterView, DeploymentView, ScheduleRequest
from scheduler.whatif import Changes, DeploymentDiff, changed, plan

REPLICAS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class DrainCheck:
    """Whether every replica of a cluster finds another place now, and the deployments that would stay short."""

    possible: bool
    short: tuple[DeploymentDiff, ...]
    moves: tuple[DeploymentDiff, ...]


def can_drain(fleet: Fleet, cluster: str, deployments: Sequence[DeploymentView], now: int) -> DrainCheck:
    """Ask what draining a cluster would do; raises KeyError for an unknown cluster."""
    if cluster not in fleet.clusters:
        raise KeyError(f"InferenceCluster {cluster} is not known")
    result = plan(fleet, Changes(drained=(cluster,)), deployments, now)
    short = tuple(diff for diff in result.deployments if len(diff.after) < len(diff.before))
    return DrainCheck(not short, short, result.deployments)


def headroom(fleet: Fleet, deployment: DeploymentView, now: int) -> int:
    """Give the largest replica count of a deployment that still fits as a whole, up to 1,000."""
    low, high = 0, REPLICAS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        view = replace(end_state(deployment), replicas=middle)
        if decide(fleet, [ScheduleRequest("headroom", view, dry_run=True)], now)[0].shortfall:
            high = middle - 1
        else:
            low = middle
    return low


def cheapest_to_add(fleet: Fleet, deployment: DeploymentView, offers: Sequence[ClusterView], now: int) -> ClusterView | None:
    """Give the offered cluster on which what is missing of a deployment would cost least per hour, None if none is enough.

    A cluster is added alone; its price is that of the nodes the deployment would use there, and an unknown price is the dearest.
    """
    best: tuple[tuple[int, int, str], ClusterView] | None = None
    for offer in offers:
        world = changed(fleet, Changes(clusters=(offer,)), now)
        decision = decide(world, [ScheduleRequest("offer", end_state(deployment), dry_run=True)], now)[0]
        if decision.shortfall:
            continue
        unknown, cost = 0, 0
        prices = {pool.name: pool.price_milli for pool in offer.pools}
        for placement in decision.placements:
            for engine in placement.engines if placement.cluster == offer.name else ():
                for member in engine.members:
                    nodes = member.pods * engine.copies if member.requests else 0
                    price = prices.get(member.pool, -1)
                    unknown += nodes if price < 0 else 0
                    cost += nodes * max(price, 0)
        key = (unknown, cost, offer.name)
        if best is None or key < best[0]:
            best = (key, offer)
    return best[1] if best else None
