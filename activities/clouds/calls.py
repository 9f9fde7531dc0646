"""Drive a handler from an activity, and wait for its running calls at the end.

A call that runs in a thread cannot be cancelled. If an activity ended while a call
runs, it would report that nothing was created, and an object that is created a moment
later would have no owner. So the activity waits for the end of the running call.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from activities.clouds.lifecycle.handler import (
    CloudObservation,
    ObjectHandler,
    ObjectWork,
    State,
)

_LOOK_SECONDS = 0.05


class ObjectGone(Exception):
    """The object does not exist and must not be created."""


class GuardedHandler:
    """A handler whose running calls are counted.

    Without `create` a missing object raises Gone.

    `progressed` is called, in any thread, when the cloud is working on the object or
    has accepted a request.
    """

    def __init__(
        self, handler: ObjectHandler, progressed: Callable[[], None], *, create: bool
    ) -> None:
        self._handler = handler
        self._progressed = progressed
        self._create = create
        self._lock = threading.Lock()
        self._running = 0

    def look(self, wanted: ObjectWork) -> CloudObservation:
        with self._call():
            found = self._handler.look(wanted)
        if found.state in (State.PENDING, State.DELETING):
            self._progressed()
        return found

    def create(self, wanted: ObjectWork) -> None:
        """Raise Gone if nothing may be created."""
        if not self._create:
            raise ObjectGone
        with self._call():
            self._handler.create(wanted)
        self._progressed()

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        with self._call():
            self._handler.update(wanted, found)
        self._progressed()

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        with self._call():
            self._handler.delete(wanted, found)
        self._progressed()

    async def until_quiet(self) -> None:
        """Wait until no call runs. A cancellation is raised after the wait."""
        cancelled = False
        # The first iteration waits for a call whose thread has just started.
        while True:
            try:
                await asyncio.sleep(_LOOK_SECONDS)
            except asyncio.CancelledError:
                cancelled = True
            if not self._running:
                break
        if cancelled:
            raise asyncio.CancelledError

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
