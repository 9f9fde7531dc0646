"""Delete one object and wait until it is gone. Idempotent, and safe to interrupt."""

import asyncio

from activities.clouds.lifecycle.ensure import Report
from activities.clouds.lifecycle.handler import (
    CloudObservation,
    ObjectHandler,
    ObjectWork,
    State,
)
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.lifecycle.threads import InThread, in_any_thread
from api_types.errors import Busy, OwnerMarkMissing

_GONE_OR_OF_OTHERS = (State.ABSENT, State.FOREIGN)


async def delete(
    handler: ObjectHandler,
    wanted: ObjectWork,
    pace: PollPace,
    report: Report,
    in_thread: InThread = in_any_thread,
) -> CloudObservation:
    """Delete the object if this cluster owns it.

    Returns its last observation, which is Absent, or Foreign if another owner has it.
    While the cloud rejects the deletion because the object is being created or changed,
    it is retried. Raises Dependency while another object uses it, OwnerMarkMissing if the
    object lost the mark of its owner, and the errors of the handler.
    """
    loop = asyncio.get_running_loop()
    began, ordered = loop.time(), False
    while True:
        found = await in_thread(handler.look, wanted)
        for other in found.duplicates:
            await in_thread(
                handler.delete, wanted, CloudObservation(State.READY, other)
            )
        if found.shared:
            return CloudObservation(State.FOREIGN, found.id, reason=found.shared)
        if found.unmarked:
            raise OwnerMarkMissing(found.unmarked)
        if found.state in _GONE_OR_OF_OTHERS and not found.duplicates:
            return found
        why = found.reason or str(found.state)
        if found.state not in (*_GONE_OR_OF_OTHERS, State.DELETING):
            try:
                await in_thread(handler.delete, wanted, found)
            except Busy as error:
                why = error.message
            else:
                # Most objects are gone when the response arrives, so the first check
                # follows immediately.
                first, ordered = not ordered, True
                if first:
                    continue
        report(f"deleting {wanted.object.kind} {wanted.object.name}: {why}")
        await asyncio.sleep(pace.poll_after(loop.time() - began))
