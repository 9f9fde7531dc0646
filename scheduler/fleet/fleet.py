"""The scheduler's knowledge: clusters, and the ledger of replicas on them.

The FleetScheduler workflow owns the one live Fleet and changes it. Decisions only read
it. Each change increases `version`, so a reader can detect whether the fleet has
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from scheduler.fleet.caches.full_clusters import FullClusterCache
from scheduler.fleet.caches.quota_usage import QuotaUsage
from scheduler.fleet.caches.tried_clusters import TriedClusterCache
from scheduler.fleet.caches.victim_index import VictimIndex
from scheduler.fleet.cluster_index import ClusterIndex, ClusterInfo, is_ready
from scheduler.fleet.ledger import Ledger, rebuilt
from scheduler.fleet.queue_reservations import QueueReservation
from scheduler.fleet.reserved_entry import EntryPolicy, refresh_policy
from scheduler.model.identity import Owner, RefusedPool
from scheduler.model.inputs import ClusterView, DeploymentView, LedgerEntry
from scheduler.model.policy import STRICT_ORDER, SchedulerOptions
from scheduler.model.reasons import RESERVED


class Fleet:
    """The live, indexed view of clusters and replicas.

    The clusters in `awaited` have not reported yet to a scheduler that lost its state. If
    one of them is missing, it does not count as deleted.
    """

    def __init__(self, options: SchedulerOptions | None = None) -> None:
        self.version = 0
        self.options = options or SchedulerOptions()
        self.awaited: frozenset[str] = frozenset()
        self.index = ClusterIndex()
        self.ledger = Ledger()
        self._follow(self.ledger)
        # Time of the last preemption of a replica of the deployment, in ms.
        self.preempted_at: dict[Owner, int] = {}
        # Time in ms when a replica of the deployment had waited too long on a pool for
        # admission.
        self.refused: dict[RefusedPool, int] = {}
        # Deployments that wait for capacity, kept only while the queue order is strict.
        self.queue_reservations: dict[Owner, QueueReservation] = {}
        # Number of decisions in a row about a deployment that ended before their search
        # for victims did.
        self.unfinished_searches: dict[Owner, int] = {}
        # Time when the longest search for victims for a deployment ended without a
        # result, in ms.
        self.ended_searches: dict[Owner, int] = {}
        # The existing classes, if the fleet was read together with them; only
        # explanations read it.
        self.class_names: frozenset[str] | None = None

    def use_ledger(self, ledger: Ledger) -> None:
        """Replace the ledger."""
        self.ledger = ledger
        self._follow(ledger)

    def _follow(self, ledger: Ledger) -> None:
        """Create the caches that follow a ledger's entries."""
        self.full_clusters = FullClusterCache(self.index, ledger)
        self.tried_clusters = TriedClusterCache(self.index, ledger)
        self.victims = VictimIndex(self.index, ledger)
        self.quota_usage = QuotaUsage(self.index.clusters, ledger)
        self.quota_usage.set_quotas(self.options.quotas)

    # Clusters

    @property
    def clusters(self) -> Mapping[str, ClusterInfo]:
        return self.index.clusters

    def ready_clusters(self) -> int:
        """Return the number of clusters that may receive replicas."""
        return sum(is_ready(info.view) for info in self.clusters.values())

    def cluster(self, name: str) -> ClusterView | None:
        """Return the view of a cluster, or None if it is unknown."""
        info = self.index.clusters.get(name)
        return info.view if info else None

    def put_cluster(self, view: ClusterView, now: int = 0) -> None:
        """Add or replace a cluster; a taint keeps the time at which it was first seen."""
        old = self.index.clusters.get(view.name)
        known = old.view.taints if old else ()
        seen = {(t.key, t.value, t.effect): t.since for t in known}
        taints = tuple(
            replace(t, since=t.since or seen.get((t.key, t.value, t.effect), now))
            for t in view.taints
        )
        if taints != view.taints or any(
            t.since != u.since for t, u in zip(taints, view.taints, strict=True)
        ):
            view = replace(view, taints=taints)
        if old is not None and old.view == view:
            return
        self.index.put(view)
        if old is not None and old.rank >= 0:
            self.full_clusters.forget(old.rank)
        self.quota_usage.recount_cluster(view.name)
        self.version += 1

    def remove_cluster(self, name: str) -> None:
        """Remove a cluster; its replicas remain in the ledger until they are released."""
        if name in self.index.clusters:
            self.index.remove(name)
            self.quota_usage.recount_cluster(name)
            self.version += 1

    def set_options(self, options: SchedulerOptions) -> None:
        """Replace the fleet's policy.

        The policy applies to new placements only, but changed priority values apply to
        all.
        """
        if options != self.options:
            self._reprioritize(options)
            if options.quotas != self.options.quotas:
                self.quota_usage.set_quotas(options.quotas)
            self.options = options
            # Whether a cluster is full depends on how capacity is counted.
            self.full_clusters.clear()
            self.tried_clusters.clear()
            if options.queue_order != STRICT_ORDER:
                self.queue_reservations.clear()
            self.version += 1

    def _reprioritize(self, options: SchedulerOptions) -> None:
        known = dict.fromkeys(
            (*self.options.priority_classes, *options.priority_classes)
        )
        changed = {
            name: options.priority_of(name)
            for name in known
            if options.priority_of(name) != self.options.priority_of(name)
        }
        if not changed:
            return
        for entry in list(self.ledger.entries()):
            if entry.priority_class in changed:
                self.ledger.put(replace(entry, priority=changed[entry.priority_class]))
        for owner, waiting in self.queue_reservations.items():
            priority = changed.get(
                waiting.deployment.policy.priority_class, waiting.priority
            )
            self.queue_reservations[owner] = replace(waiting, priority=priority)

    def set_queue_reservation(
        self, owner: Owner, reservation: QueueReservation | None
    ) -> bool:
        """Record that a deployment waits for capacity, or with None that it does not.

        Return True if the record changed.
        """
        if self.queue_reservations.get(owner) == reservation:
            return False
        if reservation is None:
            del self.queue_reservations[owner]
        else:
            self.queue_reservations[owner] = reservation
        return True

    # Replicas

    def put_replica(self, replica: LedgerEntry) -> None:
        """Record a replica as observed or as its owner reports it, replacing its entry."""
        if self.ledger.get(replica.uid) != replica:
            self.ledger.put(replica)
            self.version += 1

    def refresh_policy(self, deployment: DeploymentView) -> bool:
        """Update the policy in the entries of a deployment before it is decided again.

        Return True if an entry changed.
        """
        changed = refresh_policy(
            self.ledger,
            (deployment.namespace, deployment.name),
            EntryPolicy.of(deployment, self.options),
        )
        self.version += changed
        return changed

    def bind(self, uid: str, now: int = 0) -> bool:
        """Record that the replica's workflow exists; its reservation is kept.

        Return False if the uid is unknown.
        """
        entry = self.ledger.get(uid)
        if entry is None:
            return False
        if entry.state == RESERVED:
            self.put_replica(entry.as_bound(now or entry.since))
        elif entry.reuse:
            # The replica was released before the start was known. A started replica is
            # charged in full in any state.
            self.put_replica(replace(entry, reuse=()))
        return True

    def release(self, uid: str) -> bool:
        """Free the nodes of a replica whose objects are gone.

        Return False if the uid is unknown.
        """
        if self.ledger.remove(uid) is None:
            return False
        self.version += 1
        return True

    def observe(self, uid: str, *, ready: bool, serving: bool) -> bool:
        """Record a replica's health; return False if the uid is unknown."""
        entry = self.ledger.get(uid)
        if entry is None:
            return False
        self.put_replica(replace(entry, ready=ready, serving=serving))
        return True

    def end_update(self, uid: str) -> bool:
        """Free the nodes of an updated replica whose old pods are gone.

        Return True if the charge changed.
        """
        entry = self.ledger.get(uid)
        if entry is None or not entry.held:
            return False
        self.put_replica(entry.as_rolled_out())
        return True

    def replica(self, uid: str) -> LedgerEntry | None:
        return self.ledger.get(uid)

    def owned(self, namespace: str, deployment: str) -> Mapping[str, LedgerEntry]:
        """Return the replicas of a deployment by uid."""
        return self.ledger.owned(namespace, deployment)

    def entries(self) -> Iterator[LedgerEntry]:
        return self.ledger.entries()

    def on_cluster(self, cluster: str) -> Mapping[str, LedgerEntry]:
        """Return the replicas charged on a cluster by uid.

        A cluster with such replicas must not be torn down.
        """
        return self.ledger.on_cluster(cluster)

    def free(self, cluster: str) -> dict[str, int]:
        """Return the free nodes per pool of a cluster; empty if the cluster is unknown.

        The number is negative if a pool shrank below its use.
        """
        info = self.index.clusters.get(cluster)
        used = self.ledger.used(cluster)
        if info is None:
            return {}
        return {pool.name: pool.nodes - used.get(pool.name, 0) for pool in info.pools}

    # Checking

    def audit(self) -> list[str]:
        """Recount everything from the entries and return one sentence per difference."""
        recounted = rebuilt(self.entries())
        usage = QuotaUsage(self.index.clusters, recounted)
        usage.set_quotas(self.options.quotas)
        return [
            *self.ledger.differences(recounted),
            *self.quota_usage.differences(usage),
        ]
