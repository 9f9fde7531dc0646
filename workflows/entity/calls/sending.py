"""Calls to many entities from a workflow.

They send signals to some entities, or one signal to all entities of a kind.
`EntityContext.signal` sends a single signal to a known entity. Queries are in
`querying`.
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

# A local activity must end within seconds. Calls to more entities are one normal
# activity.
LOCAL_CALLS_MAX = 16

# The number of signals that one call sends. The call has a minute, and a slow server
# accepts ten signals per second. A call that times out begins again with its first
# signal.
SIGNALS_MAX = 500

# Visibility lags behind the start of an entity. A broadcast is repeated after this
# time, so that it reaches entities that start meanwhile.
REPEAT_BROADCAST = timedelta(seconds=2)

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")


async def call_entities(
    method: Callable[[Any, ArgumentT], Awaitable[ResultT]],
    argument: ArgumentT,
    summary: str,
    *,
    local: bool = False,
) -> ResultT:
    """Execute an activity of `EntityClient` that calls several entities.

    `local` is for few entities.
    """
    if local:
        return await workflow.execute_local_activity_method(
            method,
            argument,
            **activity_options.local(activity_options.ENTITY_CALL, summary),
        )
    options = activity_options.remote(activity_options.ENTITY_BATCH, summary)
    return await until_accepted(
        lambda: workflow.execute_activity_method(method, argument, **options), summary
    )


async def send_all(
    requests: Sequence[SignalRequest], summary: str, *, local: bool = False
) -> list[str]:
    """Send signals, in order for each receiver, in as few calls as possible.

    Return the ids of workflows that do not run.
    """
    missing: dict[str, None] = {}
    for batch in split_by_size(requests, name=str, count_max=SIGNALS_MAX):
        result = await call_entities(
            EntityClient.signal_many, SignalBatch(signals=batch), summary, local=local
        )
        missing |= dict.fromkeys(result.missing)
    return list(missing)


async def broadcast(signal: Broadcast, summary: str) -> None:
    """Send one signal to all entities of its kinds."""
    options = activity_options.remote(activity_options.BROADCAST, summary)
    await until_accepted(
        lambda: workflow.execute_activity_method(
            EntityClient.broadcast, signal, **options
        ),
        summary,
    )
