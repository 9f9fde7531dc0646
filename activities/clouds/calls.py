"""A handler as an activity drives it: no call outlives its activity unseen.

A call that runs in a thread cannot be stopped. An activity that ended while one runs would report that nothing was created, and an object
that is created a moment later would be nobody's. So the activity waits for the end of the call that runs.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from activities.clouds.lifecycle.handler import Found, Handler, State, Wanted

_LOOK_SECONDS = 0.05


class Gone(Exception):
    """An object that must not be created is not there."""


class GuardedHandler:
    """A handler whose calls are counted. Without `create`, an object that is not there raises Gone.

    `progressed` is called, in some thread, when the cloud works on the object, or took an order: then nothing fails.
    """

    def __init__(self, handler: Handler, progressed: Callable[[], None], *, create: bool) -> None:
        self._handler = handler
        self._progressed = progressed
        self._create = create
        self._lock = threading.Lock()
        self._running = 0

    def look(self, wanted: Wanted) -> Found:
        """See `Handler`."""
        with self._call():
            found = self._handler.look(wanted)
        if found.state in (State.PENDING, State.DELETING):
            self._progressed()
        return found

    def create(self, wanted: Wanted) -> None:
        """See `Handler`. Raises Gone where nothing may be created."""
        if not self._create:
            raise Gone
        with self._call():
            self._handler.create(wanted)
        self._progressed()

    def update(self, wanted: Wanted, found: Found) -> None:
        """See `Handler`."""
        with self._call():
            self._handler.update(wanted, found)
        self._progressed()

    def delete(self, wanted: Wanted, found: Found) -> None:
        """See `Handler`."""
        with self._call():
            self._handler.delete(wanted, found)
        self._progressed()

    async def until_quiet(self) -> None:
        """Wait until no call runs, whatever cancels the wait meanwhile."""
        cancelled = False
        # The first wait is for a call whose thread has just started.
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
