"""A watch activity that runs as long as its worker: its parts, its end, its signals."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.watching.notifier import Undelivered
from api_types.errors import TransientError
from api_types.messages.delivery import SignalRequest

# The limit of attempts of one watch: one every few seconds, for more than a month.
_ATTEMPTS_MAX = 1_000_000
# A watch is scheduled when the workflow task that has numbered it is over.
_RESET_MS = 15_000
# The key of the run number in heartbeats.
RUN = "run"
_SIGNAL_TIMEOUT = timedelta(seconds=5)


def run_number(watch: int, attempt: int, began: int = 0) -> int:
    """Return a number for a run of a watch, greater than those of earlier runs.

    Earlier runs are earlier attempts and earlier watches. `began` is the time in ms
    that numbers the watch, if it has one. The number of a later watch exceeds those of
    all attempts, also after the clock was set back.
    """
    if began:
        return began + attempt
    return watch * _ATTEMPTS_MAX + min(attempt, _ATTEMPTS_MAX - 1)


def this_run(watch: int, began: int) -> int:
    """Return the number of the present attempt of a watch.

    A reset starts the activity of an earlier watch again with its arguments. `began` is
    then long ago, and later watches had greater numbers. Heartbeats carry the number to
    later attempts.
    """
    info = activity.info()
    number = run_number(watch, info.attempt, began)
    scheduled = int(info.current_attempt_scheduled_time.timestamp() * 1000)
    if began and info.attempt == 1 and scheduled - began > _RESET_MS:
        return scheduled
    for details in info.heartbeat_details:
        number = max(number, details.get(RUN, 0) + 1)
    return number


async def until_first_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all coroutines until one ends, and cancel the others.

    Raises the error of the coroutine that ended.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_shutdown() -> None:
    """Wait until the worker shuts down, then raise a TransientError.

    Another worker then takes over at once.
    """
    await activity.wait_for_worker_shutdown()
    raise TransientError("the worker shuts down; another one takes over")


async def deliver(client: Client, request: SignalRequest) -> bool:
    """Send a signal.

    Returns False if its receiver does not run. Raises Undelivered if the signal must be
    sent again.
    """
    try:
        await client.get_workflow_handle(request.workflow_id).signal(
            request.signal, request.payload, rpc_timeout=_SIGNAL_TIMEOUT
        )
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise Undelivered from error
    return True
