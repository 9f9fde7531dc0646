"""Delete one object and wait until it is gone: safe to run twice, and to die at any point."""

import asyncio

from activities.clouds.lifecycle.ensure import Report
from activities.clouds.lifecycle.handler import Found, Handler, State, Wanted
from activities.clouds.lifecycle.pace import Pace
from activities.clouds.lifecycle.threads import InThread, in_any_thread
from api_types.errors import Busy

_GONE_OR_OF_OTHERS = (State.ABSENT, State.FOREIGN)


async def delete(handler: Handler, wanted: Wanted, pace: Pace, report: Report, in_thread: InThread = in_any_thread) -> Found:
    """Delete the object if it is of this cluster; give it as it was found last: Absent, or Foreign and left as it is.

    Where the cloud refuses because the object is being created or changed, that is waited for. Raises Dependency while another object
    uses it, and what the handler raises.
    """
    loop = asyncio.get_running_loop()
    began, ordered = loop.time(), False
    while True:
        found = await in_thread(handler.look, wanted)
        for other in found.duplicates:
            await in_thread(handler.delete, wanted, Found(State.READY, other))
        if found.shared:
            return Found(State.FOREIGN, found.id, reason=found.shared)
        if found.state in _GONE_OR_OF_OTHERS and not found.duplicates:
            return found
        why = found.reason or str(found.state)
        if found.state not in (*_GONE_OR_OF_OTHERS, State.DELETING):
            try:
                await in_thread(handler.delete, wanted, found)
            except Busy as error:
                why = error.message
            else:
                # Most are gone with the answer, so the first look follows at once.
                first, ordered = not ordered, True
                if first:
                    continue
        report(f"deleting {wanted.object.kind} {wanted.object.name}: {why}")
        await asyncio.sleep(pace.poll_after(loop.time() - began))
