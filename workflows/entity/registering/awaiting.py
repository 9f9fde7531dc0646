"""Waiting for entities that do not run yet.

An activity fails until the entity runs, and Temporal retries it. The retries cost no
history and hold no slot while they wait, whereas each turn of a timer in the workflow
costs six events. An awaited entity usually announces itself before the next attempt,
which ends the wait.
"""

import asyncio
from collections.abc import Collection

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import AwaitRunning
from workflows.entity.calls import activity_options
from workflows.entity.calls.refusals import until_accepted
from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState


class AwaitedEntities:
    """The entities that a part of an object waits for, by workflow id.

    When one of them runs, the object is requeued.
    """

    def __init__(self, context: EntityContext[EntityState]) -> None:
        self._context = context
        self._tasks: dict[str, asyncio.Task[None]] = {}
        context.on_end.append(lambda: self.keep(()))

    def __contains__(self, workflow_id: str) -> bool:
        return workflow_id in self._tasks

    def wait_for(self, workflow_id: str) -> None:
        if workflow_id not in self._tasks:
            self._tasks[workflow_id] = asyncio.create_task(self._wait(workflow_id))

    def stop(self, workflow_id: str) -> None:
        task = self._tasks.pop(workflow_id, None)
        if task is not None:
            task.cancel()

    def keep(self, workflow_ids: Collection[str]) -> None:
        """End all waits except those for these workflows."""
        for workflow_id in [each for each in self._tasks if each not in workflow_ids]:
            self.stop(workflow_id)

    async def _wait(self, workflow_id: str) -> None:
        wanted, summary = (
            AwaitRunning(workflow_id=workflow_id),
            f"wait until {workflow_id} runs",
        )
        options = activity_options.remote(activity_options.awaiting(), summary)
        try:
            await until_accepted(
                lambda: workflow.execute_activity_method(
                    EntityClient.await_running, wanted, **options
                ),
                summary,
            )
        except ActivityError as error:
            if not is_cancelled_exception(error):
                raise
            return
        self._tasks.pop(workflow_id, None)
        self._context.requeue()
