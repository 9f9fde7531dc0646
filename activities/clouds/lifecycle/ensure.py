"""Bring one object to its desired state.

Idempotent, and safe to interrupt.

Every attempt observes first. It waits for an existing object, whoever created it. An
object of a failed attempt is found by its id, its name or its owner mark, and never
created twice. The work ends if the object is broken, is being deleted, or has
disappeared, or if it was created and never appeared. The workflow then orders it again
with the next epoch, because clouds return the old response for an old token.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from activities.clouds.lifecycle.handler import (
    CloudObservation,
    ObjectHandler,
    ObjectWork,
    State,
)
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.lifecycle.threads import InThread, in_any_thread
from api_types.errors import (
    CloudObjectBroken,
    NameConflict,
    OwnerMarkMissing,
    ReplaceRequired,
)

# If a change was made this often and the object still differs, the change has no
# effect.
_UPDATES_MAX = 3
# If an object was created this often and never appeared, it is gone: the cloud returns
# the old response for its token.
_CREATES_MAX = 3

Report = Callable[[str], None]
"""Reports what the activity waits for. The text is its progress."""


async def ensure(
    handler: ObjectHandler,
    wanted: ObjectWork,
    pace: PollPace,
    report: Report,
    in_thread: InThread = in_any_thread,
) -> CloudObservation:
    """Create, wait for or change an object until it is Ready.

    Returns earlier if the object is Broken, or if it is Absent after it existed or was
    created. Raises NameConflict for an object of another owner, and OwnerMarkMissing
    for a known object that lost its mark. Raises ReplaceRequired
    if an immutable field differs, or if the object is gone and cannot be created again.
    Raises CloudObjectBroken if changes have no effect, and the errors of the handler.
    """
    work = _Work(handler, wanted, pace, report, in_thread)
    while True:
        found = await work.look()
        if found.state in (State.READY, State.BROKEN):
            return found
        if found.unmarked and wanted.is_known:
            raise OwnerMarkMissing(found.unmarked)
        if found.state is State.FOREIGN:
            raise NameConflict(
                f"{work.title} exists and does not belong to this cluster: {found.reason}; "
                "remove it at the cloud, if nothing needs it"
            )
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
    def __init__(
        self,
        handler: ObjectHandler,
        wanted: ObjectWork,
        pace: PollPace,
        report: Report,
        in_thread: InThread,
    ) -> None:
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

    async def look(self) -> CloudObservation:
        """Observe the object, and delete duplicates.

        Observe it again if a new object may have been missed.
        """
        just_created = self._wanted.attempt > 1 or self._writes > 0 or self.was_there
        until = _now() + (self._pace.second_look if just_created else 0.0)
        while True:
            found = await self._in_thread(self._handler.look, self._wanted)
            if not (found.state is State.ABSENT and found.uncertain and _now() < until):
                break
            await asyncio.sleep(self._pace.second_look_every)
        # Without an id the activity waits for something else, such as another operation
        # on the cluster.
        self.was_there |= found.state is State.DELETING or (
            bool(found.id) and found.state is not State.FOREIGN
        )
        for other in found.duplicates:
            self._report(f"deleting {other}, a second {self.title}")
            await self._in_thread(
                self._handler.delete, self._wanted, CloudObservation(State.READY, other)
            )
        return found

    async def create(self) -> None:
        self._report(f"creating {self.title}")
        await self._pause_between_writes()
        await self._in_thread(self._handler.create, self._wanted)
        self.creates += 1

    async def update(self, found: CloudObservation) -> None:
        changes = ", ".join(found.changes)
        # In a sequence of changes, such as minor versions, the reason differs each
        # time.
        if self._changed[changes, found.reason] == _UPDATES_MAX:
            there = f" ({found.reason})" if found.reason else ""
            raise CloudObjectBroken(
                f"{self.title} was changed {_UPDATES_MAX} times, and still differs in "
                f"{changes}{there}"
            )
        self._changed[changes, found.reason] += 1
        self._report(f"changing {changes} of {self.title}")
        await self._pause_between_writes()
        await self._in_thread(self._handler.update, self._wanted, found)

    async def wait(self, found: CloudObservation) -> None:
        self._report(
            f"{self.title}: {found.reason or found.state}; waiting for "
            f"{self._wanted.object.waits_for}"
        )
        await asyncio.sleep(self._pace.poll_after(_now() - self._began))

    async def _pause_between_writes(self) -> None:
        """Pause before every write but the first.

        A second write means that the cloud shows the first one late, or not at all.
        """
        if self._writes:
            await asyncio.sleep(self._pace.poll_after(_now() - self._began))
        self._writes += 1


def _now() -> float:
    return asyncio.get_running_loop().time()


def _differs(title: str, found: CloudObservation) -> str:
    return (
        f"{title}: {', '.join(found.replaces)} cannot be changed in place ({found.reason}); "
        "set the old value again, or add a pool under another name and remove this one"
    )
