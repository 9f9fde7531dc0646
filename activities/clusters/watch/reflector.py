"""A small copy of one selection of objects, kept current by list and watch, as client-go's Reflector does.

Each object is reduced to a record at once and not kept. After a lost connection the watch continues from the last resource version; when
the cluster no longer has that version everything is listed again, and only what differs is passed on.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from activities.cluster_objects.cluster_api import ClusterApi, Json, Selection, WatchExpired
from api_types.errors import AnswerTooLarge, ClusterUnreachable, ModelplaneError, ServerError, StackMissing

Record = TypeVar("Record")

_RETRY_SECONDS = (1.0, 30.0)
# Between two watches that both end at once, as on a server that shuts down.
_RESUME_SECONDS = 0.2
# One failure is a connection that was lost; several in a row, without an event between them, are a copy that is not current.
_FAILURES_MAX = 3


class Key(NamedTuple):
    """An object within its kind."""

    namespace: str
    name: str


class Reflector(Generic[Record]):
    """The copy of one selection.

    `read` reduces an object (None: not ours); `on_change` gets the key, and the record or None; `on_list` is called after every complete
    list. `problem` is why the copy cannot be kept current at present.
    """

    def __init__(
        self,
        cluster: Callable[[], ClusterApi],
        selection: Selection,
        read: Callable[[Json], Record | None],
        on_change: Callable[[Key, Record | None], None],
        on_list: Callable[[], None],
    ) -> None:
        self.selection = selection
        self.synced = False
        self.problem: ModelplaneError | None = None
        self.listings = 0
        self._cluster = cluster
        self._read = read
        self._on_change = on_change
        self._on_list = on_list
        self._records: dict[Key, Record] = {}
        self._version = ""
        self._failures = 0
        self._retry_now = asyncio.Event()
        self._follow_task: asyncio.Task[None] | None = None

    @property
    def lasting_problem(self) -> ModelplaneError | None:
        """The problem of a copy that was never complete, or that could not be kept current several times in a row."""
        return self.problem if not self.synced or self._failures >= _FAILURES_MAX else None

    async def run(self) -> None:
        """Keep the copy current, until cancelled or until the cluster stops serving the kind; then the copy is empty."""
        wait_seconds, longest = _RETRY_SECONDS
        while True:
            self._follow_task = asyncio.create_task(self._follow())
            try:
                await self._follow_task
                wait_seconds, self._failures = _RETRY_SECONDS[0], 0
                await asyncio.sleep(_RESUME_SECONDS)
            except asyncio.CancelledError:
                if not self._was_resumed():
                    raise
                self._retry_now.clear()
            except WatchExpired:
                self._version = ""
                await asyncio.sleep(_RESUME_SECONDS)
            except StackMissing:
                self._replace({})
                self._sync()
                return
            except ModelplaneError as error:
                self.problem = error
                # A server that does not answer is reported by the probe, and as soon as it answers it is no problem any more.
                self._failures += not isinstance(error, ClusterUnreachable)
                if isinstance(error, AnswerTooLarge):
                    # The watch would get the same event again. A list reads larger objects, or says which kind has one that is too large.
                    self._version = ""
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await self._retry_now.wait()
                self._retry_now.clear()
                wait_seconds = min(wait_seconds * 2, longest)

    def resume(self) -> None:
        """Restart the watch from its last resource version, over a new connection, and at once if it waits for its next attempt."""
        self._retry_now.set()
        if self._follow_task:
            self._follow_task.cancel()

    def _was_resumed(self) -> bool:
        """Tell a watch that `resume` cancelled from a reflector that is cancelled itself."""
        task = asyncio.current_task()
        return task is not None and not task.cancelling()

    def _sync(self) -> None:
        self.synced = True
        self._on_list()

    async def _follow(self) -> None:
        cluster = self._cluster()
        if not self._version:
            listing = await cluster.list(self.selection)
            self.listings += 1
            self._replace({_key(item): record for item in listing.items if (record := self._record(item)) is not None})
            self._version = listing.resource_version
            self._sync()
        if self._failures < _FAILURES_MAX:
            self.problem = None
        async for event in cluster.watch(self.selection, self._version):
            if event.type != "BOOKMARK":
                self._put(_key(event.object), None if event.type == "DELETED" else self._record(event.object))
            self._version = str(event.object["metadata"]["resourceVersion"])
            self.problem, self._failures = None, 0

    def _record(self, item: Json) -> Record | None:
        try:
            return self._read(item)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            where = f"{self.selection.kind}/{item['metadata'].get('namespace', '')}/{item['metadata'].get('name', '')}"
            raise ServerError(f"{where} cannot be read as an object of that kind ({type(error).__name__})") from error

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
        self._on_change(key, record)


def _key(item: Json) -> Key:
    return Key(item["metadata"].get("namespace", ""), item["metadata"]["name"])
