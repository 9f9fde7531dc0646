"""Calls to many other entities from a workflow: the same or different signals to several, one signal to all that are found.

A single signal to an entity that is known is `EntityContext.signal`. Queries are in `querying`.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from api_types.messages.delivery import Broadcast, SignalBatch, SignalRequest
from api_types.payloads.limits import split_by_size
from workflows.entity.calls import activity_options
from workflows.entity.calls.refusals import until_accepted

# A local activity has to end within seconds: calls to more entities than this are one normal activity.
LOCAL_CALLS_MAX = 16

# Signals that one call sends. The call has a minute, and a slow server takes ten signals a second.
# A call that does not end in time begins again with its first signal.
SIGNALS_MAX = 500

# Visibility lags behind the start of an entity: what is broadcast is sent again after this, so that one that starts meanwhile gets it too.
REPEAT_BROADCAST = timedelta(seconds=2)

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")


async def call_entities(
    method: Callable[[Any, ArgumentT], Awaitable[ResultT]], argument: ArgumentT, summary: str, *, local: bool = False
) -> ResultT:
    """Execute an activity of `EntityClient` that calls several entities; `local` if these are few."""
    if local:
        return await workflow.execute_local_activity_method(
            method, argument, **activity_options.local(activity_options.ENTITY_CALL, summary)
        )
    options = activity_options.remote(activity_options.ENTITY_BATCH, summary)
    return await until_accepted(lambda: workflow.execute_activity_method(method, argument, **options), summary)


async def send_all(requests: Sequence[SignalRequest], summary: str, *, local: bool = False) -> list[str]:
    """Send signals, in order for each receiver, in as many calls as they need.

    Returns the ids of workflows that do not run.
    """
    missing: dict[str, None] = {}
    for batch in split_by_size(requests, name=str, count_max=SIGNALS_MAX):
        result = await call_entities(EntityClient.signal_many, SignalBatch(signals=batch), summary, local=local)
        missing |= dict.fromkeys(result.missing)
    return list(missing)


async def broadcast(signal: Broadcast, summary: str) -> None:
    """Send one signal to all entities that it is for."""
    options = activity_options.remote(activity_options.BROADCAST, summary)
    await until_accepted(lambda: workflow.execute_activity_method(EntityClient.broadcast, signal, **options), summary)
