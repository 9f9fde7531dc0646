"""A small copy of one selection of objects, kept current by list and watch.

It works like client-go's Reflector. Each object is reduced to a record at once and not
stored. After a lost connection the watch continues from the last resource version. When
the cluster no longer has that version, everything is listed again, and only differences
are passed on.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from activities.cluster_objects.cluster_api import (
    ClusterApi,
    Json,
    ObjectList,
    Selection,
    WatchExpired,
)
from api_types.errors import (
    AnswerTooLarge,
    ClusterUnreachable,
    ModelplaneError,
    ServerError,
    StackMissing,
)

Record = TypeVar("Record")

_RETRY_SECONDS = (1.0, 30.0)
# The pause between two watches that both end at once, for example on a server that
# shuts down.
_RESUME_SECONDS = 0.2
# One failure means a lost connection. Several in a row, without an event between them,
# mean that the copy is outdated.
_FAILURES_MAX = 3


# The size limit of the records of one cluster. The largest clusters need about 50 MiB.
# A worker has hundreds of clusters, and none of them may exhaust its memory.
KEPT_BYTES_MAX = 256 << 20
# The size of any value, including its place in a collection.
_VALUE_BYTES = 64
_NESTING_MAX = 64


class NamespacedName(NamedTuple):
    """The namespace and name of an object within its kind."""

    namespace: str
    name: str


class Kept(NamedTuple, Generic[Record]):
    """A record and its size in bytes."""

    record: Record
    size: int


class RecordBudget:
    """The size limit of the records of one cluster, over all selections."""

    def __init__(self) -> None:
        self.used = 0

    def charge(self, size: int, selection: Selection) -> None:
        """Add bytes to the used size, or subtract them.

        Raises ServerError over the limit.
        """
        if size > 0 and self.used + size > KEPT_BYTES_MAX:
            raise ServerError(
                f"the records of the objects on this cluster exceed "
                f"{KEPT_BYTES_MAX >> 20} MiB, {selection.kind} among them; "
                "delete the objects that do not belong there"
            )
        self.used += size


def weight(record: object) -> int:
    """Estimate the size of a record in bytes.

    Raises ValueError if it is nested deeper than any Kubernetes object.
    """
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

    `read` reduces an object to a record, or to None if Modelplane does not own it.
    `on_change` gets the key, and the record or None. `on_list` is called after every
    complete list. `problem` is the reason why the copy is currently outdated.
    """

    def __init__(
        self,
        cluster: Callable[[], ClusterApi],
        selection: Selection,
        read: Callable[[Json], Record | None],
        on_change: Callable[[NamespacedName, Record | None], None],
        on_list: Callable[[], None],
        *,
        budget: RecordBudget | None = None,
    ) -> None:
        self.selection = selection
        self.synced = False
        self.problem: ModelplaneError | None = None
        self.listings = 0
        self._cluster = cluster
        self._read = read
        self._on_change = on_change
        self._on_list = on_list
        self._budget = budget or RecordBudget()
        self._records: dict[NamespacedName, Kept[Record]] = {}
        self._version = ""
        self._failures = 0
        self._retry_now = asyncio.Event()
        self._follow_task: asyncio.Task[None] | None = None

    @property
    def lasting_problem(self) -> ModelplaneError | None:
        """The problem of a copy that is incomplete, or failed several times in a row."""
        return (
            self.problem if not self.synced or self._failures >= _FAILURES_MAX else None
        )

    async def run(self) -> None:
        """Keep the copy current, until cancelled or until the kind is no longer served.

        The records then stay until `forget`, or until another reflector takes them
        over: the kind may be served in another version.
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
                # The probe reports a server that does not respond. The problem ends as
                # soon as the server responds.
                self._failures += not isinstance(error, ClusterUnreachable)
                if isinstance(error, AnswerTooLarge):
                    # The watch would get the same event again. A list can read larger
                    # objects, or its error names the kind of the one that is too large.
                    self._version = ""
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await self._retry_now.wait()
                self._retry_now.clear()
                wait_seconds = min(wait_seconds * 2, longest)

    def resume(self) -> None:
        """Restart the watch over a new connection, from its last resource version.

        A reflector that waits for its next attempt restarts at once.
        """
        self._retry_now.set()
        if self._follow_task:
            self._follow_task.cancel()

    def forget(self) -> None:
        """Drop all records of a reflector that does not run.

        Its next run lists everything.
        """
        self._version = ""
        self._replace({})

    def take_over(self, predecessor: "Reflector[Record]") -> None:
        """Start with the records of a reflector of the same objects, which has stopped.

        The first list then reports only differences. Until it is complete, no object
        counts as missing. Both use the same budget.
        """
        self._records, self.synced = predecessor.release(), predecessor.synced

    def release(self) -> dict[NamespacedName, Kept[Record]]:
        """Return all records for another reflector.

        This reflector must not run any more. The records still count against the
        budget.
        """
        released, self._records = self._records, {}
        return released

    def _was_resumed(self) -> bool:
        """Return whether `resume` cancelled the watch, and not the whole reflector."""
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
                self._put(
                    _key(event.object),
                    None if event.type == "DELETED" else self._kept(event.object),
                )
            self._version = str(event.object["metadata"]["resourceVersion"])
            self.problem, self._failures = None, 0

    async def _list(self, cluster: ClusterApi) -> ObjectList:
        """List everything.

        Items are keys with records, or None for objects that are not ours.
        """
        charged = 0

        def keep(item: Json) -> tuple[NamespacedName, Kept[Record]] | None:
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
            metadata = item["metadata"]
            name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
            raise ServerError(
                f"{self.selection.kind}/{name} cannot be read as an object of that kind "
                f"({type(error).__name__})"
            ) from error

    def _replace(self, records: dict[NamespacedName, Kept[Record]]) -> None:
        for key in self._records.keys() - records.keys():
            self._put(key, None)
        for key, kept in records.items():
            self._put(key, kept)

    def _put(self, key: NamespacedName, kept: Kept[Record] | None) -> None:
        known = self._records.get(key)
        if (kept and kept.record) == (known and known.record):
            return
        self._budget.charge(
            (kept.size if kept else 0) - (known.size if known else 0), self.selection
        )
        if kept is None:
            del self._records[key]
        else:
            self._records[key] = kept
        self._on_change(key, kept.record if kept else None)


def _key(item: Json) -> NamespacedName:
    return NamespacedName(
        item["metadata"].get("namespace", ""), item["metadata"]["name"]
    )
