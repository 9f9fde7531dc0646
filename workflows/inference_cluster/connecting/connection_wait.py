"""Wait in an activity until a failed connect may succeed.

Timers would cost history. The activity uses the task queue and slot of the observer, so
each cluster needs one slot whether it answers or not. It ends when the Secret changes,
the API server answers, or the attempt fails for another reason.
"""

import asyncio

from temporalio import workflow

from activities.clusters.activities import ClusterActivities
from api_types.messages.cluster_work import AwaitConnection, Connection
from api_types.queues import ClusterWork, cluster_queue
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.entity.failures import was_never_started
from workflows.inference_cluster.spec import connect_order
from workflows.inference_cluster.state import ClusterState


class ConnectionBackoff:
    """Waits after a failed attempt to connect."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.task: asyncio.Task[None] | None = None
        self.needs_slot = False

    @property
    def holds(self) -> bool:
        """Return whether another attempt would probably fail like the last one."""
        return self.task is not None or (
            self.needs_slot and bool(self.state.unserved_queue)
        )

    def start(self, connection: Connection) -> None:
        """Wait for a change. If no worker has a free slot for that, wait for a slot."""
        self.stop()
        if self.state.unserved_queue:
            self.needs_slot = True
            return
        failure = self.state.failure
        attempt = connect_order(connection, self.state)
        order = AwaitConnection(
            **dict(attempt), failure_type=failure.type, failure_message=failure.message
        )
        summary = f"wait until {self.context.name} can be connected"
        options = activity_options.on_cluster(
            activity_options.WATCH, summary, connection.task_queue
        )
        self.task = asyncio.create_task(
            workflow.execute_activity_method(
                ClusterActivities.await_connection, order, **options
            )
        )
        self.task.add_done_callback(
            lambda task: self._ended(
                task, cluster_queue(connection.task_queue, ClusterWork.WATCH)
            )
        )

    def _ended(self, task: asyncio.Task[None], queue: str) -> None:
        """Connect again, or wait for a worker with a free slot."""
        error = None if task.cancelled() else task.exception()
        if task is not self.task:
            return
        self.task = None
        if error is not None and was_never_started(error):
            self.needs_slot, self.state.unserved_queue = True, queue
        self.context.requeue()

    def stop(self) -> None:
        task, self.task, self.needs_slot = self.task, None, False
        if task:
            task.cancel()
