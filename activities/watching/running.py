"""An activity that watches for as long as its worker runs: its parts, its end, and the signals that it sends."""

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

# Attempts of one watch: one every few seconds, for more than a month.
_ATTEMPTS_MAX = 1_000_000
# A watch is scheduled when the workflow task is over that has numbered it.
_RESET_MS = 15_000
# Where heartbeats have the number of the run.
RUN = "run"
_SIGNAL_TIMEOUT = timedelta(seconds=5)


def run_number(watch: int, attempt: int, began: int = 0) -> int:
    """Number a run of a watch above those before it: of earlier attempts, and of earlier watches.

    `began`: the time in ms that numbers the watch, if it has one. Attempts are more than a
    millisecond apart, so the attempts of one watch have lower numbers than a later watch.
    """
    if began:
        return began + attempt
    return watch * _ATTEMPTS_MAX + min(attempt, _ATTEMPTS_MAX - 1)


def this_run(watch: int, began: int) -> int:
    """Number the present attempt of a watch.

    A reset starts the activity of an earlier watch once more, with its arguments: `began` is long
    ago then, and later watches had greater numbers. Heartbeats carry the number to later attempts.
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
    """Run all of them until one ends, and cancel the others. Raises what that one raised."""
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
    """Wait until the worker shuts down. Raises a TransientError then, so that another worker takes over at once."""
    await activity.wait_for_worker_shutdown()
    raise TransientError("the worker shuts down; another one takes over")


async def deliver(client: Client, request: SignalRequest) -> bool:
    """Send a signal; False if its receiver does not run. Raises Undelivered if it has to be sent again."""
    try:
        await client.get_workflow_handle(request.workflow_id).signal(request.signal, request.payload, rpc_timeout=_SIGNAL_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise Undelivered from error
    return True
