"""The observer of an InferenceCluster: one activity that watches the cluster for as long as this run of the workflow lasts."""

import asyncio
from typing import Any, NamedTuple

from temporalio import workflow

from activities.clusters.activities import ClusterActivities
from api_types.messages.cluster_work import WatchCluster
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.inference_cluster.spec import capacity_adapter, connection_of, granted_tolerations, node_pools
from workflows.inference_cluster.state import ClusterState

# Histories of before know no such restart.
TOLERATIONS_PATCH = "watch-tolerations"


class ObserverSettings(NamedTuple):
    """What the observer is given by annotations and classes. None of it makes a new generation, and so a new connect: it is restarted."""

    capacity_adapter: str
    task_queue: str
    tolerations: dict[str, list[dict[str, Any]]]


class Observer:
    """Keeps at most one observer running."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.task: asyncio.Task[None] | None = None
        self.settings = ObserverSettings("", "", {})

    def take_failure(self) -> BaseException | None:
        """Drop an observer that has ended; gives the error if it failed."""
        if self.task is None or not self.task.done():
            return None
        failure = None if self.task.cancelled() else self.task.exception()
        self.task = None
        return failure

    def ensure_running(self) -> None:
        """Start the observer of a connected cluster, anew if its settings changed."""
        connection = connection_of(self.context.name, self.state)
        adapter = capacity_adapter(self.state)
        settings = ObserverSettings(adapter, connection.task_queue if connection else "", self._tolerations(adapter))
        if self.task and settings != self.settings:
            self.stop()
        if self.task is None and connection and self.state.connected_generation and not self.state.unserved_queue:
            self.settings = settings
            self.state.watches += 1
            watch = WatchCluster(
                connection=connection,
                cluster_uid=self.state.uid,
                number=self.state.watches,
                began=self.context.next_registration(),
                pools=[pool["name"] for pool in node_pools(self.state)],
                capacity_adapter=adapter,
                tolerations=settings.tolerations,
            )
            self.task = asyncio.create_task(
                workflow.execute_activity_method(
                    ClusterActivities.watch_cluster,
                    watch,
                    **activity_options.on_cluster(activity_options.WATCH, f"watch {self.context.name}", connection.task_queue),
                )
            )
            self.task.add_done_callback(self._ended)

    def _tolerations(self, adapter: str) -> dict[str, list[dict[str, Any]]]:
        """Give what engine pods tolerate on the nodes of each pool, for an adapter that counts these."""
        found = granted_tolerations(self.state) if adapter != "none" else {}
        return found if found and workflow.patched(TOLERATIONS_PATCH) else {}

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Requeue. Of a task that was stopped the error is read here, or Python would log that it was never retrieved."""
        if not task.cancelled():
            task.exception()
        self.context.requeue()

    def stop(self) -> None:
        """Cancel the observer."""
        if self.task:
            self.task.cancel()
            self.task = None
