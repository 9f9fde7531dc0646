"""How a ModelReplica waits for missing Secrets and ConfigMaps: in an activity, without timers.

The activity fails until all of them exist. Temporal repeats it, which adds nothing to
the history and holds no worker slot between attempts.
"""

import asyncio
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.workloads.activities import WorkloadActivities
from api_types.messages.cluster_work import ApplyReplica
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.model_replica.state import ModelReplicaState


class CopiesWait:
    """Waits after an apply that missed objects to copy; calls `ended` when all exist."""

    def __init__(
        self, context: EntityContext[ModelReplicaState], ended: Callable[[], None]
    ) -> None:
        self._context = context
        self._ended = ended
        self._task: asyncio.Task[None] | None = None
        context.on_end.append(self.stop)

    def start(self, request: ApplyReplica) -> None:
        """Wait for the objects that this apply copies."""
        self.stop()
        self._task = asyncio.create_task(self._wait(request))

    def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _wait(self, request: ApplyReplica) -> None:
        summary = f"wait for what {request.name} copies to {request.cluster}"
        options = activity_options.on_cluster(
            activity_options.AWAIT_COPIES, summary, request.connection.task_queue
        )
        try:
            await workflow.execute_activity_method(
                WorkloadActivities.await_copies, request, **options
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                return
            # The next apply reports the problem.
        if asyncio.current_task() is self._task:
            self._task = None
            self._ended()
