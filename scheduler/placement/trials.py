"""Whether one cluster takes one more replica of a deployment: its engines, tried on the cluster's pools as a cycle finds them.

Everything that may refuse a replica on a cluster is asked here, in one search: free nodes or devices, networks, refused and reserved pools,
quotas, admission queues. So what fills, replaces, preempts or only asks cannot promise what another refuses. A trial charges nothing.
Not here: which cluster is best (`score`), rules between clusters (`constraints`), what is done with a trial that succeeded (`placer`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial

from scheduler.fleet.charged_nodes import NO_RELEASING_NODES
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.nomination import NONE_GONE, Gone
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import pods_on
from scheduler.hardware.node_fitting import NO_LIMITS, Limit, SearchBudget, Trial, fit_domains, fit_nodes
from scheduler.hardware.template import CompiledTemplate, joined_units
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView
from scheduler.placement.limits.device_accounting import admits, charged_pods, counts_devices, fit_devices, with_slots
from scheduler.placement.limits.queue_limits import QueueLimits, refused_positions
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.limits.reserved_pools import ReservedPools
from scheduler.placement.score import DEFAULT, pool_order, profile_of

_NO_CAPACITY = Trial(failed=0)
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
        self._shares_network = deployment.policy.network_domain != "Ignore" and deployment.serving_mode == "PrefillDecode"
        # Whether fitting is a matter of free capacity alone: no rule about networks.
        self._is_plain = not self._shares_network and not compiled.spanning
        # One engine on whole nodes, pools in published order, nothing reserved or refused: then one comparison of nodes per pool decides,
        # on every cluster without observed capacity.
        self.is_simple = (
            len(compiled.engines) == 1
            and self._is_plain
            and not (counts_devices(overlay) or reserved or overlay.refused or quota.limits)
            and profile_of(overlay, deployment) == DEFAULT
        )

    def on(self, info: ClusterInfo, gone: Gone = NONE_GONE) -> Trial:
        """Try the engines on a cluster; nodes that the deployment's own releasing replicas hold, and those of `gone`, count as free."""
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
        if counts_devices(self._overlay):
            taken_over = gone.uids or self.has_reusable(info)
            left_out = restrictions.refused if taken_over else restrictions.reserved | restrictions.refused
            return self._on_devices(info, left_out, restrictions.limits, gone)
        return self._on_nodes(info, restrictions, gone)

    def _on_devices(self, info: ClusterInfo, left_out: frozenset[int], limits: list[Limit], gone: Gone) -> Trial:
        """Try the engines by counting devices, those that have to share a network one network after the other."""
        compiled = self._compiled
        order = pool_order(self._overlay, self._deployment, info, compiled)
        fit = partial(
            fit_devices, self._overlay, compiled, info, self._owner, limits=limits, budget=self.budget, order=order, without=gone.uids
        )
        anywhere = fit(lambda _, p: p not in left_out)
        if self._is_plain or anywhere.failed >= 0:
            return anywhere
        bound, rule = self._network_rule()
        domains = [pool.network_domain for pool in info.pools]
        for domain in dict.fromkeys(domains):
            elsewhere = {p for p, other in enumerate(domains) if other != domain}
            trial = fit(_without(left_out, elsewhere, bound))
            if trial.failed < 0:
                return trial
        return Trial(failed=0, violation=rule) if rule else anywhere

    def _network_rule(self) -> tuple[Collection[int], str]:
        """Give the engines that should share a network, and the rule that is broken where they cannot ("": it is a preference)."""
        spanning = self._compiled.spanning
        if not self._shares_network:
            return spanning, "spanPools: one network"
        required = self._deployment.policy.network_domain == "Required" or spanning
        return range(len(self._compiled.engines)), "networkDomain: Required" if required else ""

    def _on_nodes(self, info: ClusterInfo, restrictions: _Restrictions, gone: Gone) -> Trial:
        free = self._overlay.free(info)
        if restrictions.reserved:
            free = [min(nodes, 0) if p in restrictions.reserved else nodes for p, nodes in enumerate(free)]
        reusable = self._overlay.reusable(info, *self._owner)
        if reusable:
            free = [a + b for a, b in zip(free, reusable, strict=True)]
        if gone.nodes:
            free = [nodes + gone.nodes.get(pool.name, 0) for nodes, pool in zip(free, info.pools, strict=True)]
        if restrictions.refused:
            free = [min(nodes, 0) if p in restrictions.refused else nodes for p, nodes in enumerate(free)]
        limits = restrictions.limits or NO_LIMITS
        rules = self._overlay.rules
        order = pool_order(self._overlay, self._deployment, info, self._compiled)
        fit = self._compiled.on(info.layout)
        if self._is_plain or not rules.check_networks:
            return fit_nodes(fit, free, limits, budget=self.budget, exact=rules.search_arrangements, order=order)
        domains = [pool.network_domain for pool in info.pools]
        return fit_domains(fit, free, domains, *self._network_rule(), limits, budget=self.budget, order=order)

    def has_reusable(self, info: ClusterInfo) -> bool:
        """Whether releasing replicas of the deployment hold nodes of a cluster."""
        return bool(self._overlay.ledger.releasing(*self._owner, info.name))

    def admits_alone(self, info: ClusterInfo, p: int, i: int) -> bool:
        """Whether a pool has the devices for one engine, regardless of the others."""
        pool = info.pools[p]
        added = pods_on((self._compiled.place(i, pool.name, pool.device_set),), pool)
        return admits(self._overlay, pool, charged_pods(self._overlay, info, pool, self._owner), added)

    def placed_engines(self, info: ClusterInfo, trial: Trial) -> tuple[EnginePlacement, ...]:
        """Place the engines on the pools that a trial found."""
        compiled = self._compiled
        engines = tuple(compiled.place(i, info.pools[p].name, info.pools[p].device_set) for i, p in enumerate(trial.positions))
        return with_slots(self._overlay, info, joined_units(engines) if compiled.spanning else engines, self._owner)


def _without(left_out: Collection[int], elsewhere: Collection[int], bound: Collection[int]) -> Callable[[int, int], bool]:
    """Give the rule that no engine uses pools that are left out, and no bound engine those elsewhere."""
    return lambda i, p: p not in left_out and (i not in bound or p not in elsewhere)
