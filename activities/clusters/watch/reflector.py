"""A small copy of one selection of objects, kept true by list and watch.

Each object is reduced to a record at once and then forgotten. A lost connection is picked up where it broke; when the cluster no longer
remembers that point everything is listed again, and only what differs is passed on.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from activities.cluster_objects.cluster_api import ClusterApi, Json, Selection, WatchExpired
from api_types.errors import ModelplaneError, StackMissing

Record = TypeVar("Record")

_RETRY_SECONDS = (1.0, 30.0)
# Between two watches that both end at once, as those of a server that is just going down do.
_RESUME_SECONDS = 0.2


class Key(NamedTuple):
    """An object within its kind."""

    namespace: str
    name: str


class Reflector(Generic[Record]):
    """The copy of one selection.

    `read` reduces an object (None: not ours); `changed` is told the key, and the record or None; `whole` is told of every complete list.
    `problem` is why the copy cannot be kept true at present.
    """

    def __init__(
        self,
        cluster: Callable[[], ClusterApi],
        selection: Selection,
        read: Callable[[Json], Record | None],
        changed: Callable[[Key, Record | None], None],
        whole: Callable[[], None],
    ) -> None:
        self.selection = selection
        self.synced = False
        self.problem: ModelplaneError | None = None
        self.listings = 0
        self._cluster = cluster
        self._read = read
        self._changed = changed
        self._whole = whole
        self._records: dict[Key, Record] = {}
        self._version = ""
        self._hurry = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Keep the copy true, until cancelled or until the cluster stops serving the kind; then the copy is empty."""
        wait_seconds, longest = _RETRY_SECONDS
        while True:
            self._following = asyncio.create_task(self._follow())
            try:
                await self._following
                wait_seconds = _RETRY_SECONDS[0]
                await asyncio.sleep(_RESUME_SECONDS)
            except asyncio.CancelledError:
                if not self._is_asked_to_resume():
                    raise
            except WatchExpired:
                self._version = ""
            except StackMissing:
                self._replace({})
                self._sync()
                return
            except ModelplaneError as error:
                self.problem = error
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await self._hurry.wait()
                self._hurry.clear()
                wait_seconds = min(wait_seconds * 2, longest)

    def resume(self) -> None:
        """Take the watch up anew at the point where it is, over a new connection, and now if it waits for its next attempt."""
        self._hurry.set()
        if self._following:
            self._following.cancel()

    def _is_asked_to_resume(self) -> bool:
        """Tell a watch that was cut short from a reflector that shall end."""
        task = asyncio.current_task()
        self._hurry.clear()
        return task is not None and not task.cancelling()

    def _sync(self) -> None:
        self.synced = True
        self._whole()

    async def _follow(self) -> None:
        cluster = self._cluster()
        if not self._version:
            listing = await cluster.list(self.selection)
            self.listings += 1
            self._replace({_key(item): record for item in listing.items if (record := self._read(item)) is not None})
            self._version = listing.resource_version
            self._sync()
        self.problem = None
        async for event in cluster.watch(self.selection, self._version):
            self._version = str(event.object["metadata"]["resourceVersion"])
            if event.type != "BOOKMARK":
                self._put(_key(event.object), None if event.type == "DELETED" else self._read(event.object))

    def _replace(self, records: dict[Key, Record]) -> None:
        for key in self._records.keys() - records.keys():
            self._put(key, None)
        for key, record in records.items():
            self._put(key, record)

    def _put(self, key: Key, record: Record | None) -> None:
        if record == self._records.get(key):
            return
        if record is None:
            del self._records[key]
        else:
            self._records[key] = record
        self._changed(key, record)


def _key(item: Json) -> Key:
    return Key(item["metadata"].get("namespace", ""), item["metadata"]["name"])
