"""Send the reports of an InferenceCluster to the scheduler, replicas and caches.

A report is sent when it differs from the last one. The report to replicas is also in
the memo, because a replica reads it when it starts, before this cluster can find the
replica.
"""

from temporalio import workflow

from activities.messaging.search_attributes import CONNECTION_MEMO
from api_types.digests import report_digest
from api_types.messages.caches import CacheSite
from api_types.messages.entities import ClusterChanged
from api_types.messages.scheduling import Forget, ReportCluster
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    FleetSchedulerSignals,
    ModelCacheSignals,
    ModelReplicaSignals,
)
from workflows.entity.calls.sending import REPEAT_BROADCAST, broadcast
from workflows.entity.context import EntityContext
from workflows.inference_cluster.reports import (
    cache_report,
    replica_report,
    scheduler_report,
    unsequenced,
)
from workflows.inference_cluster.state import ClusterState


class Reporter:
    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.gone = False
        self.memo_digest = ""

    # Reports

    def for_scheduler(self) -> ReportCluster:
        return scheduler_report(self.context.name, self.state, gone=self._is_gone)

    def for_replicas(self) -> ClusterChanged:
        return replica_report(self.context.name, self.state)

    def for_caches(self, asking: str = "") -> CacheSite:
        return cache_report(
            self.context.name, self.state, gone=self._is_gone, asking=asking
        )

    @property
    def _is_gone(self) -> bool:
        return self.gone or self.state.cloud.gone

    # While the cluster exists

    async def report_all(self) -> None:
        """Send all reports that have changed."""
        self.update_memo()
        await self.report_to_scheduler()
        await self.report_to_caches()
        await self._report_to_replicas()

    def repeat(self) -> None:
        """Report to the scheduler again in the next pass."""
        self.state.scheduler_digest = ""

    def repeat_to_all(self) -> None:
        """Report to the scheduler and to caches again in the next pass."""
        self.repeat()
        self.state.caches_digest = ""

    def update_memo(self) -> None:
        """Update the report to replicas in the memo."""
        report = self.for_replicas()
        digest = report_digest(unsequenced(report))
        if digest != self.memo_digest:
            workflow.upsert_memo({CONNECTION_MEMO: report.wire()})
            self.memo_digest = digest

    async def report_to_scheduler(self) -> None:
        """Report to the scheduler if the report has changed."""
        # A scheduler that lost its state needs the replicas that the observer sees. It
        # may be waiting for the first complete list.
        is_listed = (
            self.state.observed is not None and self.state.observed.replicas is not None
        )
        digest = report_digest([self.for_scheduler().manifest, is_listed])
        if digest == self.state.scheduler_digest:
            return
        self.state.scheduler_digest = digest
        self.state.sequence = self.context.next_number(self.state.sequence)
        # The answer to an earlier report does not apply to this one.
        self.state.occupied = None
        await self.context.signal_recorded(
            FLEET_SCHEDULER, FleetSchedulerSignals.REPORT_CLUSTER, self.for_scheduler()
        )

    async def report_to_caches(self) -> None:
        """Report to all caches if the report has changed.

        Each cache decides what it needs.
        """
        site = self.for_caches()
        # The caches ignore changes of `holders` alone.
        digest = report_digest(unsequenced(site.model_copy(update={"holders": {}})))
        changed = digest != self.state.caches_digest
        if not changed and not self._is_due(repeat=self.state.repeat_to_caches):
            return
        self.state.caches_digest, self.state.repeat_to_caches = digest, changed
        await broadcast(
            ModelCacheSignals.CLUSTER_CHANGED.broadcast(site, ModelCacheSignals),
            f"report {self.context.name} to caches",
        )
        if changed:
            self._repeat_later()

    async def _report_to_replicas(self) -> None:
        digest = report_digest(unsequenced(self.for_replicas()))
        first = not self.state.replicas_digest
        changed = digest != self.state.replicas_digest
        if not changed and not self._is_due(repeat=self.state.repeat_to_replicas):
            return
        self.state.replicas_digest = digest
        self.state.repeat_to_replicas = changed and not first
        self.state.sequence = self.context.next_number(self.state.sequence)
        # A new cluster of an old name may have replicas that know the earlier cluster.
        await self.broadcast_to_replicas()
        if self.state.repeat_to_replicas:
            self._repeat_later()

    def _repeat_later(self) -> None:
        """Send the last report again in some seconds.

        Visibility misses runs that just started.
        """
        at = self.context.moment() + REPEAT_BROADCAST
        self.state.repeat_at = at.isoformat()
        self.context.requeue_at(at)

    def _is_due(self, *, repeat: bool) -> bool:
        """Return whether to send the last report again now.

        Requeue if it is too early. Once the cluster no longer exists, no later pass can
        send it.
        """
        if self._is_gone or not repeat:
            return repeat
        return not self.context.waits_until(self.state.repeat_at)

    async def broadcast_to_replicas(self) -> None:
        """Report to all replicas on this cluster."""
        await broadcast(
            ModelReplicaSignals.CLUSTER_CHANGED.broadcast(
                self.for_replicas(), ModelReplicaSignals, cluster=self.context.name
            ),
            f"report {self.context.name} to its replicas",
        )

    # During the deletion

    async def keep_replicas_informed(self) -> None:
        """Report changes to replicas during the deletion or after the cluster is gone.

        Replicas that start in this time receive the report too. The report takes a new
        number, so the scheduler has to answer a report with that number.
        """
        before = self.state.sequence
        self.update_memo()
        await self._report_to_replicas()
        if self.state.sequence != before:
            self.repeat()

    async def report_gone(self) -> None:
        """Report the end of the cluster to its caches and to the scheduler."""
        # A closed workflow still answers queries, which say from now on that the
        # cluster is gone.
        self.gone = True
        if self.state.caches:
            await self.report_to_caches()
        forget = Forget(
            kind=self.context.kind, name=self.context.name, uid=self.state.uid
        )
        await self.context.signal_recorded(
            FLEET_SCHEDULER, FleetSchedulerSignals.FORGET, forget
        )
