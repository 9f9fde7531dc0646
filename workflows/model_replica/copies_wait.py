"""How a ModelReplica waits for Secrets and ConfigMaps that must be copied and are missing: by an activity, not by timers.

The activity fails until all are there, and its repetitions are Temporal's: they cost no history and hold no slot while they wait.
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
    """Waits after an apply that failed because something to be copied is missing; `ended` is called when all of it is there."""

    def __init__(self, context: EntityContext[ModelReplicaState], ended: Callable[[], None]) -> None:
        self._context = context
        self._ended = ended
        self._task: asyncio.Task[None] | None = None
        context.on_end.append(self.stop)

    def start(self, request: ApplyReplica) -> None:
        """Wait until what this apply copies is there."""
        self.stop()
        self._task = asyncio.create_task(self._wait(request))

    def stop(self) -> None:
        """Wait no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _wait(self, request: ApplyReplica) -> None:
        summary = f"wait for what {request.name} copies to {request.cluster}"
        options = activity_options.on_cluster(activity_options.AWAIT_COPIES, summary, request.connection.task_queue)
        try:
            await workflow.execute_activity_method(WorkloadActivities.await_copies, request, **options)
        except ActivityError as error:
            if is_cancelled_exception(error):
                return
            # The next apply says what is wrong.
        if asyncio.current_task() is self._task:
            self._task = None
            self._ended()
