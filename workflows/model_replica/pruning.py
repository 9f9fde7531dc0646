"""Deletes objects of older generations once the new generation is Ready.

Nothing waits for this. A deletion or a newer template takes over at once, and events
report objects whose deletion fails and is retried.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.workloads.activities import WorkloadActivities
from api_types.errors import error_message
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.conditions import is_true
from workflows.entity.context import EntityContext
from workflows.model_replica.decisions.requests import apply_request
from workflows.model_replica.state import ModelReplicaState
from workflows.model_replica.teardown_progress import named

# How long one attempt waits for its deletions; an event names the remaining objects.
ATTEMPT_TIMEOUT = timedelta(seconds=10)


class ReplicaPruning:
    """Deletes the objects of older generations."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context

    async def step(self) -> None:
        """Make one attempt if objects may remain and it is due."""
        state = self._context.state
        if not (state.prune and is_true(state.conditions, "Ready") and state.applied):
            return
        if state.applied.pending:
            # Pods that keep running still read the objects.
            return
        if self._context.waits_until(state.prune_at):
            return
        about = {
            "wait_seconds": ATTEMPT_TIMEOUT.total_seconds(),
            "renderer": state.applied.renderer,
        }
        order = apply_request(state).model_copy(update=about)
        summary = f"delete what older generations of {self._context.name} left"
        try:
            pruned = await self._context.run_until(
                lambda: state.deleting or state.generation != order.generation,
                workflow.execute_activity_method(
                    WorkloadActivities.prune_replica,
                    order,
                    **activity_options.on_cluster(
                        activity_options.TEARDOWN_STEP,
                        summary,
                        order.connection.task_queue,
                    ),
                ),
            )
        except ActivityError as error:
            self._retry_later(error_message(error))
            return
        if pruned is None:
            self._context.requeue()
            return
        inventory = [
            item for item in state.applied.inventory if item.id not in pruned.removed
        ]
        state.applied = state.applied.model_copy(update={"inventory": inventory})
        if pruned.remaining:
            self._retry_later(f"waiting for deletion of {named(pruned.remaining)}")
            return
        state.prune, state.prune_at, state.prune_attempts = False, "", 0

    def _retry_later(self, why: str) -> None:
        state = self._context.state
        self._context.record_event(
            "Warning",
            "Pruning",
            f"objects of older generations are not deleted yet: {why}",
        )
        pause = backoff.after_retries(state.prune_attempts)
        state.prune_attempts += 1
        state.prune_at = (self._context.moment() + pause).isoformat()
        self._context.requeue_after(pause)
