"""How accounts change the scheduler's cache. They add what it does not know; what it knows they leave as it is."""

from collections.abc import Container, Iterable
from dataclasses import replace

from api_types import names
from api_types.messages.scheduling import ReportCluster
from scheduler import LedgerEntry, reasons
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import Takeover
from workflows.fleet_scheduler.inbox import Inbox, Log
from workflows.fleet_scheduler.rebuild.accounts import PackedAccounts


class Adoption:
    """Takes accounts over into the cache."""

    def __init__(self, cache: SchedulerCache, inbox: Inbox, log: Log) -> None:
        self._cache = cache
        self._inbox = inbox
        self._log = log

    @property
    def messages_read(self) -> int:
        """How many messages this run has read. It tells whether a message came after a question."""
        return self._cache.messages_read

    def adopt(self, accounts: PackedAccounts, asked_at: int | None = None) -> list[LedgerEntry]:
        """Take accounts over; gives the entries that were not known before.

        `asked_at`: how many messages this run had read when it asked for them, beside other messages.
        """
        self._cache.messages_read += 1
        for cluster in accounts.read_clusters():
            if cluster.gone:
                # A closed workflow still answers; what is late of it is old.
                self._inbox.forget_cluster(cluster.name, cluster.uid)
                continue
            if asked_at is not None and self._is_outdated(cluster, asked_at):
                self._cache.await_account(names.workflow_id("InferenceCluster", "", cluster.name), [cluster.name])
                continue
            try:
                if self._cache.clusters.settle(cluster.name, cluster.uid):
                    # Nothing of the earlier cluster of that name holds for this one.
                    self._cache.state.deleting_clusters.pop(cluster.name, None)
                self._inbox.report_cluster(cluster)
            except ValueError as error:
                # What cannot be placed on stays unknown; its next report may be better.
                self._log.warning("the report of a cluster could not be read", extra={"cluster": cluster.name, "problems": str(error)})
        for name, deployment_uid in accounts.deployments.items():
            known = self._cache.deployments[name]
            if asked_at is not None and known.replaced_by(deployment_uid) and self._cache.requested_at.get(name, -1) > asked_at:
                # Another deployment of that name has requested since: the account may be that of one that was terminated.
                self._cache.await_account(names.workflow_id("ModelDeployment", *name.split("/")), ())
                continue
            if self._cache.deployments.settle(name, deployment_uid):
                # Its requests were taken for late ones.
                self._cache.request_resync([(name.split("/")[0], name.split("/")[1])])
        for found in accounts.read_classes():
            self._inbox.report_class(found)
        added = [entry for entry in accounts.read_entries() if self._adopt_entry(entry)]
        for uid in accounts.gone:
            self._cache.release(uid)
        if asked_at is not None:
            # A rebuild has every deployment request anew. Later, that of a replica which is known only now may not know it either.
            owners = dict.fromkeys((entry.namespace, entry.deployment) for entry in added)
            self._cache.request_resync(owner for owner in owners if "/".join(owner) not in accounts.deployments)
        return added

    def _is_outdated(self, cluster: ReportCluster, asked_at: int) -> bool:
        """Tell whether another cluster of that name has reported itself since: the account may be that of one that was terminated."""
        known = self._cache.clusters[cluster.name]
        return known.replaced_by(cluster.uid) and self._cache.reported_at.get(cluster.name, -1) > asked_at

    def _adopt_entry(self, entry: LedgerEntry) -> bool:
        cache = self._cache
        if cache.fleet.replica(entry.uid) is not None:
            if entry.state == reasons.BOUND:
                cache.fleet.bind(entry.uid, cache.now())
                cache.reservations.bind(entry.uid)
            return False
        if entry.uid in cache.reservations.released:
            return False
        cache.fleet.put_replica(replace(entry, since=cache.now()))
        if entry.state == reasons.RESERVED:
            cache.reservations.reserve(entry.uid)
        return True

    def check_unlisted(self, entries: Iterable[LedgerEntry], seen: Container[str]) -> None:
        """Have replicas checked that are charged because their deployments say so, and that visibility does not list: they may be gone."""
        for entry in entries:
            if entry.state != reasons.RESERVED and replica_id(entry) not in seen:
                self._cache.verification.add(entry)

    def await_unknown_clusters(self, entries: Iterable[LedgerEntry]) -> None:
        """Have the clusters asked that replicas are charged on and that no listing has.

        Visibility left them out, or their workflows were terminated, and their replicas stay. Of one that was deleted they are evicted.
        """
        fleet, missing = self._cache.fleet, self._cache.state.unresponsive
        for name in sorted({entry.cluster for entry in entries if fleet.cluster(entry.cluster) is None}):
            workflow_id = names.workflow_id("InferenceCluster", "", name)
            if workflow_id not in missing and not self._cache.clusters[name].superseded:
                self._cache.await_account(workflow_id, [name])

    def charged(self, workflow_ids: Iterable[str]) -> list[str]:
        """Return the ids of clusters with charged replicas."""
        entries = self._cache.fleet.entries()
        charged = {names.workflow_id("InferenceCluster", "", entry.cluster) for entry in entries}
        return [workflow_id for workflow_id in workflow_ids if workflow_id in charged]

    def begin_takeover(self, takeover: Takeover) -> None:
        """Have every cluster of a state that was taken over asked which scheduler it heard of last.

        What the lost scheduler was sending may not have arrived: deployments of unused placements request again, and clusters that are
        being deleted are told again what is charged there.
        """
        cache, state = self._cache, self._cache.state
        for name in cache.fleet.clusters:
            cache.await_account(names.workflow_id("InferenceCluster", "", name), [name])
        cache.fleet.rebuilding = bool(cache.fleet.clusters)
        reserved = [(entry.namespace, entry.deployment) for entry in cache.fleet.entries() if entry.state == reasons.RESERVED]
        cache.request_resync(reserved)
        state.deleting_clusters = dict.fromkeys(state.deleting_clusters)
        state.takeover = takeover.model_copy(update={"begun": True})

    def allow_accounted(self) -> None:
        """Allow new replicas on the clusters about which nothing is unknown, and only there; requests that waited for that are queued."""
        cache, missing = self._cache, self._cache.state.unresponsive
        since = cache.state.unresponsive_since
        cache.state.unresponsive_since = {workflow_id: since.get(workflow_id, cache.now()) for workflow_id in missing}
        unaccounted = {cluster for clusters in missing.values() for cluster in clusters}
        for name, info in list(cache.fleet.clusters.items()):
            if info.view.accounted == (name in unaccounted):
                cache.fleet.put_cluster(replace(info.view, accounted=name not in unaccounted), cache.now())
                cache.hints.add_cluster(name)
        cache.release_withheld()
        cache.requeue_unplaced()
        cache.fleet.rebuilding = any(workflow_id.startswith("inferencecluster/") for workflow_id in missing)


def replica_id(entry: LedgerEntry) -> str:
    """Give the workflow id of a replica."""
    return names.workflow_id("ModelReplica", entry.namespace, entry.name)
