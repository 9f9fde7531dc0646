"""How an InferenceCluster waits for a worker of a task queue that no worker serves, or that has no free slot for its observer.

A connect or an observer that waits in the task queue without a limit would look like one that works. So both fail after a short time, the
conditions say which task queue is not served, and from then on a task that does nothing waits there instead: that costs no history, and
its end is the moment at which a worker is there.
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
    """Waits while the state names a task queue that is not served."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.task: asyncio.Task[None] | None = None
        self.queue = ""

    def update(self) -> None:
        """Wait on the task queue that is not served, if there is one and it still is one of this cluster."""
        connection = connection_of(self.context.name, self.state)
        if connection is None or self.state.unserved_queue not in queues.cluster_queues(connection.task_queue):
            self.state.unserved_queue = ""
        if self.task and self.queue != self.state.unserved_queue:
            self.stop()
        if self.task is None and self.state.unserved_queue:
            self.queue = self.state.unserved_queue
            options = activity_options.remote(activity_options.AWAIT_WORKER, f"wait for a worker of task queue {self.queue}")
            options["task_queue"] = self.queue
            self.task = asyncio.create_task(workflow.execute_activity_method(ClusterActivities.await_worker, **options))
            self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Go on, unless the wait was stopped; it ends in no other way."""
        if task.cancelled() or task.exception() or task is not self.task:
            return
        self.task = None
        self.state.unserved_queue = ""
        self.context.mark_changed()

    def stop(self) -> None:
        """Stop waiting."""
        if self.task:
            self.task.cancel()
            self.task = None
