"""A small copy of one selection of objects, kept current by list and watch, as client-go's Reflector does.

Each object is reduced to a record at once and not kept. After a lost connection the watch continues from the last resource version; when
the cluster no longer has that version everything is listed again, and only what differs is passed on.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from activities.cluster_objects.cluster_api import ClusterApi, Json, Listing, Selection, WatchExpired
from api_types.errors import AnswerTooLarge, ClusterUnreachable, ModelplaneError, ServerError, StackMissing

Record = TypeVar("Record")

_RETRY_SECONDS = (1.0, 30.0)
# Between two watches that both end at once, as on a server that shuts down.
_RESUME_SECONDS = 0.2
# One failure is a connection that was lost; several in a row, without an event between them, are a copy that is not current.
_FAILURES_MAX = 3


# The records of the largest clusters take some 50 MiB. A worker has hundreds of clusters, and none of them may take its memory.
KEPT_BYTES_MAX = 256 << 20
# Of any value, and of its place in a collection.
_VALUE_BYTES = 64
_NESTING_MAX = 64


class Key(NamedTuple):
    """An object within its kind."""

    namespace: str
    name: str


class Kept(NamedTuple, Generic[Record]):
    """A record, and what it takes, in bytes."""

    record: Record
    size: int


class Budget:
    """What is kept of the objects of one cluster, in all selections together."""

    def __init__(self) -> None:
        self.used = 0

    def charge(self, size: int, selection: Selection) -> None:
        """Charge bytes, or give them back. Raises ServerError if they are too many."""
        if size > 0 and self.used + size > KEPT_BYTES_MAX:
            raise ServerError(
                f"what would be kept of the objects on this cluster is more than {KEPT_BYTES_MAX >> 20} MiB, {selection.kind} among them; "
                "delete those that do not belong there"
            )
        self.used += size


def weight(record: object) -> int:
    """Estimate what a record takes, in bytes. Raises ValueError if it is nested deeper than any object of Kubernetes."""
    size, level = 0, [record]
    for _ in range(_NESTING_MAX):
        parts: list[object] = []
        for each in level:
            size += _VALUE_BYTES
            if isinstance(each, str):
                size += len(each)
            elif isinstance(each, Mapping):
                parts += [*each, *each.values()]
            elif isinstance(each, tuple | list | set | frozenset):
                parts += each
        if not parts:
            return size
        level = parts
    raise ValueError(f"nested more than {_NESTING_MAX} deep")


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
        *,
        budget: Budget | None = None,
    ) -> None:
        self.selection = selection
        self.synced = False
        self.problem: ModelplaneError | None = None
        self.listings = 0
        self._cluster = cluster
        self._read = read
        self._on_change = on_change
        self._on_list = on_list
        self._budget = budget or Budget()
        self._records: dict[Key, Kept[Record]] = {}
        self._version = ""
        self._failures = 0
        self._retry_now = asyncio.Event()
        self._follow_task: asyncio.Task[None] | None = None

    @property
    def lasting_problem(self) -> ModelplaneError | None:
        """The problem of a copy that was never complete, or that could not be kept current several times in a row."""
        return self.problem if not self.synced or self._failures >= _FAILURES_MAX else None

    async def run(self) -> None:
        """Keep the copy current, until cancelled or until the cluster stops serving the kind.

        What is kept then stays, until `forget` or until another reflector takes it over: the kind may be served in another version.
        """
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

    def forget(self) -> None:
        """Drop all that is kept; it must not run. When it runs again, it lists everything."""
        self._version = ""
        self._replace({})

    def take_over(self, predecessor: "Reflector[Record]") -> None:
        """Begin with what another one kept of the same objects, which must not run any more.

        The first list then reports only what differs; until it is complete nothing is missing. Both charge the same budget.
        """
        self._records, self.synced = predecessor.release(), predecessor.synced

    def release(self) -> dict[Key, Kept[Record]]:
        """Give all that is kept to another reflector, which it stays charged to; it must not run any more."""
        released, self._records = self._records, {}
        return released

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
            listing = await self._list(cluster)
            self.listings += 1
            self._replace(dict(found for found in listing.items if found is not None))
            self._version = listing.resource_version
            self._sync()
        if self._failures < _FAILURES_MAX:
            self.problem = None
        async for event in cluster.watch(self.selection, self._version):
            if event.type != "BOOKMARK":
                self._put(_key(event.object), None if event.type == "DELETED" else self._kept(event.object))
            self._version = str(event.object["metadata"]["resourceVersion"])
            self.problem, self._failures = None, 0

    async def _list(self, cluster: ClusterApi) -> Listing:
        """List everything; items are keys with records and their sizes, None where an object is not ours."""
        charged = 0

        def keep(item: Json) -> tuple[Key, Kept[Record]] | None:
            nonlocal charged
            kept = self._kept(item)
            if kept is None:
                return None
            self._budget.charge(kept.size, self.selection)
            charged += kept.size
            return _key(item), kept

        try:
            return await cluster.list(self.selection, keep)
        finally:
            self._budget.charge(-charged, self.selection)

    def _kept(self, item: Json) -> Kept[Record] | None:
        try:
            record = self._read(item)
            return None if record is None else Kept(record, weight(record))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            where = f"{self.selection.kind}/{item['metadata'].get('namespace', '')}/{item['metadata'].get('name', '')}"
            raise ServerError(f"{where} cannot be read as an object of that kind ({type(error).__name__})") from error

    def _replace(self, records: dict[Key, Kept[Record]]) -> None:
        for key in self._records.keys() - records.keys():
            self._put(key, None)
        for key, kept in records.items():
            self._put(key, kept)

    def _put(self, key: Key, kept: Kept[Record] | None) -> None:
        known = self._records.get(key)
        if (kept and kept.record) == (known and known.record):
            return
        self._budget.charge((kept.size if kept else 0) - (known.size if known else 0), self.selection)
        if kept is None:
            del self._records[key]
        else:
            self._records[key] = kept
        self._on_change(key, kept.record if kept else None)


def _key(item: Json) -> Key:
    return Key(item["metadata"].get("namespace", ""), item["metadata"]["name"])
