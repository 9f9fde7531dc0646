"""Make one object as it is wanted: safe to run twice, and to die at any point (spec/provisioning.md 3.3, 3.4).

Every attempt looks first. What is there already is waited for, whoever created it; what a failed attempt left is found by its id, its
name or its owner mark, and never created twice. What is broken, on its way out, or was there and is gone ends the work, and so does what
was created and is never seen: whoever ordered it orders it again with the next epoch, because clouds give the old answer for an old token.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from activities.clouds.lifecycle.handler import Found, Handler, State, Wanted
from activities.clouds.lifecycle.pace import Pace
from activities.clouds.lifecycle.threads import InThread, in_any_thread
from api_types.errors import CloudObjectBroken, NameConflict, ReplaceRequired

# A change that was made so often, and still differs, has no effect.
_UPDATES_MAX = 3
# What was created so often, and never seen, is gone, and the cloud gives the answer of before for its token.
_CREATES_MAX = 3

Report = Callable[[str], None]
"""Says in words what is waited for: the progress of the activity."""


async def ensure(handler: Handler, wanted: Wanted, pace: Pace, report: Report, in_thread: InThread = in_any_thread) -> Found:
    """Create, wait for or change an object until it is Ready; or give it Broken, or Absent once one that was there or created is gone.

    Raises NameConflict for an object of another owner, ReplaceRequired where it differs in what cannot be changed, or is gone and cannot be
    had again, CloudObjectBroken where changes have no effect, and what the handler raises.
    """
    work = _Work(handler, wanted, pace, report, in_thread)
    while True:
        found = await work.look()
        if found.state in (State.READY, State.BROKEN):
            return found
        if found.state is State.FOREIGN:
            raise NameConflict(f"{work.title} exists and is not of this cluster: {found.reason}; it stays as it is")
        if found.state is State.ABSENT:
            if found.cause is not None:
                raise found.cause(f"{work.title}: {found.reason}")
            if work.was_there or work.creates == _CREATES_MAX:
                return found
            await work.create()
        elif found.state is State.DIFFERS:
            if found.replaces:
                raise ReplaceRequired(_differs(work.title, found))
            await work.update(found)
        else:
            await work.wait(found)


class _Work:
    """One attempt on one object."""

    def __init__(self, handler: Handler, wanted: Wanted, pace: Pace, report: Report, in_thread: InThread) -> None:
        self.title = f"{wanted.object.kind} {wanted.object.name}"
        self.was_there = bool(wanted.known_id)
        self._handler = handler
        self._wanted = wanted
        self._pace = pace
        self._report = report
        self._in_thread = in_thread
        self._began = _now()
        self.creates = 0
        self._writes = 0
        self._changed: Counter[tuple[str, str]] = Counter()

    async def look(self) -> Found:
        """Look; where the look may miss what was created just now, for a while. Duplicates are deleted."""
        just_created = self._wanted.attempt > 1 or self._writes > 0 or self.was_there
        until = _now() + (self._pace.second_look if just_created else 0.0)
        while True:
            found = await self._in_thread(self._handler.look, self._wanted)
            if not (found.state is State.ABSENT and found.uncertain and _now() < until):
                break
            await asyncio.sleep(self._pace.second_look_every)
        # Without an id it is something else that is waited for, such as another operation on its cluster.
        self.was_there |= found.state is State.DELETING or (bool(found.id) and found.state is not State.FOREIGN)
        for other in found.duplicates:
            self._report(f"deleting {other}, a second {self.title}")
            await self._in_thread(self._handler.delete, self._wanted, Found(State.READY, other))
        return found

    async def create(self) -> None:
        self._report(f"creating {self.title}")
        await self._pause_between_writes()
        await self._in_thread(self._handler.create, self._wanted)
        self.creates += 1

    async def update(self, found: Found) -> None:
        changes = ", ".join(found.changes)
        # Where several changes follow one another, such as minor versions, what is there differs.
        if self._changed[changes, found.reason] == _UPDATES_MAX:
            there = f" ({found.reason})" if found.reason else ""
            raise CloudObjectBroken(f"{self.title} was changed {_UPDATES_MAX} times, and still differs in {changes}{there}")
        self._changed[changes, found.reason] += 1
        self._report(f"changing {changes} of {self.title}")
        await self._pause_between_writes()
        await self._in_thread(self._handler.update, self._wanted, found)

    async def wait(self, found: Found) -> None:
        self._report(f"{self.title}: {found.reason or found.state}; waiting for {self._wanted.object.waits_for}")
        await asyncio.sleep(self._pace.poll_after(_now() - self._began))

    async def _pause_between_writes(self) -> None:
        """The first write is made at once; a further one says that the cloud shows late, or not at all, what was written."""
        if self._writes:
            await asyncio.sleep(self._pace.poll_after(_now() - self._began))
        self._writes += 1


def _now() -> float:
    return asyncio.get_running_loop().time()


def _differs(title: str, found: Found) -> str:
    return (
        f"{title}: {', '.join(found.replaces)} cannot be changed in place ({found.reason}); "
        "set the old value again, or add a pool under another name and remove this one"
    )
