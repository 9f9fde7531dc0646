"""Trials: whether one more replica of a deployment fits on a cluster.

One search checks everything that may reject a replica on a cluster: free nodes or
devices, networks, refused and reserved pools, quotas, admission queues. Filling,
replacing, preempting and questions all use it, so they cannot contradict each other. A
trial does not charge anything. `score` chooses among clusters, `constraints` has the
rules between clusters, and `placer` uses the successful trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler.fleet.caches.tried_clusters import TriedClusters, charged_clusters
from scheduler.fleet.charged_nodes import NO_RELEASING_NODES
from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet, bits
from scheduler.fleet.nomination import NONE_GONE, AssumedGone
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import pods_on
from scheduler.hardware.node_fitting import (
    FitRules,
    Limit,
    Networks,
    SearchBudget,
    Trial,
    fit_nodes,
)
from scheduler.hardware.template import CompiledTemplate, joined_units
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView
from scheduler.placement.limits.device_accounting import (
    admits,
    charged_load,
    counts_devices,
    fit_devices,
    with_slots,
)
from scheduler.placement.limits.queue_limits import QueueLimits, refused_positions
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.limits.reserved_pools import ReservedPools
from scheduler.placement.score import DEFAULT, pool_order, profile_of

_NO_CAPACITY = Trial(failed=0)
_IN_ANY_NETWORK = (None,)
_NO_POOLS: frozenset[int] = frozenset()
_WAITED_TOO_LONG = "admission: a replica waited too long there"


@dataclass(frozen=True, slots=True)
class _Restrictions:
    """The restrictions on capacity: refused pools, reserved pools, limits."""

    refused: frozenset[int] = _NO_POOLS
    reserved: frozenset[int] = _NO_POOLS
    limits: list[Limit] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.refused or self.reserved or self.limits)


_UNRESTRICTED = _Restrictions()


class Trials:
    """Tries the engines of one deployment on clusters.

    `reserved` are the pools kept for deployments ahead in the queue.
    """

    def __init__(
        self,
        overlay: FleetOverlay,
        deployment: DeploymentView,
        compiled: CompiledTemplate,
        reserved: ReservedPools,
        quota: QuotaGate,
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
        # Clusters whose outcome is valid for this decision only; it is in `_own`.
        self._apart = NO_CLUSTERS
        # Clusters where a rule of this decision may reject a replica that fits.
        self._limited = NO_CLUSTERS
        # With one engine on whole nodes, pools in published order, and nothing reserved
        # or refused, one comparison of nodes per pool decides on every cluster without
        # observed capacity.
        self.is_simple = (
            len(compiled.engines) == 1
            and self._groupings == _IN_ANY_NETWORK
            and not (
                counts_devices(overlay) or reserved or overlay.refused or quota.limits
            )
            and profile == DEFAULT
        )

    def on(self, info: ClusterInfo, gone: AssumedGone = NONE_GONE) -> Trial:
        """Try the engines on a cluster.

        Nodes of the deployment's own releasing replicas and of `gone` count as free.
        """
        if self.is_simple and not info.observed:
            return self._on_nodes_alone(info, gone)
        # Suggestions try clusters that do not exist.
        if gone is not NONE_GONE or self._overlay.index.ranked[info.rank] is not info:
            return self._within_limits(info, gone)
        parts = self.tried(ClusterSet(1 << info.rank))
        covering = next(outcomes for outcomes, clusters in parts if clusters)
        return covering.trial(info.rank)

    def tried(
        self, clusters: ClusterSet
    ) -> tuple[tuple[TriedClusters, ClusterSet], ...]:
        """Return the outcomes on some clusters, each with the clusters it covers.

        The first outcomes depend on capacity alone, and other decisions share them. The
        second outcomes belong to this decision.
        """
        self._follow()
        self._try_by_capacity(ClusterSet(clusters & ~self._apart & ~self._shared.known))
        self._apart = ClusterSet(
            self._apart | clusters & self._shared.fitting & self._limited
        )
        apart = ClusterSet(clusters & self._apart)
        infos = self._overlay.index.each(ClusterSet(apart & ~self._own.known))
        self._own.add({info.rank: self._within_limits(info) for info in infos})
        return (self._shared, ClusterSet(clusters & ~apart)), (self._own, apart)

    def _follow(self) -> None:
        """Drop this decision's outcomes on clusters that changed since the last call."""
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
            # The use of a quota counts on every cluster.
            self._own = TriedClusters(self._own.size)
            if self._quota.may_refuse(self._compiled):
                self._limited = overlay.index.everything
        self._read = changes.end

    def _begin(self) -> None:
        overlay, index = self._overlay, self._overlay.index
        self._own = TriedClusters(len(index.ranked))
        names = dict.fromkeys(
            entry.cluster for entry in overlay.ledger.leaving_for(self._owner)
        )
        names |= overlay.ledger.changed_clusters(overlay.fleet.ledger)
        # An observation of an adapter expires by time, which no log records.
        self._apart = ClusterSet(
            index.named(names) | index.observed | self._reserved.clusters
        )
        self._shared = overlay.fleet.tried_clusters.of(self._key)

    def _try_by_capacity(self, clusters: ClusterSet) -> None:
        """Try the engines on clusters, for other decisions too.

        An outcome that the budget cut short is not shared: the next decision searches
        there again.
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

    def _within_limits(self, info: ClusterInfo, gone: AssumedGone = NONE_GONE) -> Trial:
        if self.is_simple and not info.observed:
            return self._on_nodes_alone(info, gone)
        restrictions = _Restrictions(
            refused_positions(self._overlay, info, *self._owner),
            self._reserved.positions(info),
            self._limits(info, gone),
        )
        trial = self._restricted(info, restrictions, gone)
        if trial.failed < 0 or not restrictions:
            return trial
        unrestricted = self._restricted(info, _UNRESTRICTED, gone)
        if unrestricted.failed >= 0:
            return unrestricted
        over_quota = self._quota.refuses(
            info, self.placed_engines(info, unrestricted), gone
        )
        violation = over_quota or self._violated(info, restrictions, gone, unrestricted)
        return Trial(
            failed=trial.failed,
            undecided=trial.undecided,
            violation=violation,
            over_quota=bool(over_quota),
        )

    def _limits(self, info: ClusterInfo, gone: AssumedGone) -> list[Limit]:
        limits: list[Limit] = []
        if self._quota.limits:
            limits += self._quota.on(info, self._compiled, gone)
        if info.view.queues:
            limits += QueueLimits(self._overlay, info, self._owner, gone).on(
                self._compiled
            )
        return limits

    def _violated(
        self,
        info: ClusterInfo,
        restrictions: _Restrictions,
        gone: AssumedGone,
        unrestricted: Trial,
    ) -> str:
        """Return the restriction without which a replica would fit."""
        if restrictions.refused:
            weaker = replace(restrictions, refused=_NO_POOLS)
            if self._restricted(info, weaker, gone).failed < 0:
                return _WAITED_TOO_LONG
        if restrictions.reserved:
            weaker = replace(restrictions, reserved=_NO_POOLS)
            if self._restricted(info, weaker, gone).failed < 0:
                return self._reserved.violated(info)
        queues = QueueLimits(self._overlay, info, self._owner, gone)
        waits = queues.exceeded(self.placed_engines(info, unrestricted))
        return waits or self._reserved.violated(info) or _WAITED_TOO_LONG

    def _on_nodes_alone(self, info: ClusterInfo, gone: AssumedGone) -> Trial:
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

    def _restricted(
        self, info: ClusterInfo, restrictions: _Restrictions, gone: AssumedGone
    ) -> Trial:
        """Try the engines within the restrictions.

        Free nodes of reserved pools, refused pools and capacity beyond the limits are
        not used.
        """
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
        return Trial(
            failed=0,
            undecided=any(trial.undecided for trial in trials),
            violation=self._network_rule,
        )

    def _fit(
        self,
        info: ClusterInfo,
        restrictions: _Restrictions,
        gone: AssumedGone,
        groups: tuple[int, ...] | None,
    ) -> Trial:
        """Try the engines in groups that share a network each."""
        networks: Networks | None = None
        if groups is not None:
            domains = tuple(pool.network_domain for pool in info.pools)
            networks = Networks(domains, groups)
        rules = FitRules(restrictions.refused, restrictions.limits, networks)
        order = pool_order(self._overlay, self._deployment, info, self._compiled)
        if counts_devices(self._overlay):
            if restrictions.reserved and not gone.uids and not self.has_reusable(info):
                rules = replace(
                    rules, refused=restrictions.reserved | restrictions.refused
                )
            overlay, compiled = self._overlay, self._compiled
            return fit_devices(
                overlay,
                compiled,
                info,
                self._owner,
                rules,
                budget=self.budget,
                order=order,
                without=gone.uids,
            )
        exact = self._overlay.rules.search_arrangements
        free = self._free(info, restrictions.reserved, gone)
        return fit_nodes(
            self._compiled.on(info.layout),
            free,
            rules,
            budget=self.budget,
            exact=exact,
            order=order,
        )

    def _free(
        self, info: ClusterInfo, reserved: frozenset[int], gone: AssumedGone
    ) -> list[int]:
        """Return the nodes per pool that one more replica may take."""
        free = self._overlay.free(info)
        if reserved:
            free = [
                min(nodes, 0) if p in reserved else nodes
                for p, nodes in enumerate(free)
            ]
        reusable = self._overlay.reusable(info, *self._owner)
        if reusable:
            free = [a + b for a, b in zip(free, reusable, strict=True)]
        if gone.nodes:
            free = [
                nodes + gone.nodes.get(pool.name, 0)
                for nodes, pool in zip(free, info.pools, strict=True)
            ]
        return free

    def has_reusable(self, info: ClusterInfo) -> bool:
        """Return whether releasing replicas of the deployment hold nodes of a cluster."""
        return bool(self._overlay.ledger.releasing(*self._owner, info.name))

    def admits_alone(self, info: ClusterInfo, p: int, i: int) -> bool:
        """Return whether a pool has the devices for one engine alone."""
        pool = info.pools[p]
        added = pods_on((self._compiled.place(i, pool.name, pool.device_set),), pool)
        return admits(
            self._overlay,
            pool,
            charged_load(self._overlay, info, self._owner).on(pool),
            added,
        )

    def placed_engines(
        self, info: ClusterInfo, trial: Trial
    ) -> tuple[EnginePlacement, ...]:
        """Place the engines on the pools that a trial found."""
        compiled = self._compiled
        engines = tuple(
            compiled.place(i, info.pools[p].name, info.pools[p].device_set)
            for i, p in enumerate(trial.positions)
        )
        if compiled.spanning:
            engines = joined_units(engines)
        return with_slots(self._overlay, info, engines, self._owner)


def _groupings(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate
) -> tuple[Sequence[tuple[int, ...] | None], str]:
    """Return the groups of engines that share a network, and the rule that applies.

    The preferred groups come first. The rule is "" if there is none. Members that are
    placed one by one, because their engine may span pools, share one network per
    engine.
    """
    if not overlay.rules.check_networks:
        return _IN_ANY_NETWORK, ""
    names = list(dict.fromkeys(engine.name for engine in compiled.engines))
    spanning = tuple(
        names.index(engine.name) if i in compiled.spanning else -1
        for i, engine in enumerate(compiled.engines)
    )
    spans = spanning if compiled.spanning else None
    wanted = "Ignore"
    if deployment.serving_mode == "PrefillDecode":
        wanted = deployment.policy.network_domain
    together = (0,) * len(compiled.engines)
    if wanted == "Required":
        return (together,), "networkDomain: Required"
    rule = "spanPools: one network" if spans else ""
    if wanted == "Preferred":
        return (together, spans), rule
    return (spans,), rule
