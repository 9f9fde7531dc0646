"""How the scheduler's workflow sends signals, decides requests and queries replicas."""

import asyncio
from collections.abc import Sequence

from temporalio import workflow

from api_types.errors import error_message
from api_types.messages.scheduling import PlacementRequest
from workflows.entity.calls import activity_options
from workflows.entity.calls.querying import query_each
from workflows.entity.calls.sending import broadcast, send_all
from workflows.entity.failures import LOCAL_FAILURES
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.decide_activity import DecideBatch, Decided, decide_batch
from workflows.fleet_scheduler.live_cache import read_live
from workflows.fleet_scheduler.orders import Announce, Order, SendSchedulerSignals

# A run may receive 10,000 signals. During an announcement, most of its events are the
# signals of entities that answer.
_EVENTS_MAX = 8_000
# The server ends a run at 50 MiB.
_BYTES_MAX = 16 * 1024 * 1024


async def carry_out(
    orders: Sequence[Order], controller: SchedulerController, announcer: "Announcer"
) -> None:
    for order in orders:
        match order:
            case SendSchedulerSignals(signals, summary):
                controller.sent(order, await send_all(signals, summary))
            case Announce():
                await announcer.begin(order)


class Announcer:
    """Announces an epoch concurrently with decisions: many receivers take minutes."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether an announcement is in progress, and this run has room for it.

        The next run would have to repeat the announcement.
        """
        on_its_way = self._task is not None and not self._task.done()
        info = workflow.info()
        has_room = (
            info.get_current_history_length() < _EVENTS_MAX
            and info.get_current_history_size() < _BYTES_MAX
        )
        return on_its_way and has_room

    async def begin(self, order: Announce) -> None:
        """Begin an announcement, and cancel an earlier one."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(broadcast(order.signal, order.summary))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Announce again if the present announcement failed.

        Read the error in any case.
        """
        if not task.cancelled() and task.exception() is not None and task is self._task:
            self._state.announced = 0

    def stop(self) -> None:
        """Cancel the announcement at the end of the run. The next run repeats it."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._state.announced = 0


async def check_doubts(controller: SchedulerController) -> None:
    """Query the replicas about which the ledger and their deployments disagree.

    Their answers arrive as messages.
    """
    cache = controller.cache
    doubts = cache.verification.due(cache.now())
    found = await query_each(
        [doubt.workflow_id for doubt in doubts],
        "account",
        f"check whether {len(doubts)} replicas run",
    )
    controller.checked(doubts, found.answers, found.unresponsive)


async def decide_requests(
    cache: SchedulerCache, places: list[PlacementRequest]
) -> Decided:
    """Decide requests.

    A failed batch is halved until a single request fails. That request is dropped.
    """
    if not places:
        return Decided()
    try:
        decided = await read_live(
            decide_batch,
            cache,
            lambda live: DecideBatch(
                run_id=live.run_id,
                version=live.version,
                now=cache.now(),
                requests=places,
            ),
            activity_options.local(
                activity_options.DECIDE, f"decide {len(places)} requests"
            ),
        )
    except LOCAL_FAILURES as error:
        workflow.logger.exception(
            "a decision failed",
            extra={"requests": [place.request_id for place in places]},
        )
        if len(places) == 1:
            return Decided(problems={places[0].request_id: error_message(error)})
        half = len(places) // 2
        cache.queue.put_back(places[half:])
        return await decide_requests(cache, places[:half])
    cache.queue.put_back(
        [place for place in places if place.request_id in decided.deferred]
    )
    return decided
