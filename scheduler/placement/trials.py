"""Whether one cluster takes one more replica of a deployment: its engines, tried on the cluster's pools as a cycle finds them.

A trial charges nothing. Not here: which cluster is best (`score`), what is done with a trial that succeeded (`placer`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace

from scheduler.fleet.cluster_index import Slot
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.node_fitting import Trial, fit_domains, fit_nodes
from scheduler.hardware.template import CompiledTemplate, joined_units
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView
from scheduler.placement.device_accounting import admits, counts_devices, fit_devices, pods_on, residents, with_slots
from scheduler.placement.queue_limits import QueueLimits, refused_positions
from scheduler.placement.reserved_pools import ReservedPools
from scheduler.placement.score import DEFAULT, pool_order, profile_of

_NO_CAPACITY = Trial(failed=0)
_NOTHING = (0, 0)
_NO_POOLS: frozenset[int] = frozenset()


class Trials:
    """Tries the engines of one deployment on clusters; `reserved` are the pools kept for those ahead in the queue."""

    def __init__(self, overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate, reserved: ReservedPools) -> None:
        self._overlay = overlay
        self._deployment = deployment
        self._owner = (deployment.namespace, deployment.name)
        self._compiled = compiled
        self._reserved = reserved
        self._shares_network = deployment.policy.network_domain != "Ignore" and deployment.serving_mode == "PrefillDecode"
        # Whether fitting is a matter of free capacity alone: no rule about networks.
        self._is_plain = not self._shares_network and not compiled.spanning
        # One engine on whole nodes, pools in published order, nothing reserved or refused: then one comparison of nodes per pool decides,
        # on every cluster without observed capacity.
        self.is_simple = (
            len(compiled.engines) == 1
            and self._is_plain
            and not (counts_devices(overlay) or reserved or overlay.refused)
            and profile_of(overlay, deployment) == DEFAULT
        )

    def on(self, slot: Slot) -> Trial:
        """Try the engines on a cluster; nodes that the deployment's own releasing replicas hold count as free."""
        if self.is_simple and not slot.observed:
            return self._on_nodes_alone(slot)
        refused = refused_positions(self._overlay, slot, *self._owner)
        reserved = self._reserved.positions(slot)
        trial = self._on_pools(slot, reserved, refused)
        if refused:
            return trial if trial.failed < 0 else replace(trial, violation=trial.violation or "admission: it let a replica wait too long")
        if trial.failed < 0 or not reserved:
            return trial
        # Would it fit without the reservations, or is there too little capacity anyhow?
        unreserved = self._on_pools(slot, _NO_POOLS)
        return unreserved if unreserved.failed >= 0 else replace(trial, violation=self._reserved.violated(slot))

    def _on_nodes_alone(self, slot: Slot) -> Trial:
        engine = self._compiled.on(slot.layout).engines[0]
        used = self._overlay.ledger.used(slot.name)
        releasing = self._overlay.ledger.releasing(*self._owner, slot.name)
        for p in engine.positions:
            name = slot.pools[p].name
            nodes, reused = releasing.get(name, _NOTHING) if releasing else _NOTHING
            if slot.nodes[p] - used.get(name, 0) + max(0, nodes - reused) >= engine.cost:
                return Trial((p,))
        return _NO_CAPACITY

    def _on_pools(self, slot: Slot, reserved: frozenset[int], refused: frozenset[int] = _NO_POOLS) -> Trial:
        """Try the engines without the free nodes of `reserved` pools, and without `refused` pools altogether."""
        if counts_devices(self._overlay):
            return self._on_devices(slot, refused if self.has_reusable(slot) else reserved | refused)
        free = self._overlay.free(slot)
        if reserved:
            free = [min(nodes, 0) if p in reserved else nodes for p, nodes in enumerate(free)]
        if slot.view.queues:
            return self._in_queue(slot, free, refused)
        return self._on_nodes(slot, free, refused)

    def _on_devices(self, slot: Slot, left_out: frozenset[int]) -> Trial:
        """Try the engines by counting devices, those that have to share a network one network after the other."""
        compiled = self._compiled
        anywhere = fit_devices(self._overlay, compiled, slot, self._owner, lambda _, p: p not in left_out)
        if self._is_plain or anywhere.failed >= 0:
            return anywhere
        bound, rule = self._network_rule()
        domains = [pool.network_domain for pool in slot.pools]
        for domain in dict.fromkeys(domains):
            elsewhere = {p for p, other in enumerate(domains) if other != domain}
            trial = fit_devices(self._overlay, compiled, slot, self._owner, _without(left_out, elsewhere, bound))
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

    def _in_queue(self, slot: Slot, free: list[int], refused: frozenset[int]) -> Trial:
        """Try the engines on a cluster where a queue has to admit them, each alone and all together."""
        limits = QueueLimits(self._overlay, slot, self._deployment.namespace)
        trial = self._on_nodes(slot, limits.nodes(free), refused)
        if trial.failed >= 0:
            return trial
        costs: dict[int, int] = defaultdict(int)
        for p, engine in zip(trial.positions, self._compiled.on(slot.layout).engines, strict=True):
            costs[p] += engine.cost
        exceeded = limits.exceeded(costs)
        return Trial(failed=0, violation=exceeded) if exceeded else trial

    def _on_nodes(self, slot: Slot, free: list[int], refused: frozenset[int]) -> Trial:
        reusable = self._overlay.reusable(slot, *self._owner)
        if reusable:
            free = [a + b for a, b in zip(free, reusable, strict=True)]
        if refused:
            free = [min(nodes, 0) if p in refused else nodes for p, nodes in enumerate(free)]
        rules = self._overlay.rules
        order = pool_order(self._overlay, self._deployment, slot, self._compiled)
        fit = self._compiled.on(slot.layout)
        if self._is_plain or not rules.check_networks:
            return fit_nodes(fit, free, exact=rules.search_arrangements, order=order)
        domains = [pool.network_domain for pool in slot.pools]
        return fit_domains(fit, free, domains, *self._network_rule(), order=order)

    def has_reusable(self, slot: Slot) -> bool:
        """Whether releasing replicas of the deployment hold nodes of a cluster."""
        return bool(self._overlay.ledger.releasing(*self._owner, slot.name))

    def admits_alone(self, slot: Slot, p: int, i: int) -> bool:
        """Whether a pool has the devices for one engine, the others left aside."""
        pool = slot.pools[p]
        added = pods_on((self._compiled.place(i, pool.name, pool.device_set),), pool)
        return admits(self._overlay, pool, residents(self._overlay, slot, pool, self._owner), added)

    def stamped(self, slot: Slot, trial: Trial) -> tuple[EnginePlacement, ...]:
        """Stamp the engines onto the pools that a trial found."""
        compiled = self._compiled
        engines = tuple(compiled.place(i, slot.pools[p].name, slot.pools[p].device_set) for i, p in enumerate(trial.positions))
        return with_slots(self._overlay, slot, joined_units(engines) if compiled.spanning else engines, self._owner)


def _without(left_out: Collection[int], elsewhere: Collection[int], bound: Collection[int]) -> Callable[[int, int], bool]:
    """Give the rule that no engine uses pools that are left out, and no bound engine those elsewhere."""
    return lambda i, p: p not in left_out and (i not in bound or p not in elsewhere)
