"""The order of clusters with free capacity, and of the pools inside a cluster.

A profile is a list of integer scoring functions, compared in order. A lower score is
better. The cluster's name comes last. The default profile (fewest own replicas, then
name) needs no scores: sets of clusters are in name order already, so only chosen
clusters are visited. By default pools are used in published order. Every other profile
uses the fitting pool that wastes the least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from api_types import labels
from scheduler.fleet.caches.tried_clusters import TriedClusters
from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet, ranks_of
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.memory import node_memory_mebibytes
from scheduler.hardware.node_fitting import PoolOrder, Trial
from scheduler.hardware.template import CompiledTemplate, LayoutFit
from scheduler.model.inputs import DeploymentView
from scheduler.placement.constraints import Constraints
from scheduler.placement.ranking import Levels, OwnReplicas

DEFAULT = "default"
PROFILES: Mapping[str, tuple[str, ...]] = {
    DEFAULT: ("spread",),
    "balanced": ("spread", "free"),
    "dense": ("binpack", "spread"),
    "cheap": ("cost", "spread"),
    "near": ("locality", "spread"),
    "resilient": (f"domain:{labels.REGION}", f"domain:{labels.ZONE}", "spread", "free"),
}
# The profile that compares a weighted sum of its functions instead of each in order.
# The weights are in the fleet's policy.
WEIGHTED = "weighted"
WEIGHABLE = (
    "spread",
    "free",
    "binpack",
    "cost",
    "locality",
    f"domain:{labels.REGION}",
    f"domain:{labels.ZONE}",
)
# Each function is scaled from 0 (the best candidate) to this value (the worst).
_SCALE = 100
# Above every price, so that an unknown price comes last.
UNKNOWN_PRICE = 1 << 60
# Compared before the functions of the profile, if there are any: the networks of the
# engines, and unmet preferences.
PREFERENCES = ("networks", "preferences")
CACHE_PHASES = {"Ready": 0, "Hydrating": 1, "Pending": 2, "": 3, "Failed": 4}
_PER_MILLE = 1000
# The column of the weighted sums.
_SUM = "sum"
# Outcomes of trials, and the clusters they apply to.
Parts = Sequence[tuple[TriedClusters, ClusterSet]]


def profile_of(overlay: FleetOverlay, deployment: DeploymentView) -> str:
    """Return the profile in force: the deployment's own, else the fleet's.

    An unknown name counts as the default.
    """
    name = deployment.policy.profile or overlay.options.profile
    is_known = name in PROFILES or name == WEIGHTED
    return name if is_known and overlay.rules.use_profiles else DEFAULT


def functions_of(overlay: FleetOverlay, profile: str) -> tuple[str, ...]:
    """Return the scoring functions of a profile, the most important first."""
    if profile != WEIGHTED:
        return PROFILES[profile]
    weights = overlay.options.weights
    if not weights:
        return PROFILES[DEFAULT]
    return tuple(
        sorted(weights, key=lambda name: (-weights[name], WEIGHABLE.index(name)))
    )


class ClusterScorer:
    """Orders the clusters that have free capacity for one deployment's next replica.

    `own` counts the deployment's replicas; the placer updates it.
    """

    def __init__(
        self,
        overlay: FleetOverlay,
        deployment: DeploymentView,
        compiled: CompiledTemplate,
        constraints: Constraints,
        own: OwnReplicas,
    ) -> None:
        self._overlay = overlay
        self._deployment = deployment
        self._compiled = compiled
        self._constraints = constraints
        self._own = own
        profile = profile_of(overlay, deployment)
        self._functions = functions_of(overlay, profile)
        self._weights: tuple[int, ...] = ()
        if profile == WEIGHTED:
            weights = overlay.options.weights
            self._weights = tuple(weights.get(name, 0) for name in self._functions)
        # Only the engines of a PrefillDecode replica exchange data.
        self._prefers_domain = (
            deployment.policy.network_domain == "Preferred"
            and deployment.serving_mode == "PrefillDecode"
        )
        self._has_preferences = constraints.has_preferences or self._prefers_domain
        # Only a trial shows whether two engines would share a network. All other scores
        # are known for sets of clusters.
        self.spreads = self._functions == PROFILES[DEFAULT] and not self._prefers_domain
        self._bounds: dict[str, tuple[int, int]] = {}
        # These functions count own replicas: each placement changes their scores on
        # many clusters.
        self._counting = [
            name for name in self._functions if name == "spread" or ":" in name
        ]
        self._phases = self._by_phase() if "locality" in self._functions else Levels()

    def ranked(self, tried: Parts) -> Iterator[tuple[ClusterInfo, Trial]]:
        """Yield the clusters with free capacity, the best first."""
        parts = [
            (outcomes, ClusterSet(clusters & outcomes.fitting))
            for outcomes, clusters in tried
        ]
        parts = [(outcomes, clusters) for outcomes, clusters in parts if clusters]
        for outcomes, clusters in parts:
            self._score(outcomes, clusters)
        if parts and self._weights:
            self._weigh(parts)
        while parts:
            best = self._best(parts)
            rank = (best & -best).bit_length() - 1
            owner = next(
                outcomes for outcomes, clusters in parts if clusters >> rank & 1
            )
            parts = [
                (outcomes, ClusterSet(left & ~(1 << rank))) for outcomes, left in parts
            ]
            parts = [(outcomes, left) for outcomes, left in parts if left]
            yield self._overlay.index.ranked[rank], owner.trials[rank]

    def _score(self, outcomes: TriedClusters, clusters: ClusterSet) -> None:
        """Compute the scores of clusters that have none yet."""
        for name in self._fixed_names():
            column = outcomes.column(name)
            infos = self._overlay.index.each(ClusterSet(clusters & ~column.known))
            trials = outcomes.trials
            column.put(
                {
                    info.rank: self._value(name, info, trials[info.rank])
                    for info in infos
                }
            )

    def _best(self, parts: Parts) -> ClusterSet:
        """Return the best of some clusters, or several if all their scores are equal."""
        best = _union(parts)
        if self._prefers_domain:
            best = _lowest(PREFERENCES[0], parts, best)
        if self._has_preferences:
            best = next(self._constraints.by_preference(best, self._own.by_name))
        if self._weights:
            best = self._lowest_sum(parts, best)
        for name in self._functions:
            if not best & (best - 1):
                break
            levels = self._levels(name)
            best = levels.lowest(best) if levels else _lowest(name, parts, best)
        return best

    def _levels(self, name: str) -> Levels | None:
        """Return the levels of a function, or None if it scores single clusters."""
        if name == "spread":
            return self._own.clusters
        if name == "locality":
            return self._phases
        return self._own.domains[name.partition(":")[2]] if ":" in name else None

    def _by_phase(self) -> Levels:
        """Return the clusters by the phase of the deployment's cache there."""
        index, levels = self._overlay.index, Levels()
        names: dict[int, list[str]] = {}
        for name, phase in self._deployment.cache.phases.items():
            names.setdefault(CACHE_PHASES.get(phase, CACHE_PHASES[""]), []).append(name)
        unstaged: int = index.everything & ~index.named(self._deployment.cache.phases)
        for value in sorted({*names, CACHE_PHASES[""]}):
            clusters: int = index.named(names.get(value, ()))
            if value == CACHE_PHASES[""]:
                clusters |= unstaged
            levels.add(str(value), ClusterSet(clusters), value)
        return levels

    # The weighted sum

    def _weigh(self, parts: Parts) -> None:
        """Scale the scores of single clusters.

        The ends of the scale are the best and the worst at the beginning of the
        decision.
        """
        if not self._bounds:
            fixed = [name for name in self._functions if name not in self._counting]
            self._bounds = {name: self._ends(name, parts) for name in fixed}
        for outcomes, clusters in parts:
            if outcomes.bounds != self._bounds:
                outcomes.bounds = self._bounds
                outcomes.columns.pop(_SUM, None)
            sums = outcomes.column(_SUM)
            ranks = list(ranks_of(ClusterSet(clusters & ~sums.known)))
            sums.put(self._added_up(outcomes, ranks))

    def _ends(self, name: str, parts: Parts) -> tuple[int, int]:
        levels = self._levels(name)
        if levels:
            values = [value for value, _ in levels.ascending(_union(parts))]
            return values[0], values[-1]
        ends = [outcomes.columns[name].bounds(clusters) for outcomes, clusters in parts]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def _added_up(
        self, outcomes: TriedClusters, ranks: Sequence[int]
    ) -> dict[int, int]:
        sums = dict.fromkeys(ranks, 0)
        for name, weight in zip(self._functions, self._weights, strict=True):
            if not self._levels(name):
                low, high = self._bounds[name]
                values = outcomes.columns[name].values
                for rank in sums:
                    sums[rank] += weight * _scaled(values[rank], low, high)
        return sums

    def _lowest_sum(self, tried: Parts, clusters: ClusterSet) -> ClusterSet:
        """Return the clusters with the lowest sum of weighted scores."""
        parts = {0: clusters}
        for name, weight in zip(self._functions, self._weights, strict=True):
            levels = self._levels(name)
            if levels is None:
                continue
            counts = self._bounds.get(name) or [
                count for count, _ in levels.ascending(clusters)
            ]
            found: dict[int, ClusterSet] = {}
            for total, part in parts.items():
                for count, some in levels.ascending(part):
                    value = total + weight * _scaled(count, counts[0], counts[-1])
                    found[value] = ClusterSet(found.get(value, 0) | some)
            parts = found
        lowest, best = -1, NO_CLUSTERS
        for total in sorted(parts):
            if 0 <= lowest < total:
                break
            least, some = _least(_SUM, tried, parts[total])
            if lowest < 0 or total + least < lowest:
                lowest, best = total + least, some
            elif total + least == lowest:
                best = ClusterSet(best | some)
        return best

    # The scores of one cluster

    def _fixed_names(self) -> list[str]:
        """Return the names of the scores that belong to single clusters."""
        first = [PREFERENCES[0]] if self._prefers_domain else []
        return first + [name for name in self._functions if not self._levels(name)]

    def _value(self, name: str, info: ClusterInfo, trial: Trial) -> int:
        if name == PREFERENCES[0]:
            return int(len({info.pools[p].network_domain for p in trial.positions}) > 1)
        fit = self._compiled.on(info.layout)
        if name == "cost":
            return sum(
                _price(info, p, engine.cost)
                for p, engine in zip(trial.positions, fit.engines, strict=True)
            )
        free = self._overlay.free(info)
        left = {p: free[p] for p in dict.fromkeys(trial.positions)}
        for p, engine in zip(trial.positions, fit.engines, strict=True):
            left[p] -= engine.cost
        if name == "binpack":
            return sum(left.values())
        capacity = sum(info.nodes[p] for p in left)
        return -(sum(left.values()) * _PER_MILLE // max(1, capacity))

    def scores(self, info: ClusterInfo, trial: Trial) -> dict[str, int]:
        """Return the scores that are compared for a cluster, the most important first.

        `trial` is the outcome of a trial there.
        """
        found = {name: self._value(name, info, trial) for name in self._fixed_names()}
        found.setdefault(PREFERENCES[0], 0)
        one = ClusterSet(1 << info.rank)
        if self._has_preferences:
            found[PREFERENCES[1]] = self._constraints.penalties(self._own.by_name)(info)
        for name in self._functions:
            levels = self._levels(name)
            if levels is not None:
                found[name] = next(count for count, _ in levels.ascending(one))
        names = self._functions
        if self._has_preferences:
            names = (*PREFERENCES, *names)
        return {name: found[name] for name in names}

    @property
    def adds_up(self) -> bool:
        """Return whether a weighted sum is compared before the scores."""
        return bool(self._weights)


def _union(parts: Parts) -> ClusterSet:
    return ClusterSet(reduce(or_, (clusters for _, clusters in parts), 0))


def _least(name: str, parts: Parts, within: ClusterSet) -> tuple[int, ClusterSet]:
    """Return the lowest score among some clusters of the parts, and its clusters."""
    asked = [
        (outcomes.columns[name], ClusterSet(clusters & within))
        for outcomes, clusters in parts
    ]
    found = [column.least(clusters) for column, clusters in asked if clusters]
    lowest = min(value for value, _ in found)
    best = (clusters for value, clusters in found if value == lowest)
    return lowest, ClusterSet(reduce(or_, best, 0))


def _lowest(name: str, parts: Parts, within: ClusterSet) -> ClusterSet:
    return _least(name, parts, within)[1]


def domain_keys(overlay: FleetOverlay, deployment: DeploymentView) -> list[str]:
    """Return the cluster labels whose values are domains in the profile in force."""
    return [
        name.partition(":")[2]
        for name in functions_of(overlay, profile_of(overlay, deployment))
        if ":" in name
    ]


def _scaled(value: int, low: int, high: int) -> int:
    """Scale a score to 0 (the best) to 100 (the worst).

    A score beyond the bounds counts as the bound.
    """
    return (
        (min(max(value, low), high) - low) * _SCALE // (high - low) if high > low else 0
    )


def _price(info: ClusterInfo, p: int, nodes: int) -> int:
    price = info.pools[p].price_milli
    return UNKNOWN_PRICE if price < 0 else price * nodes


def pool_order(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    info: ClusterInfo,
    compiled: CompiledTemplate,
) -> PoolOrder | None:
    """Return the order in which pools of a cluster are tried.

    None for published order.
    """
    profile = profile_of(overlay, deployment)
    if profile == DEFAULT:
        return None
    fit: LayoutFit = compiled.on(info.layout)
    functions = [
        name
        for name in functions_of(overlay, profile)
        if name in ("cost", "binpack", "free")
    ]
    free = overlay.free(info)
    # At equal prices the smallest hardware that fits comes first, so that large devices
    # stay free.
    by_score = "cost" in functions or "binpack" in functions

    def order(i: int, positions: Sequence[int]) -> Sequence[int]:
        cost = fit.engines[i].cost
        keys = []
        for p in positions:
            left = free[p] - cost
            values = []
            for name in functions:
                if name == "cost":
                    values.append(_price(info, p, cost))
                elif name == "binpack":
                    values.append(left)
                else:
                    values.append(-(left * _PER_MILLE // max(1, info.nodes[p])))
            surplus = node_memory_mebibytes(info.pools[p].device_set)
            keys.append((*values, surplus, p) if by_score else (surplus, *values, p))
        keys.sort()
        return [key[-1] for key in keys]

    return order
