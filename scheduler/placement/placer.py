"""Find places for new replicas: the least loaded cluster that passes every filter, then the first by name.

Each placement is charged on the frame before the next one is chosen. A deployment may build on nodes that its own replicas are leaving;
such a placement says how many nodes it takes over and which replicas it has to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from api_types.names import replica_name
from scheduler.fleet.cluster_index import ClusterSet, Slot
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.node_fitting import Trial, fit_domains, fit_nodes
from scheduler.hardware.template import CompiledTemplate, charges, joined_units
from scheduler.model import reasons
from scheduler.model.decision import EnginePlacement, Placement
from scheduler.model.identity import replica_uid
from scheduler.model.inputs import DeploymentView, ReplicaView, ScheduleRequest
from scheduler.placement.constraints import Constraints, required_anti_affinity
from scheduler.placement.device_accounting import admits, counts_devices, fit_devices, pods_on, residents, with_slots
from scheduler.placement.filters import passing, run_filters
from scheduler.placement.queue_limits import QueueLimits, refused_positions
from scheduler.placement.quota import QuotaGate
from scheduler.placement.reserved_pools import ReservedPools
from scheduler.placement.score import DEFAULT, ClusterScorer, pool_order, profile_of

_NO_ROOM = Trial(failed=0)
_NOTHING = (0, 0)
_NO_POOLS: frozenset[int] = frozenset()


class ReplicaPlacer:
    """Places the replicas of one deployment, one after the other."""

    def __init__(
        self, overlay: FleetOverlay, request: ScheduleRequest, compiled: CompiledTemplate, standing: Iterable[ReplicaView], quota: QuotaGate
    ) -> None:
        self.overlay = overlay
        self.request = request
        self.deployment: DeploymentView = request.deployment
        self._owner = (request.deployment.namespace, request.deployment.name)
        self.compiled = compiled
        self.priority = quota.priority
        found = run_filters(overlay, self.deployment, compiled)
        self.passing = passing(found, overlay.index.everything)
        self.own: dict[str, int] = {}
        self._indices: dict[str, set[int]] = defaultdict(set)
        self._levels: dict[int, ClusterSet] = {}
        self._replaceable: dict[tuple[str, int], ReplicaView] = {}
        credited = 0
        for entry in standing:
            self._indices[entry.cluster].add(entry.index)
            if entry.state != reasons.RELEASING:
                self._load(entry.cluster, 1)
            elif entry.cluster in overlay.clusters:
                credited |= 1 << overlay.clusters[entry.cluster].rank
        # Clusters where this decision has not yet found the room missing.
        self.open = ClusterSet(self.passing & (~overlay.full(compiled) | credited))
        # Domains to spread over are those of clusters that could be used, whether their hardware fits or not.
        eligible = passing([result for result in found if result.code != reasons.NO_POOL_MATCHES], overlay.index.everything)
        self.constraints = Constraints(overlay, self.deployment, eligible)
        self.quota = quota
        self.reserved = ReservedPools(overlay, self._owner, self.priority)
        # One engine on whole nodes, pools in published order: then room is a matter of one comparison per pool.
        self.is_simple = (
            len(compiled.engines) == 1 and self.is_plain and not counts_devices(overlay) and profile_of(overlay, self.deployment) == DEFAULT
        )
        self.scorer = ClusterScorer(overlay, self.deployment, compiled, self.trial, self.constraints)

    def _load(self, cluster: str, change: int) -> None:
        before = self.own.get(cluster, 0)
        after = before + change
        self.own[cluster] = after
        slot = self.overlay.clusters.get(cluster)
        if slot is None:
            return
        bit = 1 << slot.rank
        if before:
            self._levels[before] = ClusterSet(self._levels[before] & ~bit)
        if after:
            self._levels[after] = ClusterSet(self._levels.get(after, 0) | bit)

    def vacate(self, entry: ReplicaView) -> None:
        """Take a replica out of its place: its index and, for this deployment, its nodes are free at once."""
        self._indices[entry.cluster].discard(entry.index)
        self._load(entry.cluster, -1)
        self._count(entry, -1)
        self._replaceable[(entry.cluster, entry.index)] = entry
        self._reopen(entry.cluster)

    def restore(self, entry: ReplicaView) -> None:
        """Take back `vacate`."""
        self._indices[entry.cluster].add(entry.index)
        self._load(entry.cluster, 1)
        self._count(entry, 1)
        self._replaceable.pop((entry.cluster, entry.index), None)
        self._reopen(entry.cluster)

    def _count(self, entry: ReplicaView, sign: int) -> None:
        slot = self.overlay.clusters.get(entry.cluster)
        if slot is not None:
            self.quota.charge(slot, entry.engines, sign)

    def vacated(self, entry: ReplicaView) -> None:
        """Note a replica that was dropped before filling began: its identity may be used again."""
        self._replaceable[(entry.cluster, entry.index)] = entry
        self._reopen(entry.cluster)

    def _reopen(self, cluster: str) -> None:
        slot = self.overlay.clusters.get(cluster)
        if slot is not None:
            self.open = ClusterSet(self.open | (self.passing & 1 << slot.rank))
            self.scorer.forget(slot)

    def place(self) -> Placement | None:
        """Place one more replica, charge it, and describe it; None if no cluster takes it."""
        allowed = ClusterSet(self.open & self.constraints.allowed(self.own))
        for slot, trial in self.candidates(allowed):
            engines = self.engines_at(slot, trial)
            if self.quota.refuses(slot, engines):
                continue
            return self._commit(slot, engines)
        return None

    def place_on(self, slot: Slot) -> Placement | None:
        """Place one more replica on this cluster, None if it has no room or a quota refuses."""
        trial = self.trial(slot)
        if trial.failed >= 0:
            return None
        engines = self.engines_at(slot, trial)
        return None if self.quota.refuses(slot, engines) else self._commit(slot, engines)

    def candidates(self, allowed: ClusterSet) -> Iterable[tuple[Slot, Trial]]:
        """Give the clusters with room, best first."""
        if not self.scorer.spreads:
            yield from self.scorer.ranked(self.overlay.index.each(allowed), self.own, self.close)
            return
        loaded = 0
        for clusters in self._levels.values():
            loaded |= clusters
        levels = [allowed & ~loaded, *(allowed & self._levels[load] for load in sorted(self._levels))]
        for level in levels:
            group = level
            while group:
                low = group & -group
                group ^= low
                slot = self.overlay.index.ranked[low.bit_length() - 1]
                trial = self.trial(slot)
                if trial.failed >= 0:
                    self.close(slot, trial)
                else:
                    yield slot, trial

    def trial(self, slot: Slot) -> Trial:
        """Try the engines on a cluster, the deployment's own leaving nodes counted as free."""
        return self.trial_with(slot, self.compiled)

    def trial_with(self, slot: Slot, compiled: CompiledTemplate) -> Trial:
        """Try other engines than the deployment's own."""
        if self.is_simple and compiled is self.compiled and not (self.reserved or slot.observed or self.overlay.refused):
            return self._simple_trial(slot)
        refused = refused_positions(self.overlay, slot, *self._owner)
        if refused:
            trial = self._trial_among(slot, compiled, self.reserved.positions(slot), refused)
            return trial if trial.failed < 0 else replace(trial, violation=trial.violation or "admission: it let a replica wait too long")
        kept = self.reserved.positions(slot)
        trial = self._trial_among(slot, compiled, kept)
        if trial.failed < 0 or not kept:
            return trial
        # Is it those ahead in the queue who stand in the way, or is there no room anyhow?
        alone = self._trial_among(slot, compiled, frozenset())
        return alone if alone.failed >= 0 else replace(trial, violation=self.reserved.violated(slot))

    def _simple_trial(self, slot: Slot) -> Trial:
        engine = self.compiled.on(slot.layout).engines[0]
        used = self.overlay.ledger.used(slot.name)
        leaving = self.overlay.ledger.releasing(*self._owner, slot.name)
        for p in engine.positions:
            name = slot.pools[p].name
            nodes, taken = leaving.get(name, _NOTHING) if leaving else _NOTHING
            if slot.nodes[p] - used.get(name, 0) + max(0, nodes - taken) >= engine.cost:
                return Trial((p,))
        return _NO_ROOM

    def _trial_among(self, slot: Slot, compiled: CompiledTemplate, kept: frozenset[int], barred: frozenset[int] = _NO_POOLS) -> Trial:
        """Try engines on a cluster without the free nodes of `kept` pools, and without `barred` pools altogether."""
        if counts_devices(self.overlay):
            return self._trial_with_devices(slot, compiled, barred if self.has_reusable(slot) else kept | barred)
        free = self.overlay.free(slot)
        if kept:
            free = [min(nodes, 0) if p in kept else nodes for p, nodes in enumerate(free)]
        if slot.view.queues:
            return self._trial_in_queue(slot, compiled, free, barred)
        return self._trial_with_nodes(slot, compiled, free, barred)

    def _trial_with_devices(self, slot: Slot, compiled: CompiledTemplate, left_out: frozenset[int]) -> Trial:
        """Try engines on a cluster by counting devices, those that have to share a network one network after the other."""
        anywhere = fit_devices(self.overlay, compiled, slot, self._owner, lambda _, p: p not in left_out)
        if self.is_plain or anywhere.failed >= 0:
            return anywhere
        bound, rule = self._network_rule(compiled)
        domains = [pool.network_domain for pool in slot.pools]
        for domain in dict.fromkeys(domains):
            elsewhere = {p for p, other in enumerate(domains) if other != domain}
            trial = fit_devices(self.overlay, compiled, slot, self._owner, _without(left_out, elsewhere, bound))
            if trial.failed < 0:
                return trial
        return Trial(failed=0, violation=rule) if rule else anywhere

    def _network_rule(self, compiled: CompiledTemplate) -> tuple[Collection[int], str]:
        """Give the engines that have to share a network, and the rule that is broken where they cannot ("": only a wish)."""
        if not self._together:
            return compiled.spanning, "spanPools: one network"
        required = self.deployment.policy.network_domain == "Required" or compiled.spanning
        return range(len(compiled.engines)), "networkDomain: Required" if required else ""

    def _trial_in_queue(self, slot: Slot, compiled: CompiledTemplate, free: list[int], barred: frozenset[int]) -> Trial:
        """Try engines on a cluster where a queue has to admit them, each alone and all together."""
        limits = QueueLimits(self.overlay, slot, self.deployment.namespace)
        trial = self._trial_with_nodes(slot, compiled, limits.nodes(free), barred)
        if trial.failed >= 0:
            return trial
        costs: dict[int, int] = defaultdict(int)
        for p, engine in zip(trial.positions, compiled.on(slot.layout).engines, strict=True):
            costs[p] += engine.cost
        exceeded = limits.exceeded(costs)
        return Trial(failed=0, violation=exceeded) if exceeded else trial

    def _trial_with_nodes(self, slot: Slot, compiled: CompiledTemplate, free: list[int], barred: frozenset[int]) -> Trial:
        reusable = self.overlay.reusable(slot, self.deployment.namespace, self.deployment.name)
        if reusable:
            free = [a + b for a, b in zip(free, reusable, strict=True)]
        if barred:
            free = [min(nodes, 0) if p in barred else nodes for p, nodes in enumerate(free)]
        order = pool_order(self.overlay, self.deployment, slot, compiled)
        rules = self.overlay.rules
        fit = compiled.on(slot.layout)
        if self.is_plain or not rules.check_networks:
            return fit_nodes(fit, free, exact=rules.search_arrangements, order=order)
        domains = [pool.network_domain for pool in slot.pools]
        bound, rule = self._network_rule(compiled)
        return fit_domains(fit, free, domains, bound, rule, order=order)

    def admits_alone(self, slot: Slot, p: int, i: int) -> bool:
        """Whether a pool has the devices for one engine, the others left aside."""
        pool = slot.pools[p]
        added = pods_on((self.compiled.place(i, pool.name, pool.device_set),), pool)
        return admits(self.overlay, pool, residents(self.overlay, slot, pool, self._owner), added)

    @property
    def is_plain(self) -> bool:
        """Whether room is a matter of nodes alone: no rule about networks."""
        return not self._together and not self.compiled.spanning

    @property
    def _together(self) -> bool:
        """Whether all engines shall share one network."""
        return self.deployment.policy.network_domain != "Ignore" and self.deployment.serving_mode == "PrefillDecode"

    def has_reusable(self, slot: Slot) -> bool:
        """Whether the deployment's own replicas are leaving this cluster."""
        return bool(self.overlay.ledger.releasing(*self._owner, slot.name))

    def close(self, slot: Slot, trial: Trial) -> None:
        """Leave out a cluster without room, in this decision and in later ones until nodes come free."""
        self.open = ClusterSet(self.open & ~(1 << slot.rank))
        if not trial.violation:
            # Full even with what the deployment itself is leaving, so full for everybody.
            self.overlay.add_full(self.compiled, slot)

    def engines_at(self, slot: Slot, trial: Trial) -> tuple[EnginePlacement, ...]:
        """Stamp the engines onto the pools that a trial found."""
        engines = tuple(self.compiled.place(i, slot.pools[p].name, slot.pools[p].device_set) for i, p in enumerate(trial.positions))
        return with_slots(self.overlay, slot, joined_units(engines) if self.compiled.spanning else engines, self._owner)

    def _commit(self, slot: Slot, engines: tuple[EnginePlacement, ...]) -> Placement:
        index = _lowest_free(self._indices[slot.name])
        replaced = self._replaceable.pop((slot.name, index), None)
        deployment = self.deployment
        name, counter = self._name(slot.name, index, replaced)
        by_device = counts_devices(self.overlay)
        reuse = () if by_device else self._reuse(slot, charges(engines))
        after = self._leavers(slot.name, replaced) if reuse or replaced or by_device else ()
        placement = Placement(
            cluster=slot.name,
            index=index,
            replica_name=name,
            uid=replica_uid(*self._owner, (deployment.uid, self.request.request_id), slot.name, index),
            action=reasons.REPLACE if replaced else reasons.CREATE,
            engines=engines,
            gateway_address=slot.view.gateway_address,
            template=deployment.template,
            name_counter=counter,
            reuse=reuse,
            after=after,
        )
        self._indices[slot.name].add(index)
        self._load(slot.name, 1)
        self.scorer.forget(slot)
        self.overlay.ledger.put(reserved_entry(self.request, placement, self.priority, self.overlay.now))
        self.quota.charge(slot, engines, 1)
        return placement

    def undo(self, placement: Placement) -> None:
        """Take back a placement of this decision."""
        self.overlay.ledger.remove(placement.uid)
        self._indices[placement.cluster].discard(placement.index)
        self._load(placement.cluster, -1)
        self.quota.charge(self.overlay.clusters[placement.cluster], placement.engines, -1)
        self._reopen(placement.cluster)

    def _reuse(self, slot: Slot, nodes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        used = self.overlay.ledger.used(slot.name)
        taken = []
        for pool, count in nodes.items():
            free = slot.nodes[slot.positions[pool]] - used.get(pool, 0)
            if count > max(free, 0):
                taken.append((pool, count - max(free, 0)))
        leaving = self.overlay.ledger.releasing(self.deployment.namespace, self.deployment.name, slot.name)
        return tuple((pool, min(count, leaving.get(pool, (0, 0))[0])) for pool, count in taken if leaving.get(pool, (0, 0))[0])

    def _leavers(self, cluster: str, replaced: ReplicaView | None) -> tuple[str, ...]:
        owned = self.overlay.ledger.owned(self.deployment.namespace, self.deployment.name).values()
        leaving = {e.uid for e in owned if e.cluster == cluster and e.state == reasons.RELEASING}
        requester = (self.deployment.namespace, self.deployment.name)
        leaving |= {e.uid for e in self.overlay.ledger.on_cluster(cluster).values() if e.nominated_for == requester}
        if replaced is not None:
            leaving.add(replaced.uid)
        return tuple(sorted(leaving))

    def _name(self, cluster: str, index: int, replaced: ReplicaView | None) -> tuple[str, int]:
        deployment = self.deployment
        counter = replaced.name_counter if replaced else 0
        identity = (deployment.namespace, deployment.name, cluster, index)
        while True:
            name = replica_name(deployment.namespace, deployment.name, cluster, index, counter)
            # A name may be in use by another identity; overwriting it would be two owners of one workload.
            if not any(_clashes(entry, identity) for entry in self.overlay.ledger.named(name)):
                return name, counter
            counter += 1


def _without(left_out: Collection[int], elsewhere: Collection[int], bound: Collection[int]) -> Callable[[int, int], bool]:
    """Give the rule that no engine goes to pools left out, and no bound one to those elsewhere."""
    return lambda i, p: p not in left_out and (i not in bound or p not in elsewhere)


def _clashes(entry: ReplicaView, identity: tuple[str, str, str, int]) -> bool:
    if (entry.namespace, entry.deployment, entry.cluster, entry.index) == identity:
        return False
    return entry.namespace == identity[0] or entry.cluster == identity[2]


def _lowest_free(taken: set[int]) -> int:
    index = 0
    while index in taken:
        index += 1
    return index


def reserved_entry(request: ScheduleRequest, placement: Placement, priority: int, now: int) -> ReplicaView:
    """Give the ledger entry of a new placement."""
    deployment = request.deployment
    return ReplicaView(
        uid=placement.uid,
        namespace=deployment.namespace,
        deployment=deployment.name,
        cluster=placement.cluster,
        index=placement.index,
        name=placement.replica_name,
        engines=placement.engines,
        state=reasons.RESERVED,
        priority=priority,
        since=now,
        template=placement.template,
        name_counter=placement.name_counter,
        reuse=placement.reuse,
        labels=deployment_labels(deployment),
        min_available=deployment.policy.min_available,
        avoids=required_anti_affinity(deployment),
        origin=(deployment.uid, request.request_id),
    )


def deployment_labels(deployment: DeploymentView) -> tuple[tuple[str, str], ...]:
    """Give the labels by which affinity terms of others find this deployment."""
    return tuple(sorted(deployment.labels.items()))


def place_gang(placer: ReplicaPlacer, size: int) -> Sequence[Placement]:
    """Place `size` replicas together or none of them."""
    placed: list[Placement] = []
    for _ in range(size):
        placement = placer.place()
        if placement is None:
            for done in reversed(placed):
                placer.undo(done)
            return ()
        placed.append(placement)
    return placed
