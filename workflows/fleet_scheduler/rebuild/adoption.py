"""How accounts change the scheduler's cache.

They add unknown entries, and leave known ones as they are.
"""

from collections.abc import Container, Iterable
from dataclasses import replace

from api_types import names
from api_types.messages.scheduling import ReportCluster
from api_types.messages.versions import MessageVersion
from scheduler import LedgerEntry, reasons
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import Takeover
from workflows.fleet_scheduler.inbox import Inbox, Log
from workflows.fleet_scheduler.rebuild.accounts import PackedAccounts


class AccountAdoption:
    """Applies accounts to the cache."""

    def __init__(self, cache: SchedulerCache, inbox: Inbox, log: Log) -> None:
        self._cache = cache
        self._inbox = inbox
        self._log = log

    @property
    def messages_read(self) -> int:
        """Return the number of messages that this run has read.

        It shows whether a message arrived after a query.
        """
        return self._cache.messages_read

    def adopt(
        self, accounts: PackedAccounts, asked_at: int | None = None
    ) -> list[LedgerEntry]:
        """Apply accounts; return the entries that were unknown before.

        `asked_at` is the number of messages that this run had read when it requested
        the accounts. It is None during a rebuild.
        """
        self._cache.messages_read += 1
        for cluster in accounts.read_clusters():
            self._adopt_cluster(cluster, asked_at)
        for name, uid in accounts.deployments.items():
            self._adopt_deployment(name, uid, asked_at)
        for found in accounts.read_classes():
            self._inbox.report_class(found)
        added = [entry for entry in accounts.read_entries() if self._adopt_entry(entry)]
        for uid in accounts.gone:
            self._cache.release(uid)
        if asked_at is not None:
            # A rebuild makes every deployment request again. Later, a deployment may
            # not know a newly found replica either.
            owners = dict.fromkeys(
                (entry.namespace, entry.deployment) for entry in added
            )
            self._cache.request_resync(
                owner for owner in owners if "/".join(owner) not in accounts.deployments
            )
        return added

    def _adopt_cluster(self, cluster: ReportCluster, asked_at: int | None) -> None:
        cache, name = self._cache, cluster.name
        if cluster.gone:
            # A closed workflow still answers. Its late messages are old.
            self._inbox.forget_cluster(name, cluster.uid)
            return
        if asked_at is not None and _is_outdated(
            cache.clusters[name], cluster.uid, cache.reported_at.get(name, -1), asked_at
        ):
            cache.await_account(names.workflow_id("InferenceCluster", "", name), [name])
            return
        try:
            if cache.clusters.settle(name, cluster.uid):
                # The state of the earlier cluster of that name does not apply to this
                # one.
                cache.state.deleting_clusters.pop(name, None)
            self._inbox.report_cluster(cluster)
        except ValueError as error:
            # A cluster with an unreadable report stays unknown. Its next report may be
            # readable.
            self._log.warning(
                "the report of a cluster could not be read",
                extra={"cluster": name, "problems": str(error)},
            )

    def _adopt_deployment(self, owner: str, uid: str, asked_at: int | None) -> None:
        cache = self._cache
        namespace, name = owner.split("/")
        if asked_at is not None and _is_outdated(
            cache.deployments[owner], uid, cache.requested_at.get(owner, -1), asked_at
        ):
            cache.await_account(
                names.workflow_id("ModelDeployment", namespace, name), ()
            )
        elif cache.deployments.settle(owner, uid):
            # The requests of this deployment were treated as late ones.
            cache.request_resync([(namespace, name)])

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

    def check_unlisted(
        self, entries: Iterable[LedgerEntry], seen: Container[str]
    ) -> None:
        """Check charged replicas that visibility does not list.

        Only their deployments list them, so they may be gone.
        """
        for entry in entries:
            if entry.state != reasons.RESERVED and replica_id(entry) not in seen:
                self._cache.verification.add(entry)

    def await_unknown_clusters(self, entries: Iterable[LedgerEntry]) -> None:
        """Query the clusters with charged replicas that no listing has.

        Visibility omitted them, or their workflows were terminated; then their replicas
        stay. The replicas of a deleted cluster are evicted.
        """
        fleet, missing = self._cache.fleet, self._cache.state.unresponsive
        for name in sorted(
            {entry.cluster for entry in entries if fleet.cluster(entry.cluster) is None}
        ):
            workflow_id = names.workflow_id("InferenceCluster", "", name)
            if workflow_id not in missing and not self._cache.clusters[name].superseded:
                self._cache.await_account(workflow_id, [name])

    def charged(self, workflow_ids: Iterable[str]) -> list[str]:
        """Return the ids of clusters with charged replicas."""
        entries = self._cache.fleet.entries()
        charged = {
            names.workflow_id("InferenceCluster", "", entry.cluster)
            for entry in entries
        }
        return [workflow_id for workflow_id in workflow_ids if workflow_id in charged]

    def begin_takeover(self, takeover: Takeover) -> None:
        """Query every cluster of a lost scheduler's state for its epoch.

        Signals of the lost scheduler may not have arrived. So deployments with unused
        placements request again, and clusters under deletion receive their charged
        replicas again.
        """
        cache, state = self._cache, self._cache.state
        for name in cache.fleet.clusters:
            cache.await_account(names.workflow_id("InferenceCluster", "", name), [name])
        cache.fleet.awaited = frozenset(cache.fleet.clusters)
        reserved = [
            (entry.namespace, entry.deployment)
            for entry in cache.fleet.entries()
            if entry.state == reasons.RESERVED
        ]
        cache.request_resync(reserved)
        state.deleting_clusters = dict.fromkeys(state.deleting_clusters)
        state.takeover = takeover.model_copy(update={"begun": True})

    def allow_accounted(self) -> None:
        """Allow new replicas exactly on the clusters without missing accounts.

        Requests that waited for an account are queued.
        """
        cache, missing = self._cache, self._cache.state.unresponsive
        since = cache.state.unresponsive_since
        cache.state.unresponsive_since = {
            workflow_id: since.get(workflow_id, cache.now()) for workflow_id in missing
        }
        unaccounted = {cluster for clusters in missing.values() for cluster in clusters}
        for name, info in list(cache.fleet.clusters.items()):
            if info.view.accounted == (name in unaccounted):
                cache.fleet.put_cluster(
                    replace(info.view, accounted=name not in unaccounted), cache.now()
                )
                cache.hints.add_cluster(name)
        cache.release_withheld()
        cache.requeue_unplaced()
        cache.fleet.awaited = frozenset(
            workflow_id.rsplit("/", 1)[1]
            for workflow_id in missing
            if workflow_id.startswith("inferencecluster/")
        )


def replica_id(entry: LedgerEntry) -> str:
    return names.workflow_id("ModelReplica", entry.namespace, entry.name)


def _is_outdated(
    known: MessageVersion, uid: str, last_message: int, asked_at: int
) -> bool:
    """Return whether another object of the name sent a message since the query.

    The account may be from a terminated one.
    """
    return known.replaced_by(uid) and last_message > asked_at
