"""The observer of an InferenceCluster: an activity that watches the cluster.

It runs as long as this run of the workflow.
"""

import asyncio
from typing import Any, NamedTuple

from temporalio import workflow

from activities.clusters.activities import ClusterActivities
from api_types.messages.cluster_work import WatchCluster
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.inference_cluster.gateway import answering_gateway
from workflows.inference_cluster.spec import (
    capacity_adapter,
    connection_of,
    granted_tolerations,
    node_pools,
)
from workflows.inference_cluster.state import ClusterState


class ObserverSettings(NamedTuple):
    """The settings of the observer that come from annotations and classes.

    A change of them does not increase the generation and so causes no reconnect. The
    observer restarts instead.
    """

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
        """Remove an observer that has ended. Return its error if it failed."""
        if self.task is None or not self.task.done():
            return None
        failure = None if self.task.cancelled() else self.task.exception()
        self.task = None
        return failure

    def ensure_running(self, *, may_start: bool = True) -> None:
        """Start the observer if it may start. Restart it if its settings changed."""
        connection = connection_of(self.context.name, self.state)
        adapter = capacity_adapter(self.state)
        settings = ObserverSettings(
            adapter,
            connection.task_queue if connection else "",
            self._tolerations(adapter),
        )
        if self.task and settings != self.settings:
            self.stop()
        if (
            self.task is None
            and connection
            and may_start
            and not self.state.unserved_queue
        ):
            self.settings = settings
            self.state.watches += 1
            watch = WatchCluster(
                connection=connection,
                cluster_uid=self.state.uid,
                number=self.state.watches,
                began=self.context.next_watch(self.state.observed_version.run.sequence),
                pools=[pool["name"] for pool in node_pools(self.state)],
                capacity_adapter=adapter,
                tolerations=settings.tolerations,
                gateway_address=answering_gateway(self.state),
            )
            self.task = asyncio.create_task(
                workflow.execute_activity_method(
                    ClusterActivities.watch_cluster,
                    watch,
                    **activity_options.on_cluster(
                        activity_options.WATCH,
                        f"watch {self.context.name}",
                        connection.task_queue,
                    ),
                )
            )
            self.task.add_done_callback(self._ended)

    def _tolerations(self, adapter: str) -> dict[str, list[dict[str, Any]]]:
        return granted_tolerations(self.state) if adapter != "none" else {}

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Requeue after the observer has ended.

        Read its error, or Python logs that nobody retrieved it.
        """
        if not task.cancelled():
            task.exception()
        self.context.requeue()

    def stop(self) -> None:
        if self.task:
            self.task.cancel()
            self.task = None
