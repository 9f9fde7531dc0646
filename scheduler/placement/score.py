"""Which of the clusters with free capacity scores best, and which pool inside it.

A profile is a list of integer scoring functions, compared in order, lower first; the cluster's name comes last. The default, the fewest own
replicas and then the name, needs no scores: sets of clusters are in name order already, so only the clusters that are chosen are visited.
Pools are taken in published order by default; every other profile takes the least wasteful pool that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from api_types import labels
from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet, bits
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.memory import node_memory_mebibytes
from scheduler.hardware.node_fitting import PoolOrder, Trial
from scheduler.hardware.template import CompiledTemplate, LayoutFit
from scheduler.model.inputs import DeploymentView
from scheduler.placement.constraints import Constraints
from scheduler.placement.ranking import Column, Levels, OwnReplicas

DEFAULT = "default"
PROFILES: Mapping[str, tuple[str, ...]] = {
    DEFAULT: ("spread",),
    "balanced": ("spread", "free"),
    "dense": ("binpack", "spread"),
    "cheap": ("cost", "spread"),
    "near": ("locality", "spread"),
    "resilient": (f"domain:{labels.REGION}", f"domain:{labels.ZONE}", "spread", "free"),
}
# The profile that adds up its functions, each times its weight in the fleet's policy, instead of comparing them in order.
WEIGHTED = "weighted"
WEIGHABLE = ("spread", "free", "binpack", "cost", "locality", f"domain:{labels.REGION}", f"domain:{labels.ZONE}")
# Each function is brought to 0 (the best of all candidates) to this (the worst).
_SCALE = 100
# Above every price: an unknown price comes last.
UNKNOWN_PRICE = 1 << 60
# Compared before the functions of the profile, where there are any: networks that the engines are in, and preferences that are not met.
PREFERENCES = ("networks", "preferences")
CACHE_PHASES = {"Ready": 0, "Hydrating": 1, "Pending": 2, "": 3, "Failed": 4}
_PER_MILLE = 1000


def profile_of(overlay: FleetOverlay, deployment: DeploymentView) -> str:
    """Give the profile in force: the deployment's own, else the fleet's; an unknown name counts as the default."""
    name = deployment.policy.profile or overlay.options.profile
    return name if (name in PROFILES or name == WEIGHTED) and overlay.rules.use_profiles else DEFAULT


def functions_of(overlay: FleetOverlay, profile: str) -> tuple[str, ...]:
    """Give the scoring functions of a profile, the most important first."""
    if profile != WEIGHTED:
        return PROFILES[profile]
    weights = overlay.options.weights
    return tuple(sorted(weights, key=lambda name: (-weights[name], WEIGHABLE.index(name)))) or PROFILES[DEFAULT]


class ClusterScorer:
    """Orders the clusters that have free capacity for one deployment's next replica.

    `own` counts the deployment's replicas; whoever places or vacates one keeps it up to date.
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
        self._weights = tuple(overlay.options.weights.get(name, 0) for name in self._functions) if profile == WEIGHTED else ()
        # Only the engines of a PrefillDecode replica hand anything to one another.
        self._prefers_domain = deployment.policy.network_domain == "Preferred" and deployment.serving_mode == "PrefillDecode"
        self._has_preferences = constraints.has_preferences or self._prefers_domain
        # Whether two engines would share a network is known of a trial alone; all else is known of sets of clusters.
        self.spreads = self._functions == PROFILES[DEFAULT] and not self._prefers_domain
        # The trial of a cluster is valid until a replica is placed or vacated there.
        self._trials: dict[int, Trial] = {}
        self._fitting = NO_CLUSTERS
        self._columns = {name: Column(len(overlay.index.ranked)) for name in self._fixed_names()}
        # The scores that belong to a cluster, weighed and added up; only with weights.
        self._sums = Column(len(overlay.index.ranked))
        self._bounds: dict[str, tuple[int, int]] = {}

    def forget(self, info: ClusterInfo) -> None:
        """Drop what was computed for a cluster, because something changed there."""
        if self._trials.pop(info.rank, None) is not None:
            self._fitting = ClusterSet(self._fitting & ~(1 << info.rank))
            for column in self._columns.values():
                column.remove(info.rank)
            if self._bounds:
                self._sums.remove(info.rank)

    def forget_all(self) -> None:
        """Drop what was computed, because something changed that concerns every cluster."""
        self._trials.clear()
        self._fitting = NO_CLUSTERS
        size = len(self._overlay.index.ranked)
        self._columns = {name: Column(size) for name in self._columns}
        self._sums = Column(size)

    def ranked(
        self, allowed: ClusterSet, trial_on: Callable[[ClusterInfo], Trial], mark_full: Callable[[ClusterInfo, Trial], None]
    ) -> Iterator[tuple[ClusterInfo, Trial]]:
        """Return the clusters with free capacity, best first. `mark_full` is called for clusters without."""
        trials = [(info, trial_on(info)) for info in self._overlay.index.each(ClusterSet(allowed & ~self._fitting))]
        for info, trial in trials:
            if trial.failed >= 0:
                mark_full(info, trial)
        self._keep({info: trial for info, trial in trials if trial.failed < 0})
        left = ClusterSet(allowed & self._fitting)
        if left and self._weights and not self._bounds:
            self._weigh(left)
        while left:
            best = self._best(left)
            rank = (best & -best).bit_length() - 1
            left = ClusterSet(left & ~(1 << rank))
            yield self._overlay.index.ranked[rank], self._trials[rank]

    def _keep(self, found: Mapping[ClusterInfo, Trial]) -> None:
        """Keep the scores of clusters with free capacity."""
        fixed: dict[str, dict[int, int]] = {name: {} for name in self._columns}
        for info, trial in found.items():
            self._trials[info.rank] = trial
            for name, value in zip(fixed, self._fixed(info, trial), strict=True):
                fixed[name][info.rank] = value
        for name, values in fixed.items():
            self._columns[name].put(values)
        ranks = [info.rank for info in found]
        self._fitting = ClusterSet(self._fitting | bits(ranks, len(self._overlay.index.ranked)))
        if self._bounds:
            self._add_up(ranks)

    def _best(self, clusters: ClusterSet) -> ClusterSet:
        """Return the best of some clusters, or several if all their scores are equal."""
        if self._has_preferences:
            clusters = self._columns[PREFERENCES[0]].lowest(clusters)
            clusters = self._constraints.by_preference(clusters, self._own.by_name)[0]
        if self._weights:
            clusters = self._lowest_sum(clusters)
        for name in self._functions:
            if not clusters & (clusters - 1):
                break
            levels = self._levels(name)
            clusters = levels.lowest(clusters) if levels else self._columns[name].lowest(clusters)
        return clusters

    def _levels(self, name: str) -> Levels | None:
        """Return the counts that a function compares, or None if its scores belong to a cluster."""
        if name == "spread":
            return self._own.clusters
        return self._own.domains[name.partition(":")[2]] if ":" in name else None

    # --- the weighted sum ---------------------------------------------------------------------------------------------------------------

    def _weigh(self, clusters: ClusterSet) -> None:
        """Bring the scores that belong to a cluster to one scale. Its ends are the best and the worst at the beginning of the decision."""
        self._bounds = {name: self._columns[name].bounds(clusters) for name in self._functions if not self._levels(name)}
        # Where only counts are weighed, too.
        self._bounds[""] = (0, 0)
        self._add_up(self._trials)

    def _add_up(self, ranks: Iterable[int]) -> None:
        sums = dict.fromkeys(ranks, 0)
        for name, weight in zip(self._functions, self._weights, strict=True):
            if not self._levels(name):
                low, high = self._bounds[name]
                values = self._columns[name].values
                for rank in sums:
                    sums[rank] += weight * _scaled(values[rank], low, high)
        self._sums.put(sums)

    def _lowest_sum(self, clusters: ClusterSet) -> ClusterSet:
        """Return the clusters with the lowest sum of weighed scores."""
        parts = {0: clusters}
        for name, weight in zip(self._functions, self._weights, strict=True):
            levels = self._levels(name)
            if levels is None:
                continue
            counts = [count for count, _ in levels.ascending(clusters)]
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
            least, some = self._sums.least(parts[total])
            if lowest < 0 or total + least < lowest:
                lowest, best = total + least, some
            elif total + least == lowest:
                best = ClusterSet(best | some)
        return best

    # --- the scores of one cluster --------------------------------------------------------------------------------------------------------

    def _fixed_names(self) -> list[str]:
        """Name the scores that belong to a cluster, in the order of `_fixed`."""
        first = [PREFERENCES[0]] if self._has_preferences else []
        return first + [name for name in self._functions if not self._levels(name)]

    def _fixed(self, info: ClusterInfo, trial: Trial) -> Iterator[int]:
        if self._has_preferences:
            yield int(self._prefers_domain and len({info.pools[p].network_domain for p in trial.positions}) > 1)
        for name in self._functions:
            if name != "spread" and ":" not in name:
                yield self._value(name, info, trial)

    def _value(self, name: str, info: ClusterInfo, trial: Trial) -> int:
        if name == "locality":
            return CACHE_PHASES.get(self._deployment.cache.phases.get(info.name, ""), CACHE_PHASES[""])
        fit = self._compiled.on(info.layout)
        if name == "cost":
            return sum(_price(info, p, engine.cost) for p, engine in zip(trial.positions, fit.engines, strict=True))
        free = self._overlay.free(info)
        left = {p: free[p] for p in dict.fromkeys(trial.positions)}
        for p, engine in zip(trial.positions, fit.engines, strict=True):
            left[p] -= engine.cost
        if name == "binpack":
            return sum(left.values())
        capacity = sum(info.nodes[p] for p in left)
        return -(sum(left.values()) * _PER_MILLE // max(1, capacity))

    def scores(self, info: ClusterInfo, trial: Trial) -> dict[str, int]:
        """Give by name what is compared of a cluster with free capacity, the most important first; `trial` is how it fits there."""
        found = dict(zip(self._columns, self._fixed(info, trial), strict=True))
        one = ClusterSet(1 << info.rank)
        if self._has_preferences:
            found[PREFERENCES[1]] = self._constraints.penalties(self._own.by_name)(info)
        for name in self._functions:
            if levels := self._levels(name):
                found[name] = next(count for count, _ in levels.ascending(one))
        return {name: found[name] for name in (*(PREFERENCES if self._has_preferences else ()), *self._functions)}

    @property
    def adds_up(self) -> bool:
        """Whether a weighted sum of the scores is compared before the scores."""
        return bool(self._weights)


def domain_keys(overlay: FleetOverlay, deployment: DeploymentView) -> list[str]:
    """Return the cluster labels whose values are domains in the profile in force."""
    return [name.partition(":")[2] for name in functions_of(overlay, profile_of(overlay, deployment)) if ":" in name]


def _scaled(value: int, low: int, high: int) -> int:
    """Scale a score to 0 (the best) to 100 (the worst). A score beyond the bounds counts as the bound."""
    return (min(max(value, low), high) - low) * _SCALE // (high - low) if high > low else 0


def _price(info: ClusterInfo, p: int, nodes: int) -> int:
    price = info.pools[p].price_milli
    return UNKNOWN_PRICE if price < 0 else price * nodes


def pool_order(overlay: FleetOverlay, deployment: DeploymentView, info: ClusterInfo, compiled: CompiledTemplate) -> PoolOrder | None:
    """Give the order in which pools of a cluster are tried, None for published order."""
    profile = profile_of(overlay, deployment)
    if profile == DEFAULT:
        return None
    fit: LayoutFit = compiled.on(info.layout)
    functions = [name for name in functions_of(overlay, profile) if name in ("cost", "binpack", "free")]
    free = overlay.free(info)
    # At equal prices the smallest hardware that fits comes first, so that large devices stay free.
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
                else:
                    values.append(left if name == "binpack" else -(left * _PER_MILLE // max(1, info.nodes[p])))
            surplus = node_memory_mebibytes(info.pools[p].device_set)
            keys.append((*values, surplus, p) if by_score else (surplus, *values, p))
        keys.sort()
        return [key[-1] for key in keys]

    return order
