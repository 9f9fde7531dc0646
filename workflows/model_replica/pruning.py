"""How a ModelReplica removes what older generations of it left, once the new one is fully there.

Nothing waits for this: a deletion or a newer template takes over at once, and what does not want to go is told in events and looked at
again.
"""

from abc import abstractmethod

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.workloads.activities import WorkloadActivities
from api_types.errors import error_message
from api_types.messages.cluster_work import ApplyReplica
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import is_true
from workflows.entity.entity import Entity
from workflows.model_replica.state import ReplicaCarried
from workflows.model_replica.teardown_progress import named


class ReplicaPruning(Entity[ReplicaCarried]):
    """The part of a replica that clears up after an update."""

    @abstractmethod
    def order(self) -> ApplyReplica:
        """Say all that is needed to render this replica."""

    async def prune(self) -> None:
        """Look once; what is still there then is looked at again, ever later."""
        if not (self.state.prune and is_true(self.state.conditions, "Ready") and self.state.applied):
            return
        if self.state.prune_at and self.is_early(self.state.prune_at):
            return
        patience = backoff.poll_timeout(0)
        order = self.order().model_copy(update={"wait_seconds": patience.total_seconds()})
        try:
            pruned = await self.unless(
                lambda: bool(self.state.deleted) or self.state.generation != order.generation,
                workflow.execute_activity_method(
                    WorkloadActivities.prune_replica,
                    order,
                    **activity_options.remote(
                        activity_options.TEARDOWN_STEP, f"remove what older generations of {self.name} left", order.connection.task_queue
                    ),
                ),
            )
        except ActivityError as error:
            self._look_later(error_message(error))
            return
        if pruned is None:
            self.requeue()
            return
        inventory = [item for item in self.state.applied.inventory if item.id not in pruned.removed]
        self.state.applied = self.state.applied.model_copy(update={"inventory": inventory})
        if pruned.remaining:
            self._look_later(f"waits until gone: {named(pruned.remaining)}")
            return
        self.state.prune, self.state.prune_at, self.state.prunes = False, "", 0

    def _look_later(self, why: str) -> None:
        self.event("Warning", "Pruning", f"what older generations left is not gone: {why}")
        pause = backoff.transient(self.state.prunes + 2)
        self.state.prunes += 1
        self.state.prune_at = (workflow.now() + pause).isoformat()
        self.requeue_after(pause)
