"""Whether one cluster takes one more replica of a deployment: its engines, tried on the cluster's pools as a cycle finds them.

Everything that may refuse a replica on a cluster is asked here, in one search: free nodes or devices, networks, refused and reserved pools,
quotas, admission queues. So what fills, replaces, preempts or only asks cannot promise what another refuses. A trial charges nothing.
Not here: which cluster is best (`score`), rules between clusters (`constraints`), what is done with a trial that succeeded (`placer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler.fleet.caches.tried_clusters import TriedClusters, charged_clusters
from scheduler.fleet.charged_nodes import NO_RELEASING_NODES
from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet, bits
from scheduler.fleet.nomination import NONE_GONE, Gone
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import pods_on
from scheduler.hardware.node_fitting import FitRules, Limit, Networks, SearchBudget, Trial, fit_nodes
from scheduler.hardware.template import CompiledTemplate, joined_units
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView
from scheduler.placement.limits.device_accounting import admits, charged_load, counts_devices, fit_devices, with_slots
from scheduler.placement.limits.queue_limits import QueueLimits, refused_positions
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.limits.reserved_pools import ReservedPools
from scheduler.placement.score import DEFAULT, pool_order, profile_of

_NO_CAPACITY = Trial(failed=0)
_IN_ANY_NETWORK = (None,)
_NO_POOLS: frozenset[int] = frozenset()
_WAITED_TOO_LONG = "admission: it let a replica wait too long"


@dataclass(frozen=True, slots=True)
class _Restrictions:
    """What keeps a replica from capacity that is there: pools that are left out, pools whose free nodes are reserved, limits."""

    refused: frozenset[int] = _NO_POOLS
    reserved: frozenset[int] = _NO_POOLS
    limits: list[Limit] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.refused or self.reserved or self.limits)


_UNRESTRICTED = _Restrictions()


class Trials:
    """Tries the engines of one deployment on clusters; `reserved` are the pools kept for those ahead in the queue."""

    def __init__(
        self, overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate, reserved: ReservedPools, quota: QuotaGate
    ) -> None:
        self.budget = SearchBudget()
        self._overlay = overlay
        self._deployment = deployment
        self._owner = (deployment.namespace, deployment.name)
        self._compiled = compiled
        self._reserved = reserved
        self._quota = quota
        self._groupings, self._network_rule = _groupings(overlay, deployment, compiled)
        self._read = -1
        profile = profile_of(overlay, deployment)
        self._key = (compiled.digest, profile, self._groupings, self._network_rule)
        self._shared = self._own = TriedClusters(len(overlay.index.ranked))
        # Clusters where the outcome belongs to this decision alone: it is in `_own`.
        self._apart = NO_CLUSTERS
        # Clusters where a rule of this decision may refuse a replica that fits.
        self._limited = NO_CLUSTERS
        # One engine on whole nodes, pools in published order, nothing reserved or refused: then one comparison of nodes per pool decides,
        # on every cluster without observed capacity.
        self.is_simple = (
            len(compiled.engines) == 1
            and self._groupings == _IN_ANY_NETWORK
            and not (counts_devices(overlay) or reserved or overlay.refused or quota.limits)
            and profile == DEFAULT
        )

    def on(self, info: ClusterInfo, gone: Gone = NONE_GONE) -> Trial:
        """Try the engines on a cluster; nodes that the deployment's own releasing replicas hold, and those of `gone`, count as free."""
        if self.is_simple and not info.observed:
            return self._on_nodes_alone(info, gone)
        # Suggestions try clusters that are not there.
        if gone is not NONE_GONE or self._overlay.index.ranked[info.rank] is not info:
            return self._within_limits(info, gone)
        parts = self.tried(ClusterSet(1 << info.rank))
        return next(outcomes for outcomes, clusters in parts if clusters).trial(info.rank)

    def tried(self, clusters: ClusterSet) -> tuple[tuple[TriedClusters, ClusterSet], ...]:
        """Return the outcomes on some clusters, and which of the clusters they are about.

        Capacity alone decides the first outcomes, which other decisions share. The second ones
        belong to this decision.
        """
        self._follow()
        self._try_by_capacity(ClusterSet(clusters & ~self._apart & ~self._shared.known))
        self._apart = ClusterSet(self._apart | clusters & self._shared.fitting & self._limited)
        apart = ClusterSet(clusters & self._apart)
        infos = self._overlay.index.each(ClusterSet(apart & ~self._own.known))
        self._own.add({info.rank: self._within_limits(info) for info in infos})
        return (self._shared, ClusterSet(clusters & ~apart)), (self._own, apart)

    def _follow(self) -> None:
        """Drop the outcomes of this decision on clusters that it changed since the last call."""
        overlay, changes = self._overlay, self._overlay.ledger.changes
        if self._read == changes.end:
            return
        found = changes.since(self._read) if self._read >= 0 else None
        if found is None:
            self._begin()
        else:
            changed = charged_clusters(overlay.index, found)
            self._apart = ClusterSet(self._apart | changed)
            self._own.forget(changed)
        refused = (key[2] for key in overlay.refused if key[:2] == self._owner)
        self._limited = overlay.index.named(refused)
        if self._quota.limits:
            # The usage of a quota counts on every cluster.
            self._own = TriedClusters(self._own.size)
            if self._quota.may_refuse(self._compiled):
                self._limited = overlay.index.everything
        self._read = changes.end

    def _begin(self) -> None:
        overlay, index = self._overlay, self._overlay.index
        self._own = TriedClusters(len(index.ranked))
        names = dict.fromkeys(entry.cluster for entry in overlay.ledger.leaving_for(self._owner))
        names |= overlay.ledger.changed_clusters(overlay.fleet.ledger)
        # An observation of an adapter expires by time, and no log has that.
        self._apart = ClusterSet(index.named(names) | index.observed | self._reserved.clusters)
        self._shared = overlay.fleet.tried_clusters.of(self._key)

    def _try_by_capacity(self, clusters: ClusterSet) -> None:
        """Try the engines on clusters, for other decisions too.

        An outcome that the budget cut short is not shared: the next decision searches there again.
        """
        found: dict[int, Trial] = {}
        cut: list[int] = []
        for info in self._overlay.index.each(clusters):
            if not self._is_cut:
                found[info.rank] = self._by_capacity(info)
            if self._is_cut:
                found.pop(info.rank, None)
                cut.append(info.rank)
        self._shared.add(found)
        self._apart = ClusterSet(self._apart | bits(cut, self._shared.size))

    @property
    def _is_cut(self) -> bool:
        return self.budget.is_spent or self.budget.is_exhausted

    def _by_capacity(self, info: ClusterInfo) -> Trial:
        if self.is_simple:
            return self._on_nodes_alone(info, NONE_GONE)
        return self._restricted(info, _UNRESTRICTED, NONE_GONE)

    def _within_limits(self, info: ClusterInfo, gone: Gone = NONE_GONE) -> Trial:
        if self.is_simple and not info.observed:
            return self._on_nodes_alone(info, gone)
        restrictions = _Restrictions(
            refused_positions(self._overlay, info, *self._owner), self._reserved.positions(info), self._limits(info, gone)
        )
        trial = self._restricted(info, restrictions, gone)
        if trial.failed < 0 or not restrictions:
            return trial
        unrestricted = self._restricted(info, _UNRESTRICTED, gone)
        if unrestricted.failed >= 0:
            return unrestricted
        over_quota = self._quota.refuses(info, self.placed_engines(info, unrestricted), gone)
        violation = over_quota or self._violated(info, restrictions, gone, unrestricted)
        return Trial(failed=trial.failed, undecided=trial.undecided, violation=violation, over_quota=bool(over_quota))

    def _limits(self, info: ClusterInfo, gone: Gone) -> list[Limit]:
        limits = self._quota.on(info, self._compiled, gone) if self._quota.limits else []
        if info.view.queues:
            limits += QueueLimits(self._overlay, info, self._owner, gone).on(self._compiled)
        return limits

    def _violated(self, info: ClusterInfo, restrictions: _Restrictions, gone: Gone, unrestricted: Trial) -> str:
        """Name the restriction without which a replica would fit."""
        if restrictions.refused and self._restricted(info, replace(restrictions, refused=_NO_POOLS), gone).failed < 0:
            return _WAITED_TOO_LONG
        if restrictions.reserved and self._restricted(info, replace(restrictions, reserved=_NO_POOLS), gone).failed < 0:
            return self._reserved.violated(info)
        queues = QueueLimits(self._overlay, info, self._owner, gone)
        waits = queues.exceeded(self.placed_engines(info, unrestricted))
        return waits or self._reserved.violated(info) or _WAITED_TOO_LONG

    def _on_nodes_alone(self, info: ClusterInfo, gone: Gone) -> Trial:
        engine = self._compiled.on(info.layout).engines[0]
        used = self._overlay.ledger.used(info.name)
        releasing = self._overlay.ledger.releasing(*self._owner, info.name)
        for p in engine.positions:
            name = info.pools[p].name
            more = releasing.get(name, NO_RELEASING_NODES).reusable if releasing else 0
            if gone.nodes:
                more += gone.nodes.get(name, 0)
            if info.nodes[p] - used.get(name, 0) + more >= engine.cost:
                return Trial((p,))
        return _NO_CAPACITY

    def _restricted(self, info: ClusterInfo, restrictions: _Restrictions, gone: Gone) -> Trial:
        """Try the engines without the free nodes of reserved pools, without refused pools altogether, and within the limits."""
        trials = []
        for groups in self._groupings:
            trials.append(self._fit(info, restrictions, gone, groups))
            if trials[-1].failed < 0:
                return trials[-1]
        if not self._network_rule:
            return trials[-1]
        anywhere = self._fit(info, restrictions, gone, None)
        if anywhere.failed >= 0:
            return anywhere
        return Trial(failed=0, undecided=any(trial.undecided for trial in trials), violation=self._network_rule)

    def _fit(self, info: ClusterInfo, restrictions: _Restrictions, gone: Gone, groups: tuple[int, ...] | None) -> Trial:
        """Try the engines in groups that share a network each."""
        networks = None if groups is None else Networks(tuple(pool.network_domain for pool in info.pools), groups)
        rules = FitRules(restrictions.refused, restrictions.limits, networks)
        order = pool_order(self._overlay, self._deployment, info, self._compiled)
        if counts_devices(self._overlay):
            if restrictions.reserved and not gone.uids and not self.has_reusable(info):
                rules = replace(rules, refused=restrictions.reserved | restrictions.refused)
            overlay, compiled = self._overlay, self._compiled
            return fit_devices(overlay, compiled, info, self._owner, rules, budget=self.budget, order=order, without=gone.uids)
        exact = self._overlay.rules.search_arrangements
        free = self._free(info, restrictions.reserved, gone)
        return fit_nodes(self._compiled.on(info.layout), free, rules, budget=self.budget, exact=exact, order=order)

    def _free(self, info: ClusterInfo, reserved: frozenset[int], gone: Gone) -> list[int]:
        """Give the nodes per pool that one more replica may take."""
        free = self._overlay.free(info)
        if reserved:
            free = [min(nodes, 0) if p in reserved else nodes for p, nodes in enumerate(free)]
        reusable = self._overlay.reusable(info, *self._owner)
        if reusable:
            free = [a + b for a, b in zip(free, reusable, strict=True)]
        if gone.nodes:
            free = [nodes + gone.nodes.get(pool.name, 0) for nodes, pool in zip(free, info.pools, strict=True)]
        return free

    def has_reusable(self, info: ClusterInfo) -> bool:
        """Whether releasing replicas of the deployment hold nodes of a cluster."""
        return bool(self._overlay.ledger.releasing(*self._owner, info.name))

    def admits_alone(self, info: ClusterInfo, p: int, i: int) -> bool:
        """Whether a pool has the devices for one engine, regardless of the others."""
        pool = info.pools[p]
        added = pods_on((self._compiled.place(i, pool.name, pool.device_set),), pool)
        return admits(self._overlay, pool, charged_load(self._overlay, info, self._owner).on(pool), added)

    def placed_engines(self, info: ClusterInfo, trial: Trial) -> tuple[EnginePlacement, ...]:
        """Place the engines on the pools that a trial found."""
        compiled = self._compiled
        engines = tuple(compiled.place(i, info.pools[p].name, info.pools[p].device_set) for i, p in enumerate(trial.positions))
        return with_slots(self._overlay, info, joined_units(engines) if compiled.spanning else engines, self._owner)


def _groupings(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate
) -> tuple[Sequence[tuple[int, ...] | None], str]:
    """Give the groups of engines that share a network, the preferred ones first, and the rule that is broken where none fits ("": none is).

    Members that are placed one by one, because their engine may span pools, share one network engine by engine.
    """
    if not overlay.rules.check_networks:
        return _IN_ANY_NETWORK, ""
    names = list(dict.fromkeys(engine.name for engine in compiled.engines))
    spanning = tuple(names.index(engine.name) if i in compiled.spanning else -1 for i, engine in enumerate(compiled.engines))
    spans = spanning if compiled.spanning else None
    wanted = deployment.policy.network_domain if deployment.serving_mode == "PrefillDecode" else "Ignore"
    together = (0,) * len(compiled.engines)
    if wanted == "Required":
        return (together,), "networkDomain: Required"
    return ((together, spans) if wanted == "Preferred" else (spans,)), "spanPools: one network" if spans else ""
