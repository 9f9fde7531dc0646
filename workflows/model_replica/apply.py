"""How a ModelReplica brings its cluster to the present generation."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.workloads.activities import WorkloadActivities
from api_types.errors import error_reason
from api_types.messages.cluster_work import Applied, ApplyReplica
from workflows.entity import activity_options
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, backoff_after, failure_of
from workflows.model_replica.decisions.observation import drift_message
from workflows.model_replica.decisions.orders import apply_order
from workflows.model_replica.decisions.plan import DRIFT_DELAY, ApplyReason
from workflows.model_replica.reports import DeploymentReports
from workflows.model_replica.state import ModelReplicaState

# Nothing signals that a Secret changed in the store; comparing costs a handful of events, so it is rare, and done on `retry_now`.
COPIES_CHECK_INTERVAL = timedelta(hours=1)

# The reason that a condition shows for an error, where it is not the error's own name.
_REASONS = {
    "InvalidInput": "InvalidSpec",
    "StillThere": "Deploying",
    "StackMissing": "ServingStackMissing",
    "Unsupported": "RoutingUnsupported",
    "CredentialsInvalid": "ClusterUnreachable",
    "PermissionDenied": "ClusterUnreachable",
}


class ReplicaApply:
    """Applies the replica's objects, and records the result."""

    def __init__(self, context: EntityContext[ModelReplicaState], reports: DeploymentReports) -> None:
        self._context = context
        self._reports = reports

    async def run(self, reason: ApplyReason) -> None:
        """Apply the present generation; a newer one, or deletion, takes over at once."""
        state = self._context.state
        order, inputs = apply_order(state), state.inputs()
        drifted = drift_message(state.applied, state.observed) if reason == "drift" and state.applied and state.observed else ""
        if drifted:
            self._context.record_event("Normal", "DriftDetected", f"{drifted}: re-applying")
        await self._withdraw_on_mode_change()
        state.apply_started, state.inventory_complete = True, False
        state.surface = order.facts.routing
        if state.applied is None:
            self._context.set_condition("ModelAccepted", FALSE, "Deploying", f"applying to {order.cluster}")
            self._context.set_condition("Ready", FALSE, "Creating", f"applying to {order.cluster}")
            self._context.publish()
        try:
            applied = await self._context.run_until(lambda: state.deleting or state.generation != order.generation, _execute(order))
        except ActivityError as error:
            self._record_failure(error)
            return
        if applied is None:
            self._context.requeue()
            return
        self._record_events(applied, order.cluster, drifted)
        state.prune = state.prune or state.applied_generation not in (0, order.generation) or state.applied_inputs not in (None, inputs)
        state.prune_at = ""
        state.applied, state.applied_generation, state.inventory_complete = applied, order.generation, True
        state.applied_inputs, state.applied_mode = inputs, state.mode()
        state.copies_due = (workflow.now() + COPIES_CHECK_INTERVAL).isoformat()
        state.failure, state.retry_at, state.attempts, state.drift_since = NO_FAILURE, "", 0, ""
        # What was observed before this apply may look like drift: check again when a newer observation can have arrived.
        self._context.requeue_after(DRIFT_DELAY)

    async def _withdraw_on_mode_change(self) -> None:
        """Withdraw the endpoint before engines change their roles: one picker cannot serve pods of both modes."""
        state = self._context.state
        if state.serving and state.applied_mode not in ("", state.mode()):
            change = f"serving mode changes from {state.applied_mode} to {state.mode()}"
            state.serving = False
            self._context.set_condition("Serving", FALSE, "NotServing", change)
            self._context.set_condition("Ready", FALSE, "Unavailable", change)
            await self._reports.send()

    def _record_failure(self, error: ActivityError) -> None:
        state = self._context.state
        failure = failure_of(error, "ClusterUnreachable")
        state.failure, state.failure_reason = failure, error_reason(error) or _REASONS.get(failure.type, failure.type)
        pause = backoff_after(failure, state.attempts)
        state.attempts += 1
        state.retry_at = (workflow.now() + pause).isoformat()
        self._context.requeue_after(pause)
        self._context.record_event("Warning", state.failure_reason, failure.message)

    def _record_events(self, applied: Applied, cluster: str, drifted: str) -> None:
        before = self._context.state.applied
        if before is None:
            self._context.record_event("Normal", "Applied", f"{len(applied.inventory)} objects on {cluster}")
        if drifted:
            self._context.record_event("Normal", "DriftRepaired", f"re-applied after {drifted}")
        for warning in applied.warnings:
            if before is None or warning not in before.warnings:
                self._context.record_event("Warning", "Rendering", warning)


async def _execute(order: ApplyReplica) -> Applied:
    summary = f"apply {order.name} generation {order.generation} to {order.cluster}"
    return await workflow.execute_activity_method(
        WorkloadActivities.apply_replica, order, **activity_options.remote(activity_options.APPLY, summary, order.connection.task_queue)
    )
