"""Carries out the orders of a replica.

Each result goes to the part that ordered it.
"""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityConfig

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import ReadMemo as MemoOf
from activities.messaging.search_attributes import CONNECTION_MEMO
from activities.routing.activities import RoutingActivities
from activities.workloads.activities import WorkloadActivities
from api_types import names
from api_types.errors import error_reason
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.entity.failures import failure_of
from workflows.model_replica.cache import ReplicaCache
from workflows.model_replica.controller import ModelReplicaController
from workflows.model_replica.copies_wait import CopiesWait
from workflows.model_replica.orders import (
    Apply,
    ApplyBackendOrder,
    DeleteObjects,
    LeaveCache,
    Order,
    ReadClusterMemo,
    RemoveBackendOrder,
    ReportOrder,
    SendReplicaSignal,
)
from workflows.model_replica.state import ModelReplicaState


@dataclass(frozen=True)
class ReplicaCalls:
    context: EntityContext[ModelReplicaState]
    controller: ModelReplicaController
    cache: ReplicaCache
    copies: CopiesWait

    async def carry_out(self, order: Order) -> None:
        """Carry out one order."""
        match order:
            case SendReplicaSignal(signal, recorded):
                self.controller.reports.sent(
                    order, found=await self.context.send(signal, recorded=recorded)
                )
            case ReadClusterMemo(cluster):
                await self._read_memo(cluster)
            case Apply():
                await self._apply(order)
            case DeleteObjects():
                await self._delete(order)
            case LeaveCache():
                await self.cache.unregister()
            case ReportOrder(signal):
                await self.context.send(signal, recorded=True)
            case ApplyBackendOrder():
                await self._apply_backend(order)
            case RemoveBackendOrder():
                await self._remove_backend(order)

    async def _read_memo(self, cluster: str) -> None:
        memo = await workflow.execute_local_activity_method(
            EntityClient.read_memo,
            MemoOf(
                workflow_id=names.workflow_id("InferenceCluster", "", cluster),
                key=CONNECTION_MEMO,
            ),
            **activity_options.local(
                activity_options.ENTITY_CALL,
                f"read the connection of InferenceCluster {cluster}",
            ),
        )
        known = self.controller.cluster
        if memo.found:
            self.controller.memo_read(memo.value)
        elif not known.last_memo_read(memo.value):
            known.awaited.wait_for(known.workflow_id)

    async def _apply(self, order: Apply) -> None:
        request = order.request
        self.copies.stop()
        summary = (
            f"apply {request.name} generation {request.generation} to {request.cluster}"
        )
        options = activity_options.on_cluster(
            activity_options.APPLY, summary, request.connection.task_queue
        )
        work = workflow.execute_activity_method(
            WorkloadActivities.apply_replica, request, **options
        )
        try:
            applied = await self.context.run_until(
                lambda: self.controller.applying.is_obsolete(order), work
            )
        except ActivityError as error:
            self.controller.applying.failed(
                failure_of(error, "ClusterUnreachable"), error_reason(error)
            )
            if self.controller.applying.awaits_copies:
                self.copies.start(request)
            return
        if applied is None:
            self.controller.applying.cancelled()
        else:
            self.controller.applying.applied(order, applied)

    async def _apply_backend(self, order: ApplyBackendOrder) -> None:
        options = activity_options.on_cluster(
            activity_options.APPLY, f"apply the backend of {self.context.name}"
        )
        work = workflow.execute_activity_method(
            RoutingActivities.apply_endpoint_backend, order.request, **options
        )
        try:
            applied = await self.context.run_until(
                lambda: self.context.state.deleting, work
            )
        except ActivityError as error:
            self.controller.publication.failed(failure_of(error))
            return
        if applied is not None:
            self.controller.publication.applied(order, applied)

    async def _remove_backend(self, order: RemoveBackendOrder) -> None:
        options = activity_options.on_cluster(
            activity_options.APPLY, f"remove the backend of {self.context.name}"
        )
        work = workflow.execute_activity_method(
            RoutingActivities.remove_endpoint_backend, order.request, **options
        )
        forced = self.context.state.forced
        try:
            # A cancelled activity has no result. It was cancelled if the user requested
            # force after its start.
            await self.context.run_until(
                lambda: self.context.state.forced != forced, work
            )
        except ActivityError as error:
            self.controller.publication.failed(failure_of(error))
            return
        if self.context.state.forced == forced:
            self.controller.publication.removed()

    async def _delete(self, order: DeleteObjects) -> None:
        work = workflow.execute_activity_method(
            WorkloadActivities.teardown_replica_step, order.request, **_options(order)
        )
        try:
            result = await self.context.run_until(
                lambda: self.controller.teardown.is_obsolete(order), work
            )
        except ActivityError as error:
            self.controller.teardown.attempt_failed(failure_of(error, "TearingDown"))
            return
        if result is None:
            self.controller.teardown.cancelled()
        else:
            self.controller.teardown.attempted(result)


def _options(order: DeleteObjects) -> ActivityConfig:
    queue = order.request.connection.task_queue
    if order.limit is None:
        return activity_options.on_cluster(
            activity_options.TEARDOWN_STEP, order.title, queue
        )
    options = activity_options.on_cluster(
        activity_options.LAST_TEARDOWN_STEP, order.title, queue
    )
    return ActivityConfig(
        **{
            **options,
            "schedule_to_close_timeout": max(order.limit, timedelta(seconds=1)),
        }
    )
