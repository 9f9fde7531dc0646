"""Which of the clusters with free capacity scores best, and which pool inside it.

A profile is a list of integer scoring functions, compared in order, lower first; the cluster's name comes last. The default, the fewest own
replicas and then the name, needs no scores: sets of clusters are in name order already, so only the clusters that are chosen are visited.
Pools are taken in published order by default; every other profile takes the least wasteful pool that fits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from api_types import labels
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.memory import memory_mebibytes
from scheduler.hardware.node_fitting import PoolOrder, Trial
from scheduler.hardware.template import CompiledTemplate, LayoutFit
from scheduler.model.inputs import DeploymentView
from scheduler.placement.constraints import Constraints

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
    """Orders the clusters that have free capacity for one deployment's next replica."""

    def __init__(
        self,
        overlay: FleetOverlay,
        deployment: DeploymentView,
        compiled: CompiledTemplate,
        trial: Callable[[ClusterInfo], Trial],
        constraints: Constraints,
    ) -> None:
        self._overlay = overlay
        self._deployment = deployment
        self._compiled = compiled
        self._trial = trial
        self._constraints = constraints
        profile = profile_of(overlay, deployment)
        self._functions = functions_of(overlay, profile)
        self._weights = tuple(overlay.options.weights.get(name, 0) for name in self._functions) if profile == WEIGHTED else ()
        # Only the engines of a PrefillDecode replica hand anything to one another.
        self._prefers_domain = deployment.policy.network_domain == "Preferred" and deployment.serving_mode == "PrefillDecode"
        self._has_preferences = constraints.has_preferences or self._prefers_domain
        # Whether two engines would share a network is known of a trial alone; all else is known of sets of clusters.
        self.spreads = self._functions == PROFILES[DEFAULT] and not self._prefers_domain
        self._preference_values = 2 if self._has_preferences else 0
        # What was computed for a cluster is valid until something is placed or vacated there.
        self._known: dict[int, tuple[Trial, tuple[int, ...]]] = {}

    def forget(self, info: ClusterInfo) -> None:
        """Drop what was computed for a cluster, because something changed there."""
        self._known.pop(info.rank, None)

    def forget_all(self) -> None:
        """Drop what was computed, because something changed that concerns every cluster."""
        self._known.clear()

    def ranked(
        self, clusters: Iterable[ClusterInfo], own: Mapping[str, int], mark_full: Callable[[ClusterInfo, Trial], None]
    ) -> Iterator[tuple[ClusterInfo, Trial]]:
        """Give the clusters with free capacity, best first; `mark_full` is called for those without."""
        heap: list[tuple[tuple[int, ...], str, ClusterInfo, Trial]] = []
        domains = self._loads_by_key(own)
        penalty = self._constraints.penalties(own)
        for info in clusters:
            known = self._known.get(info.rank)
            if known is None:
                trial = self._trial(info)
                if trial.failed >= 0:
                    mark_full(info, trial)
                    continue
                known = self._known[info.rank] = (trial, tuple(self._fixed(info, trial)))
            trial, fixed = known
            heap.append((self._key(info, own, domains, fixed, penalty), info.name, info, trial))
        if self._weights:
            heap = self._weighed(heap)
        heapq.heapify(heap)
        while heap:
            _, _, info, trial = heapq.heappop(heap)
            yield info, trial

    def _weighed(
        self, ranked: Sequence[tuple[tuple[int, ...], str, ClusterInfo, Trial]]
    ) -> list[tuple[tuple[int, ...], str, ClusterInfo, Trial]]:
        """Put the weighted sum between the preferences and the single functions, which then decide between equal sums."""
        first = self._preference_values
        columns = list(zip(*(key[first:] for key, _, _, _ in ranked), strict=True))
        bounds = [(min(column), max(column)) for column in columns]
        found = []
        for key, name, info, trial in ranked:
            total = sum(
                weight * ((value - low) * _SCALE // (high - low) if high > low else 0)
                for weight, value, (low, high) in zip(self._weights, key[first:], bounds, strict=True)
            )
            found.append(((*key[:first], total, *key[first:]), name, info, trial))
        return found

    def _key(
        self,
        info: ClusterInfo,
        own: Mapping[str, int],
        domains: Mapping[str, Mapping[str, int]],
        fixed: Sequence[int],
        penalty: Callable[[ClusterInfo], int],
    ) -> tuple[int, ...]:
        """Join the values that change with each replica and those that do not, in the order of the profile."""
        values = []
        rest = iter(fixed)
        if self._has_preferences:
            values += [next(rest), penalty(info)]
        for name in self._functions:
            if name == "spread":
                values.append(own.get(info.name, 0))
            elif ":" in name:
                key = name[len("domain:") :]
                values.append(domains[key].get(info.view.labels.get(key, ""), 0))
            else:
                values.append(next(rest))
        return tuple(values)

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
        left = {p: self._overlay.free(info)[p] for p in dict.fromkeys(trial.positions)}
        for p, engine in zip(trial.positions, fit.engines, strict=True):
            left[p] -= engine.cost
        if name == "binpack":
            return sum(left.values())
        capacity = sum(info.nodes[p] for p in left)
        return -(sum(left.values()) * _PER_MILLE // max(1, capacity))

    def scores(self, info: ClusterInfo, trial: Trial, own: Mapping[str, int]) -> dict[str, int]:
        """Give by name what is compared of a cluster with free capacity, the most important first; `trial` is how it fits there."""
        names = (*PREFERENCES[: self._preference_values], *self._functions)
        fixed = tuple(self._fixed(info, trial))
        values = self._key(info, own, self._loads_by_key(own), fixed, self._constraints.penalties(own))
        return dict(zip(names, values, strict=True))

    @property
    def adds_up(self) -> bool:
        """Whether a weighted sum of the scores is compared before the scores."""
        return bool(self._weights)

    def _loads_by_key(self, own: Mapping[str, int]) -> dict[str, dict[str, int]]:
        return {name[len("domain:") :]: self._domain_loads(name[len("domain:") :], own) for name in self._functions if ":" in name}

    def _domain_loads(self, key: str, own: Mapping[str, int]) -> dict[str, int]:
        loads: dict[str, int] = {}
        for name, count in own.items():
            info = self._overlay.clusters.get(name)
            if info is not None and count:
                value = info.view.labels.get(key, "")
                loads[value] = loads.get(value, 0) + count
        return loads


def _price(info: ClusterInfo, p: int, nodes: int) -> int:
    price = info.pools[p].price_milli
    return UNKNOWN_PRICE if price < 0 else price * nodes


def pool_order(overlay: FleetOverlay, deployment: DeploymentView, info: ClusterInfo, compiled: CompiledTemplate) -> PoolOrder | None:
    """Give the order in which pools of a cluster are tried, None for published order."""
    profile = profile_of(overlay, deployment)
    if profile == DEFAULT:
        return None
    fit: LayoutFit = compiled.on(info.layout)
    functions = functions_of(overlay, profile)
    free = overlay.free(info)

    def key(i: int, p: int) -> tuple[int, ...]:
        cost = fit.engines[i].cost
        values = []
        for name in functions:
            if name == "cost":
                values.append(_price(info, p, cost))
            elif name == "binpack":
                values.append(free[p] - cost)
            elif name == "free":
                values.append(-((free[p] - cost) * _PER_MILLE // max(1, info.nodes[p])))
        # At equal prices the smallest hardware that fits, so that large devices stay free for what needs them.
        surplus = sum(entry.count * memory_mebibytes(entry) for entry in info.pools[p].device_set.entries)
        return (*values, surplus, p) if "cost" in functions or "binpack" in functions else (surplus, *values, p)

    return lambda i, positions: sorted(positions, key=lambda p: key(i, p))
