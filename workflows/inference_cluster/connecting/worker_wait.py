"""Wait for a worker if a task queue has none, or none with a free observer slot.

A connect or an observer that waits in its task queue without a limit would look like a
running one. So both fail after a short time, and the conditions name the task queue.
From then on an empty task waits in that queue. It costs no history, and it ends when a
worker accepts it.
"""

import asyncio

from temporalio import workflow

from activities.clusters.activities import ClusterActivities
from api_types import queues
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.inference_cluster.spec import connection_of
from workflows.inference_cluster.state import ClusterState


class WorkerWait:
    """Waits while the state names a task queue without a worker."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.task: asyncio.Task[None] | None = None
        self.queue = ""

    def update(self) -> None:
        """Start or stop the wait, so that it matches the queue in the state."""
        connection = connection_of(self.context.name, self.state)
        if connection is None or self.state.unserved_queue not in queues.cluster_queues(
            connection.task_queue
        ):
            self.state.unserved_queue = ""
        if self.task and self.queue != self.state.unserved_queue:
            self.stop()
        if self.task is None and self.state.unserved_queue:
            self.queue = self.state.unserved_queue
            options = activity_options.remote(
                activity_options.AWAIT_WORKER,
                f"wait for a worker of task queue {self.queue}",
            )
            options["task_queue"] = self.queue
            self.task = asyncio.create_task(
                workflow.execute_activity_method(
                    ClusterActivities.await_worker, **options
                )
            )
            self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Continue if the wait ended because a worker accepted the task."""
        if task.cancelled() or task.exception() or task is not self.task:
            return
        self.task = None
        self.state.unserved_queue = ""
        self.context.mark_changed()

    def stop(self) -> None:
        if self.task:
            self.task.cancel()
            self.task = None
