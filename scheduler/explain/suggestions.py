"""Changes that would make one more replica fit, the cheapest first; each one is tried.

Changes without cost come first: correcting a mistyped label, a toleration, a label on a
cluster. Then come additional nodes, sorted by price and then by number. A weaker
request is suggested only if no cluster passes the filters, because it changes the
hardware that the model runs on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from api_types import labels
from scheduler.explain.fleet_names import near_label
from scheduler.explain.near_miss import Miss, capacity_miss
from scheduler.explain.refusals import refusal
from scheduler.explain.weaker_request import weaker_engines
from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.hardware.memory import memory_mebibytes
from scheduler.hardware.template import compile_template, placing_units
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.decision import Placement
from scheduler.model.inputs import ClusterTaint, DeviceSet, PoolView
from scheduler.placement.filters import FilterResult, passing, run_filters
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.retain import taint_text

SUGGESTIONS_MAX = 3
# Limits of the clusters on which one change is tried, of the clusters with too few
# nodes that an explanation compares, and of the device sets for weaker requests.
_TRIED_MAX = 8
_COMPARED_MAX = 1_000
_SETS_MAX = 8


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that makes one more replica fit.

    Attributes:
        kind: ClusterSelector, Toleration, Request, ClusterLabel or Nodes.
        text: the change, to be read after "with".
        cluster: the cluster that would take the replica.
        nodes: nodes to add per pool.
        cost_milli: cost of these nodes per hour in thousandths; 0 without nodes, negative if a
            price is unknown.

    """

    kind: str
    text: str
    cluster: str
    nodes: tuple[tuple[str, int], ...] = ()
    cost_milli: int = 0


class Suggestions:
    """Searches for changes for one deployment.

    `rest` is the number of replicas of a gang that remain to be placed, 1 without a
    gang.
    """

    def __init__(self, placer: ReplicaPlacer, rest: int = 1) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._rest = rest
        self._results = run_filters(placer.overlay, placer.deployment, placer.compiled)
        self._allowed = placer.constraints.allowed(placer.own)

    def first(self, nearest: Miss | None) -> Suggestion | None:
        """Return the cheapest suggestion; for nodes, try the nearest miss only.

        If its cloud has no more nodes, try the others.
        """
        return next(self._found(self._nearest_or_others(nearest)), None)

    def _nearest_or_others(self, nearest: Miss | None) -> Iterator[Miss]:
        if nearest is None:
            return
        if self.shortage(nearest):
            yield from self._misses()
        else:
            yield nearest

    def shortage(self, miss: Miss) -> str:
        """Return why the cloud has no nodes for a missing pool, or ""."""
        wanted = {need.pool for need in miss.needs if need.gap} or {miss.pool}
        for pool in self._overlay.clusters[miss.cluster].pools:
            if pool.name in wanted and pool.shortage:
                return f"on {miss.cluster}/{pool.name} {pool.shortage}"
        return ""

    def all(self) -> tuple[Suggestion, ...]:
        """Return the cheapest suggestions, each text once."""
        found: dict[str, Suggestion] = {}
        for suggestion in self._found(self._misses()):
            found.setdefault(suggestion.text, suggestion)
            if len(found) == SUGGESTIONS_MAX:
                break
        return tuple(found.values())

    def _found(self, misses: Iterable[Miss]) -> Iterator[Suggestion]:
        if self._rest == 1:
            yield from self._other_label()
            yield from self._tolerations()
            if not passing(self._results, self._overlay.index.everything):
                yield from self._weaker()
            yield from self._labels(absent=True)
        for miss in islice(misses, SUGGESTIONS_MAX):
            yield from self._nodes(miss)
        if self._rest == 1:
            yield from self._labels(absent=False)

    def _only_failing(self, code: str) -> ClusterSet:
        """Return the clusters that fail this filter and no other."""
        others = [result for result in self._results if result.code != code]
        failing = next(
            (result for result in self._results if result.code == code),
            FilterResult(code, self._overlay.index.everything),
        )
        return ClusterSet(
            passing(others, self._overlay.index.everything) & ~failing.passing
        )

    def _first_fitting(self, clusters: ClusterSet) -> ClusterInfo | None:
        infos = islice(self._overlay.index.each(clusters), _TRIED_MAX)
        return next((info for info in infos if self._fits(self._placer, info)), None)

    def _fits(self, placer: ReplicaPlacer, info: ClusterInfo) -> bool:
        """Return whether a replica fits on a cluster, ignoring the cluster filters."""
        if placer.compiled.on(info.layout).blocked >= 0:
            return False
        return refusal(placer, info, placer.trial(info), self._allowed) is None

    def _other_label(self) -> Iterator[Suggestion]:
        """Suggest an existing label for a mistyped one."""
        index, wanted = self._overlay.index, self._placer.deployment.match_labels
        absent = [
            (key, value)
            for key, value in wanted.items()
            if (key, value) not in index.labels
        ]
        # With two unknown labels, changing one of them is not enough.
        near = near_label(self._overlay, *absent[0]) if len(absent) == 1 else None
        if near is None:
            return
        key, value = absent[0]
        meant = {**{k: v for k, v in wanted.items() if k != key}, near[0]: near[1]}
        info = self._first_fitting(
            ClusterSet(self._only_failing(reasons.LABEL_MISMATCH) & index.having(meant))
        )
        if info is not None:
            yield Suggestion(
                "ClusterSelector",
                f"clusterSelector {near[0]}={near[1]} instead of {key}={value}",
                info.name,
            )

    def _tolerations(self) -> Iterator[Suggestion]:
        tainted = self._only_failing(reasons.TAINTED)
        tolerated = self._placer.deployment.tolerations
        for listed, clusters in sorted(
            self._overlay.index.tainted.items(),
            key=lambda item: (len(item[0]), _taints_text(item[0])),
        ):
            missing = tuple(
                taint for taint in listed if untolerated([taint], tolerated) is not None
            )
            # A drained or cordoned cluster is left empty on purpose.
            if not missing or any(taint.key == labels.MAINTENANCE for taint in missing):
                continue
            info = self._first_fitting(ClusterSet(tainted & clusters))
            if info is not None:
                yield Suggestion(
                    "Toleration", f"a toleration for {_taints_text(missing)}", info.name
                )

    def _labels(self, *, absent: bool) -> Iterator[Suggestion]:
        """Suggest labelling a cluster.

        With `absent`, suggest only a label that no cluster has. Otherwise the cluster
        may lack the label on purpose, and the suggestion comes last.
        """
        index, wanted = self._overlay.index, self._placer.deployment.match_labels
        for info in islice(
            index.each(self._only_failing(reasons.LABEL_MISMATCH)), _TRIED_MAX
        ):
            missing = [
                (key, value)
                for key, value in sorted(wanted.items())
                if info.view.labels.get(key) != value
            ]
            if (
                len(missing) == 1
                and (missing[0] not in index.labels) == absent
                and self._fits(self._placer, info)
            ):
                yield Suggestion(
                    "ClusterLabel",
                    f"label {missing[0][0]}={missing[0][1]} on cluster {info.name}",
                    info.name,
                )

    def _weaker(self) -> Iterator[Suggestion]:
        """Suggest the smallest reduction of a bound that makes some pool fit."""
        placer = self._placer
        infos = list(
            islice(
                self._overlay.index.each(self._only_failing(reasons.NO_POOL_MATCHES)),
                _TRIED_MAX,
            )
        )
        sets: dict[str, DeviceSet] = {}
        for info in infos:
            for pool in info.pools:
                if pool.takes_new:
                    sets[pool.device_set.digest] = pool.device_set
        rules = placer.compiled.rules
        for devices in sorted(
            sets.values(), key=lambda devices: (-_memory(devices), devices.digest)
        )[:_SETS_MAX]:
            changed = weaker_engines(placer.deployment.engines, rules, devices)
            if changed is None:
                continue
            engines, text = changed
            request = replace(
                placer.request, deployment=replace(placer.deployment, engines=engines)
            )
            compiled = compile_template(placing_units(engines), rules)
            other = ReplicaPlacer(self._overlay, request, compiled, (), placer.quota)
            fitting = next((info for info in infos if self._fits(other, info)), None)
            if fitting is not None:
                yield Suggestion("Request", text, fitting.name)

    def _misses(self) -> list[Miss]:
        """Return the misses of the clusters that lack nodes and whose cloud has some.

        They are sorted by price, then by number of nodes, then by cluster name.
        """
        placer = self._placer
        found: list[tuple[tuple[bool, int, int, str], Miss]] = []
        for info in islice(
            self._overlay.index.each(
                passing(self._results, self._overlay.index.everything)
            ),
            _COMPARED_MAX,
        ):
            trial = placer.trial(info)
            if trial.failed >= 0 and not trial.violation:
                miss = capacity_miss(placer, info, trial.failed, growable=True)
                if self.shortage(miss):
                    # A larger pool is no help while the cloud provides no nodes.
                    continue
                cost = self._cost(info, dict(self._missing(miss)))
                found.append(((cost < 0, cost, miss.gap, info.name), miss))
        return [miss for _, miss in sorted(found, key=lambda row: row[0])]

    def _missing(self, miss: Miss) -> Iterator[tuple[str, int]]:
        """Yield the nodes to add per pool, including those for the rest of the gang.

        Yield nothing if a gang needs several pools.
        """
        if self._rest > 1 and len(miss.needs) > 1:
            return
        for need in miss.needs:
            nodes = need.gap + (self._rest - 1) * need.nodes
            if nodes:
                yield need.pool, nodes

    def _nodes(self, miss: Miss) -> Iterator[Suggestion]:
        info = self._overlay.clusters[miss.cluster]
        more = dict(self._missing(miss))
        if more and self._takes_rest(with_more_nodes(info, more)):
            parts = [
                f"{_more_nodes(nodes)} in {info.name}/{pool}"
                for pool, nodes in more.items()
            ]
            yield Suggestion(
                "Nodes",
                " and ".join(parts),
                info.name,
                tuple(more.items()),
                self._cost(info, more),
            )

    def _takes_rest(self, info: ClusterInfo) -> bool:
        """Return whether a cluster takes all replicas that must be placed together.

        The constraints may allow the first replica of a gang and reject the second.
        """
        if self._rest == 1:
            return self._fits(self._placer, info)
        placer = self._placer
        made: list[Placement] = []
        while (
            len(made) < self._rest
            and placer.constraints.allowed(placer.own) >> info.rank & 1
        ):
            placement = placer.place_on(info)
            if placement is None:
                break
            made.append(placement)
        for placement in reversed(made):
            placer.undo(placement)
        return len(made) == self._rest

    @staticmethod
    def _cost(info: ClusterInfo, nodes: Mapping[str, int]) -> int:
        prices = [
            (info.pools[info.positions[pool]].price_milli, count)
            for pool, count in nodes.items()
        ]
        if any(price < 0 for price, _ in prices):
            return -1
        return sum(price * count for price, count in prices)


def with_more_nodes(info: ClusterInfo, more: Mapping[str, int]) -> ClusterInfo:
    """Return a copy of a cluster with more nodes; it is not part of the fleet."""
    pools = tuple(_larger(pool, more.get(pool.name, 0)) for pool in info.pools)
    larger = ClusterInfo(replace(info.view, pools=pools), info.layout, pools)
    larger.rank = info.rank
    return larger


def _larger(pool: PoolView, nodes: int) -> PoolView:
    seen = pool.observed
    if seen is not None and seen.schedulable >= 0:
        seen = replace(seen, schedulable=seen.schedulable + nodes)
    return replace(pool, nodes=pool.nodes + nodes, observed=seen)


def _more_nodes(nodes: int) -> str:
    return "one more node" if nodes == 1 else f"{nodes} more nodes"


def _taints_text(listed: Iterable[ClusterTaint]) -> str:
    return " and ".join(
        taint_text(taint.key, taint.value, taint.effect) for taint in listed
    )


def _memory(devices: DeviceSet) -> int:
    return max((memory_mebibytes(entry) for entry in devices.entries), default=0)
