"""The watch of the control cluster: one activity per run of the workflow."""

import asyncio

from temporalio import workflow

from activities.routing.activities import RoutingActivities
from api_types.messages.gateway_work import WatchGateway
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.inference_gateway.state import GatewayState


class GatewayWatch:
    """Keeps at most one watch running."""

    def __init__(self, context: EntityContext[GatewayState]) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        context.on_end.append(self.stop)

    def take_failure(self) -> BaseException | None:
        """Forget a watch that has ended; return its error if it failed."""
        if self._task is None or not self._task.done():
            return None
        failure = None if self._task.cancelled() else self._task.exception()
        self._task = None
        return failure

    def ensure_running(self) -> None:
        """Start the watch unless it runs."""
        if self._task is not None:
            return
        state = self._context.state
        state.watches += 1
        options = activity_options.on_cluster(
            activity_options.WATCH, "watch the control cluster"
        )
        began = self._context.next_watch(state.observed_version.run.sequence)
        order = WatchGateway(
            uid=state.uid,
            number=state.watches,
            began=began,
            gateway="Envoy" if state.backend == "Envoy" else None,
        )
        self._task = asyncio.create_task(
            workflow.execute_activity_method(
                RoutingActivities.watch_gateway, order, **options
            )
        )
        self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Cancel the watch."""
        if self._task:
            self._task.cancel()
            self._task = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Requeue after the watch has ended.

        Read its error, or Python logs that nobody retrieved it.
        """
        if not task.cancelled():
            task.exception()
        self._context.requeue()
