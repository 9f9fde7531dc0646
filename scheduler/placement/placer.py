"""Place new replicas on the best cluster that passes every filter.

By default the best cluster is the least loaded one, and among equals the first by name.
Each placement is charged on the overlay before the next one is chosen. A deployment may
reuse nodes that its own releasing replicas still hold. Such a placement records how
many nodes it reuses and which replicas it must wait for. `trials` decides whether a
replica fits on a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from api_types.names import replica_name
from scheduler.fleet.charged_nodes import NO_RELEASING_NODES
from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.reserved_entry import EntryPolicy, ReservedFor, reserved_entry
from scheduler.hardware.node_fitting import Trial
from scheduler.hardware.template import CompiledTemplate, charges
from scheduler.model import reasons
from scheduler.model.decision import EnginePlacement, Placement
from scheduler.model.identity import replica_uid
from scheduler.model.inputs import DeploymentView, LedgerEntry, ScheduleRequest
from scheduler.placement.constraints import Constraints
from scheduler.placement.filters import passing, run_filters
from scheduler.placement.limits.device_accounting import counts_devices
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.limits.reserved_pools import ReservedPools
from scheduler.placement.ranking import OwnReplicas
from scheduler.placement.score import ClusterScorer, domain_keys
from scheduler.placement.trials import Trials


class ReplicaPlacer:
    """Places the replicas of one deployment, one after the other."""

    def __init__(
        self,
        overlay: FleetOverlay,
        request: ScheduleRequest,
        compiled: CompiledTemplate,
        existing: Iterable[LedgerEntry],
        quota: QuotaGate,
    ) -> None:
        self.overlay = overlay
        self.request = request
        self.deployment: DeploymentView = request.deployment
        self._owner = (request.deployment.namespace, request.deployment.name)
        self.compiled = compiled
        self.priority = quota.priority
        self._reserved_for = ReservedFor(
            *self._owner,
            since=overlay.now,
            origin=(self.deployment.uid, request.request_id),
            policy=EntryPolicy.of(self.deployment, overlay.options),
        )
        found = run_filters(overlay, self.deployment, compiled)
        self.passing = passing(found, overlay.index.everything)
        self._replicas = OwnReplicas(
            overlay.index, domain_keys(overlay, request.deployment)
        )
        self.own: Mapping[str, int] = self._replicas.by_name
        self._indices: dict[str, set[int]] = defaultdict(set)
        self._replaceable: dict[tuple[str, int], LedgerEntry] = {}
        for entry in existing:
            self._indices[entry.cluster].add(entry.index)
            if entry.state != reasons.RELEASING:
                self._replicas.add(entry.cluster, 1)
        # The deployment may reuse nodes on these clusters, so they may be full for
        # others but not for it.
        releasing = overlay.index.named(
            entry.cluster for entry in overlay.ledger.leaving_for(self._owner)
        )
        # Clusters that are not known to be full.
        self.open = ClusterSet(self.passing & (~overlay.full(compiled) | releasing))
        # Clusters that only a quota rejects.
        self._over_quota = NO_CLUSTERS
        # The domains to spread over are those of all usable clusters, even if their
        # hardware does not fit.
        eligible = passing(
            [result for result in found if result.code != reasons.NO_POOL_MATCHES],
            overlay.index.everything,
        )
        self.constraints = Constraints(overlay, self.deployment, eligible)
        self.quota = quota
        self.reserved = ReservedPools(overlay, self._owner, self.priority)
        self.trials = Trials(overlay, self.deployment, compiled, self.reserved, quota)
        self.scorer = ClusterScorer(
            overlay, self.deployment, compiled, self.constraints, self._replicas
        )

    def vacate(self, entry: LedgerEntry) -> None:
        """Free the place of a replica.

        Its index and nodes are free for this deployment.
        """
        self._indices[entry.cluster].discard(entry.index)
        self._replicas.add(entry.cluster, -1)
        self._replaceable[(entry.cluster, entry.index)] = entry
        self.mark_open(entry.cluster)

    def restore(self, entry: LedgerEntry) -> None:
        """Put a vacated replica back in its place."""
        self._indices[entry.cluster].add(entry.index)
        self._replicas.add(entry.cluster, 1)
        self._replaceable.pop((entry.cluster, entry.index), None)
        self.mark_open(entry.cluster)

    def mark_vacated(self, entry: LedgerEntry) -> None:
        """Record a replica that was evicted before placing began.

        Its name and index may be used again.
        """
        self._replaceable[(entry.cluster, entry.index)] = entry
        self.mark_open(entry.cluster)

    def mark_open(self, cluster: str) -> None:
        """Try a full cluster again, because nodes were freed there."""
        info = self.overlay.clusters.get(cluster)
        if info is not None:
            # A quota that the replica no longer uses has room on every cluster.
            self.open = ClusterSet(
                self.open | self._over_quota | self.passing & 1 << info.rank
            )
            self._over_quota = NO_CLUSTERS

    def place(self) -> Placement | None:
        """Place and charge one more replica; return None if it fits on no cluster."""
        allowed = ClusterSet(self.open & self.constraints.allowed(self.own))
        found = next(self.candidates(allowed), None)
        if found is None:
            return None
        return self._commit(found[0], self.trials.placed_engines(*found))

    def place_on(self, info: ClusterInfo) -> Placement | None:
        """Place one more replica on this cluster; return None if it does not fit.

        The caller has checked the rules between clusters.
        """
        trial = self.trial(info)
        if trial.failed >= 0:
            return None
        return self._commit(info, self.trials.placed_engines(info, trial))

    def candidates(self, allowed: ClusterSet) -> Iterator[tuple[ClusterInfo, Trial]]:
        """Yield the clusters with free capacity, the best first."""
        if not self.scorer.spreads:
            tried = self.trials.tried(allowed)
            for outcomes, clusters in tried:
                for info in self.overlay.index.each(
                    ClusterSet(clusters & ~outcomes.fitting)
                ):
                    self.mark_full(info, outcomes.trial(info.rank))
            yield from self.scorer.ranked(tried)
            return
        alike: Iterable[ClusterSet] = [allowed]
        if self.constraints.has_preferences:
            alike = self.constraints.by_preference(allowed, self.own)
        for equals in alike:
            for _, group in self._replicas.clusters.ascending(equals):
                yield from self._fitting(group)

    def _fitting(self, group: ClusterSet) -> Iterator[tuple[ClusterInfo, Trial]]:
        for info in self.overlay.index.each(group):
            trial = self.trials.on(info)
            if trial.failed >= 0:
                self.mark_full(info, trial)
            else:
                yield info, trial

    def trial(self, info: ClusterInfo) -> Trial:
        """Try the engines on a cluster.

        Nodes that the deployment's own releasing replicas hold count as free.
        """
        return self.trials.on(info)

    def mark_full(self, info: ClusterInfo, trial: Trial) -> None:
        """Skip a full cluster until nodes are freed there.

        Later decisions skip it as well.
        """
        self.open = ClusterSet(self.open & ~(1 << info.rank))
        if trial.over_quota:
            self._over_quota = ClusterSet(self._over_quota | 1 << info.rank)
        if not trial.violation:
            # Full even with the nodes that only this deployment may reuse, so full for
            # every deployment.
            self.overlay.add_full(self.compiled, info)

    def _commit(
        self, info: ClusterInfo, engines: tuple[EnginePlacement, ...]
    ) -> Placement:
        index = _lowest_free(self._indices[info.name])
        replaced = self._replaceable.pop((info.name, index), None)
        deployment = self.deployment
        name, counter = self._name(info.name, index, replaced)
        by_device = counts_devices(self.overlay)
        reuse = () if by_device else self._reuse(info, charges(engines))
        after: tuple[str, ...] = ()
        if reuse or replaced or by_device:
            after = self._predecessors(info.name, replaced)
        placement = Placement(
            cluster=info.name,
            index=index,
            replica_name=name,
            uid=replica_uid(
                *self._owner,
                (deployment.uid, self.request.request_id),
                info.name,
                index,
            ),
            action=reasons.REPLACE if replaced else reasons.CREATE,
            engines=engines,
            gateway_address=info.view.gateway_address,
            template=deployment.template,
            name_counter=counter,
            reuse=reuse,
            after=after,
        )
        self.put_back(placement)
        return placement

    def put_back(self, placement: Placement) -> None:
        """Charge a placement of this decision, for example one that was undone."""
        self._indices[placement.cluster].add(placement.index)
        self._replicas.add(placement.cluster, 1)
        self.overlay.ledger.put(reserved_entry(placement, self._reserved_for))

    def undo(self, placement: Placement) -> None:
        """Remove a placement of this decision."""
        self.overlay.ledger.remove(placement.uid)
        self._indices[placement.cluster].discard(placement.index)
        self._replicas.add(placement.cluster, -1)
        self.mark_open(placement.cluster)

    def _reuse(
        self, info: ClusterInfo, nodes: Mapping[str, int]
    ) -> tuple[tuple[str, int], ...]:
        used = self.overlay.ledger.used(info.name)
        short = []
        for pool, count in nodes.items():
            free = info.nodes[info.positions[pool]] - used.get(pool, 0)
            if count > max(free, 0):
                short.append((pool, count - max(free, 0)))
        releasing = self.overlay.ledger.releasing(*self._owner, info.name)
        held = [
            (pool, count, releasing.get(pool, NO_RELEASING_NODES).nodes)
            for pool, count in short
        ]
        return tuple((pool, min(count, nodes)) for pool, count, nodes in held if nodes)

    def _predecessors(
        self, cluster: str, replaced: LedgerEntry | None
    ) -> tuple[str, ...]:
        """Return the replicas that must be gone before a new one's pods start."""
        found = self.overlay.ledger.predecessors(self._owner, cluster)
        return tuple(sorted({*found, replaced.uid})) if replaced else found

    def _name(
        self, cluster: str, index: int, replaced: LedgerEntry | None
    ) -> tuple[str, int]:
        deployment = self.deployment
        counter = replaced.name_counter if replaced else 0
        identity = (deployment.namespace, deployment.name, cluster, index)
        while True:
            name = replica_name(
                deployment.namespace, deployment.name, cluster, index, counter
            )
            # The name may belong to another identity. Two owners of one workload would
            # overwrite each other.
            if not any(
                _clashes(entry, identity) for entry in self.overlay.ledger.named(name)
            ):
                return name, counter
            counter += 1


def _clashes(entry: LedgerEntry, identity: tuple[str, str, str, int]) -> bool:
    if (entry.namespace, entry.deployment, entry.cluster, entry.index) == identity:
        return False
    return entry.namespace == identity[0] or entry.cluster == identity[2]


def _lowest_free(taken: set[int]) -> int:
    index = 0
    while index in taken:
        index += 1
    return index
