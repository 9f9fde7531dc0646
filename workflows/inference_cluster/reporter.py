"""How an InferenceCluster reports to the scheduler, to replicas and to caches: to each only what is new to it.

What replicas must know is in the memo too, because one reads it when it starts, before this cluster can find it.
"""

from datetime import datetime, timedelta

from temporalio import workflow

from activities.messaging.search_attributes import CONNECTION_MEMO
from api_types.digests import report_digest
from api_types.messages.caches import CacheSite
from api_types.messages.entities import ClusterChanged
from api_types.messages.scheduling import Forget, ReportCluster
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals, ModelCacheSignals, ModelReplicaSignals
from workflows.entity.calls.sending import REPEAT_BROADCAST, broadcast
from workflows.entity.context import EntityContext
from workflows.inference_cluster.reports import (
    cache_report,
    replica_report,
    scheduler_report,
    time_to_withdrawal,
    unsequenced,
)
from workflows.inference_cluster.state import ClusterState

# Older histories send a report a second time with the next pass.
REPEAT_PATCH = "repeats-are-later"


class Reporter:
    """Sends reports when they differ from the last ones."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.gone = False
        self.memo_digest = ""

    # --- what is reported ---------------------------------------------------------------------------------------------------------

    def for_scheduler(self) -> ReportCluster:
        """Give what the scheduler must know."""
        return scheduler_report(self.context.name, self.state, gone=self._is_gone)

    def for_replicas(self) -> ClusterChanged:
        """Give what replicas must know."""
        return replica_report(self.context.name, self.state, self.context.moment())

    def for_caches(self) -> CacheSite:
        """Give what caches must know."""
        return cache_report(self.context.name, self.state, gone=self._is_gone)

    @property
    def _is_gone(self) -> bool:
        return self.gone or self.state.cloud.gone

    # --- while the cluster exists -------------------------------------------------------------------------------------------------

    async def report_all(self) -> None:
        """Report to scheduler, caches and replicas what is new to them."""
        self.update_memo()
        await self.report_to_scheduler()
        await self.report_to_caches()
        await self._report_to_replicas()

    def repeat(self) -> None:
        """Report to the scheduler again with the next pass."""
        self.state.scheduler_digest = ""

    def repeat_to_all(self) -> None:
        """Report to the scheduler and to caches again with the next pass."""
        self.repeat()
        self.state.caches_digest = ""

    def update_memo(self) -> None:
        """Keep in the memo what replicas must know."""
        report = self.for_replicas()
        digest = report_digest(unsequenced(report))
        if digest != self.memo_digest:
            workflow.upsert_memo({CONNECTION_MEMO: report.wire()})
            self.memo_digest = digest

    async def report_to_scheduler(self) -> None:
        """Report to the scheduler what is new to it."""
        # What its watch sees is asked for by a scheduler that lost its state; the first complete list may be what that waits for.
        is_listed = self.state.observed is not None and self.state.observed.replicas is not None
        digest = report_digest([self.for_scheduler().manifest, is_listed])
        if digest == self.state.scheduler_digest:
            return
        self.state.scheduler_digest = digest
        self.state.sequence = self.context.next_number(self.state.sequence)
        # Its answer to an earlier report is not about this one.
        self.state.occupied = None
        await self.context.signal_recorded(FLEET_SCHEDULER, FleetSchedulerSignals.REPORT_CLUSTER, self.for_scheduler())

    async def report_to_caches(self) -> None:
        """Report to every cache what is new; each knows by itself whether it concerns it."""
        site = self.for_caches()
        # Each holder that is gone is no news for all the others.
        digest = report_digest(unsequenced(site.model_copy(update={"holders": {}})))
        changed = digest != self.state.caches_digest
        if not changed and not self._is_due(repeat=self.state.repeat_to_caches):
            return
        self.state.caches_digest, self.state.repeat_to_caches = digest, changed
        await broadcast(ModelCacheSignals.CLUSTER_CHANGED.broadcast(site, ModelCacheSignals), f"report {self.context.name} to caches")
        if changed:
            self._repeat_later()

    async def _report_to_replicas(self) -> None:
        left = time_to_withdrawal(self.state, self.context.moment())
        if left is not None and left > timedelta():
            self.context.requeue_after(left)
        digest = report_digest(unsequenced(self.for_replicas()))
        first, changed = not self.state.replicas_digest, digest != self.state.replicas_digest
        if not changed and not self._is_due(repeat=self.state.repeat_to_replicas):
            return
        self.state.replicas_digest, self.state.repeat_to_replicas = digest, changed and not first
        self.state.sequence = self.context.next_number(self.state.sequence)
        # A new cluster of an old name may have replicas, which know the one before it.
        await self.broadcast_to_replicas()
        if self.state.repeat_to_replicas:
            self._repeat_later()

    def _repeat_later(self) -> None:
        """Send the last report again in some seconds: visibility misses runs that just began."""
        at = self.context.moment() + REPEAT_BROADCAST
        self.state.repeat_at = at.isoformat()
        self.context.requeue_at(at)

    def _is_due(self, *, repeat: bool) -> bool:
        """Return whether the last report is sent again now; requeue if it is too early.

        After a cluster that is gone no later pass sends it.
        """
        at = self.state.repeat_at
        if self._is_gone or not repeat or not at or not self.context.is_future(at):
            return repeat
        if not workflow.patched(REPEAT_PATCH):
            return True
        self.context.requeue_at(datetime.fromisoformat(at))
        return False

    async def broadcast_to_replicas(self) -> None:
        """Report to the replicas on this cluster."""
        await broadcast(
            ModelReplicaSignals.CLUSTER_CHANGED.broadcast(self.for_replicas(), ModelReplicaSignals, cluster=self.context.name),
            f"report {self.context.name} to its replicas",
        )

    # --- when it is deleted -------------------------------------------------------------------------------------------------------

    async def keep_replicas_informed(self) -> None:
        """Report changes to replicas while the deletion waits for them, or once the cluster is gone.

        Replicas that start meanwhile are told again. The report takes a number, and the scheduler's
        answer has to be about the newest one: so the scheduler is asked again.
        """
        before = self.state.sequence
        self.update_memo()
        await self._report_to_replicas()
        if self.state.sequence != before:
            self.repeat()

    async def report_gone(self) -> None:
        """Report that the cluster does not exist any more, to caches that still have something here and to the scheduler."""
        # A closed workflow still answers queries: from here on they say so too.
        self.gone = True
        if self.state.caches:
            await self.report_to_caches()
        forget = Forget(kind=self.context.kind, name=self.context.name, uid=self.state.uid)
        await self.context.signal_recorded(FLEET_SCHEDULER, FleetSchedulerSignals.FORGET, forget)
