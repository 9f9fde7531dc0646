"""Questions that a plan answers, such as whether a cluster can be drained.

The other questions are how many replicas fit and which cluster to add. The fleet is
only read. A question about one deployment among others uses a fleet in which the other
deployments are settled (`settle`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from api_types.limits import REPLICAS_MAX
from api_types.prices import UNPRICED
from scheduler.decide import decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.device_sets import device_set
from scheduler.hardware.template import charges
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.decision import Decision, Placement
from scheduler.model.fields import JsonFields
from scheduler.model.identity import Owner
from scheduler.model.inputs import (
    ClusterView,
    DeploymentView,
    LedgerEntry,
    PoolView,
    ScheduleRequest,
)
from scheduler.planning.offline import UNKNOWN_GATEWAY, Tree, price_of
from scheduler.planning.settle import end_state, settle
from scheduler.planning.whatif import (
    MAINTENANCE,
    Changes,
    DeploymentDiff,
    plan,
    with_changes,
)

# More than a thousand replicas could use, so that the pool of a fictitious cluster is
# always large enough.
_NODES_ENOUGH = 100_000


@dataclass(frozen=True, slots=True)
class DrainCheck:
    """Whether every replica of a cluster would be placed elsewhere now.

    Attributes:
        possible: no deployment would lose a replica.
        short: the deployments that would lose replicas.
        moves: every deployment with another placement.
        stays: replicas that would not be evicted, by name. True: their deployment
            tolerates the taint; False: the deployment is unknown.

    """

    possible: bool
    short: tuple[DeploymentDiff, ...]
    moves: tuple[DeploymentDiff, ...]
    stays: tuple[tuple[LedgerEntry, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Headroom:
    """The number of replicas that fit, and their clusters (cluster -> count).

    `message` says why the next replica does not fit; it is "" at the limit of 1,000.
    """

    replicas: int
    clusters: Mapping[str, int]
    message: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The effect of adding one cluster on the replicas that are not placed.

    Attributes:
        view: the cluster.
        placed: the number of missing replicas that would be placed.
        enough: whether these are all.
        nodes: pool -> nodes that they use there.
        cost_milli: price of these nodes per hour in thousandths, negative if a price is
            unknown.
        message: why the other replicas are not placed.

    """

    view: ClusterView
    placed: int
    enough: bool
    nodes: Mapping[str, int]
    cost_milli: int
    message: str


def can_drain(
    fleet: Fleet, cluster: str, deployments: Sequence[DeploymentView], now: int
) -> DrainCheck:
    """Return the effect of draining a cluster; raise KeyError for an unknown cluster."""
    if cluster not in fleet.clusters:
        raise KeyError(f"InferenceCluster {cluster} is not known")
    result = plan(fleet, Changes(drained=(cluster,)), deployments, now)
    short = tuple(
        diff for diff in result.deployments if len(diff.after) < len(diff.before)
    )
    return DrainCheck(
        not short,
        short,
        result.deployments,
        tuple(_staying(fleet, cluster, deployments)),
    )


def _staying(
    fleet: Fleet, cluster: str, deployments: Sequence[DeploymentView]
) -> Iterator[tuple[LedgerEntry, bool]]:
    tolerates: dict[Owner, bool] = {}
    for view in deployments:
        refused_by = untolerated([MAINTENANCE], view.tolerations)
        tolerates[view.namespace, view.name] = refused_by is None
    for entry in sorted(
        fleet.on_cluster(cluster).values(),
        key=lambda entry: (entry.namespace, entry.name),
    ):
        known = tolerates.get((entry.namespace, entry.deployment))
        if known is not False and entry.state != reasons.RELEASING:
            yield entry, bool(known)


def headroom(fleet: Fleet, deployment: DeploymentView, now: int) -> Headroom:
    """Find the largest replica count of a deployment that fits, up to 1,000.

    All replicas must fit at once, without preemption.
    """
    low, high = 0, REPLICAS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        if _with_replicas(fleet, deployment, middle, now).shortfall:
            high = middle - 1
        else:
            low = middle
    found = _with_replicas(fleet, deployment, low, now)
    more = (
        _with_replicas(fleet, deployment, low + 1, now).message
        if low < REPLICAS_MAX
        else ""
    )
    clusters = Counter(placement.cluster for placement in found.placements)
    return Headroom(low, dict(sorted(clusters.items())), more)


def _with_replicas(
    fleet: Fleet, deployment: DeploymentView, replicas: int, now: int
) -> Decision:
    end = end_state(deployment)
    view = replace(
        end, replicas=replicas, policy=replace(end.policy, preemption="Never")
    )
    return decide(fleet, [ScheduleRequest("headroom", view)], now)[0]


def offers(
    fleet: Fleet, deployment: DeploymentView, clusters: Sequence[ClusterView], now: int
) -> tuple[int, tuple[Offer, ...]]:
    """Return the number of missing replicas and an offer for each cluster alone.

    The best offer comes first. Sufficient clusters come before others, then the lower
    price per hour; an unknown price counts as the highest. If no replica is missing,
    there are no offers.
    """
    # Replicas that are placed now keep their place: a new cluster only gets the missing
    # ones.
    settled = settle(fleet, [deployment], now)
    present = settled.decisions[deployment.namespace, deployment.name]
    if not present.shortfall:
        return 0, ()
    placed = {placement.uid for placement in present.placements}
    found = [_offer(settled.fleet, deployment, view, placed, now) for view in clusters]
    return present.shortfall, tuple(sorted(found, key=_rank))


def _offer(
    fleet: Fleet,
    deployment: DeploymentView,
    view: ClusterView,
    placed: set[str],
    now: int,
) -> Offer:
    larger = with_changes(fleet, Changes(clusters=(view,)), now)
    decision = decide(larger, [ScheduleRequest("offer", end_state(deployment))], now)[0]
    added = [
        placement for placement in decision.placements if placement.uid not in placed
    ]
    nodes = _nodes([placement for placement in added if placement.cluster == view.name])
    prices = {pool.name: pool.price_milli for pool in view.pools}
    priced = all(prices[pool] >= 0 for pool in nodes)
    cost = (
        sum(prices[pool] * count for pool, count in nodes.items())
        if priced
        else UNPRICED
    )
    return Offer(
        view,
        len(added),
        not decision.shortfall,
        nodes,
        cost,
        decision.message if decision.shortfall else "",
    )


def _nodes(placements: Sequence[Placement]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for placement in placements:
        total.update(charges(placement.engines))
    return dict(sorted(total.items()))


def _rank(offer: Offer) -> tuple[bool, int, bool, int, str]:
    return (
        not offer.enough,
        0 if offer.enough else -offer.placed,
        offer.cost_milli < 0,
        offer.cost_milli,
        offer.view.name,
    )


def cluster_of_class(manifest: Tree, deployment: DeploymentView) -> ClusterView:
    """Return a fictitious cluster with one pool of a class, as large as needed.

    The deployment and its cache select the cluster.
    """
    name = manifest["metadata"]["name"]
    pool = PoolView(
        name,
        _NODES_ENOUGH,
        device_set(
            JsonFields(manifest["spec"], f"InferenceClass {name}: spec").objects(
                "devices"
            ),
            count_default=1,
        ),
        name,
        price_milli=price_of(manifest),
    )
    return ClusterView(
        # Not a valid name of an existing cluster.
        f"class/{name}",
        labels={**deployment.match_labels, **deployment.cache.match_labels},
        ready=True,
        gateway_address=UNKNOWN_GATEWAY,
        cache_storage_class="unknown",
        pools=(pool,),
    )
