"""Follows what workflows publish, and keeps the projection like it.

Each change of an object puts its resource version into visibility. What has a newer one than is known is asked for its state, by a query;
what runs no more is removed. Now and then everything is listed, so a change that visibility lost is seen late and not never.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
from temporalio.client import WorkflowExecution

from activities.messaging.search_attributes import NAME, NAMESPACE, VERSION, changed_query, gone_query, visibility_query
from api_types.clock import timestamp, utc_now
from api_types.resources.kinds import BY_KIND, SERVED
from client.errors import CommandFailed, NotFound
from client.refs.targets import Target
from client.temporal.control_plane import ControlPlane
from front.store.projection import LATE_MICROSECONDS, Key, Projection, Tree, shown

POLL_SECONDS = 0.25
# Each look asks for what changed up to a second before the newest that is known; every so many seconds one asks for all that may be seen
# late. Under load most of what the wide one finds is known, and reading it costs as much as the changes themselves.
RECENT_MICROSECONDS = 1_000_000
WIDE_SECONDS = 1.0
# After a failure, and how often everything is listed.
RETRY_SECONDS = 1.0
RELIST_SECONDS = 60.0
# How long after an object did not answer it is asked again.
ASK_AGAIN_SECONDS = 5.0
# How far back deleted objects are read at the start, for watches that go on over a restart.
GONE_BEFORE_START = timedelta(minutes=10)
_LATE = timedelta(microseconds=LATE_MICROSECONDS)

log = structlog.get_logger("modelplane.front.feed")
_KINDS = [info.kind for info in SERVED]
# The type of a workflow is the kind of its object.
_BY_TYPE = {info.kind: info for info in SERVED}


class Feed:
    """The one task that writes into a projection what visibility tells."""

    def __init__(self, plane: ControlPlane, projection: Projection) -> None:
        self._plane = plane
        self._projection = projection
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        # Those that did not answer, and when they are asked again.
        self._unanswered: dict[Key, float] = {}
        self._followed = 0
        self._seen_gone: datetime | None = None
        self._relisted = self._looked_wide = 0.0
        self.problem = ""
        """Why the last attempt failed; empty if it did not."""

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                await self.poll()
            except CommandFailed as failure:
                self._failed("; ".join([failure.message, *failure.details]))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception as error:
                # A defect must not end the only task that follows changes.
                log.exception("changes cannot be followed", exc_info=error)
                self._failed("an error of this server")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self.problem:
                log.info("changes are followed again")
                self.problem = ""
            await asyncio.sleep(POLL_SECONDS)

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("changes cannot be followed; what was seen last is served", problem=problem)
        self.problem = problem

    async def poll(self) -> None:
        """Look once for changes, or list everything if that is due. Raises `CommandFailed` if Temporal does not answer."""
        started = utc_now()
        if not self._projection.complete or time.monotonic() - self._relisted > RELIST_SECONDS:
            await self._relist()
        else:
            self._ask(self._newer([row async for row in self._plane.rows(changed_query(_KINDS, self._since()))]))
            self._ask([key for key, due in self._unanswered.items() if due < time.monotonic()])
        await self._remove_gone(started)
        self._projection.complete = True

    def _since(self) -> int:
        """Give the version from which on this look asks for changes."""
        now = time.monotonic()
        if now - self._looked_wide < WIDE_SECONDS:
            return self._followed - RECENT_MICROSECONDS
        self._looked_wide = now
        return self._followed - LATE_MICROSECONDS

    async def read(self, key: Key) -> None:
        """Ask one object for its state now."""
        target, known = Target.of(BY_KIND[key.kind], key.namespace, key.name), self._projection.get(key)
        # The end of one that is gone is found by the list of those.
        with contextlib.suppress(NotFound):
            tree = shown(await self._plane.describe(target))
            # One whose first task has not begun is no object yet.
            if tree["metadata"].get("uid"):
                self._projection.answered(key, known, tree)
        self._unanswered.pop(key, None)
        if not await self._is_there(key):
            self._projection.unread.discard(key)

    async def _is_there(self, key: Key) -> bool:
        """Whether it runs; asked only of what was not read."""
        unread = key in self._projection.unread
        return not unread or await self._plane.exists(Target.of(BY_KIND[key.kind], key.namespace, key.name))

    async def _relist(self) -> None:
        rows = [row async for row in self._plane.rows(visibility_query(_KINDS))]
        running = {_key(row) for row in rows if row.workflow_type in _BY_TYPE}
        # What is begun later and does not answer was told to nobody: lists need not wait for it.
        unknown = {key for key in running if self._projection.get(key) is None}
        self._projection.unread = unknown & self._projection.unread if self._projection.complete else unknown
        self._ask(self._newer(rows))
        if not self._projection.complete:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for key in [key for key in self._projection.all_keys() if key not in running]:
            # Started after the list was made, or gone.
            known = self._projection.get(key)
            if not await self._plane.exists(Target.of(BY_KIND[key.kind], key.namespace, key.name)) and self._projection.get(key) is known:
                self._projection.remove(key, _microseconds(utc_now()))
        self._relisted = self._looked_wide = time.monotonic()

    def _newer(self, rows: Iterable[WorkflowExecution]) -> list[Key]:
        found = dict[Key, None]()
        for row in rows:
            if row.workflow_type not in _BY_TYPE:
                continue
            known, version = self._projection.get(_key(row)), row.typed_search_attributes.get(VERSION) or 0
            # One clock that is wrong must not hide what all others change.
            self._followed = max(self._followed, min(version, _microseconds(utc_now())))
            if known is None or known.version < version:
                found[_key(row)] = None
        return list(found)

    def _ask(self, keys: Iterable[Key]) -> None:
        """Ask beside the poll: one object that does not answer delays no other."""
        for key in keys:
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._ask_one(key))
                self._tasks[key].add_done_callback(partial(self._answered, key))

    def _answered(self, key: Key, task: "asyncio.Task[None]") -> None:
        del self._tasks[key]
        if not task.cancelled() and (error := task.exception()):
            log.error("an object could not be asked", object="/".join(key), exc_info=error)
            self._unanswered[key] = time.monotonic() + ASK_AGAIN_SECONDS

    async def _ask_one(self, key: Key) -> None:
        try:
            await self.read(key)
        except CommandFailed as failure:
            if key not in self._unanswered:
                log.warning("an object does not answer; it is asked again", object="/".join(key), problem=failure.message)
            self._unanswered[key] = time.monotonic() + ASK_AGAIN_SECONDS

    async def _remove_gone(self, now: datetime) -> None:
        first = self._seen_gone is None
        since = (self._seen_gone or now - GONE_BEFORE_START) - _LATE
        async for row in self._plane.rows(gone_query(_KINDS, since.isoformat(timespec="milliseconds").replace("+00:00", "Z"))):
            if row.workflow_type not in _BY_TYPE:
                continue
            key, closed = _key(row), _microseconds(row.close_time or now)
            known = self._projection.get(key)
            if known is None:
                self._projection.bury(key, _named(key, row, closed), closed)
            elif known and known.version <= closed:
                exists = await self._plane.exists(Target.of(BY_KIND[key.kind], key.namespace, key.name))
                # It may have been created anew meanwhile.
                if not exists and self._projection.get(key) is known:
                    self._projection.remove(key, closed)
        if first:
            self._projection.low = max(self._projection.low, _microseconds(now - GONE_BEFORE_START))
        self._seen_gone = now


def _named(key: Key, row: WorkflowExecution, closed: int) -> Tree:
    """Make what is known of an object that was never seen. `closed`: when it was gone, in microseconds since 1970."""
    info = BY_KIND[key.kind]
    metadata = {"name": key.name, "resourceVersion": str(closed), "creationTimestamp": timestamp(row.start_time)}
    metadata |= {"namespace": key.namespace} if key.namespace else {}
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}


def _key(row: WorkflowExecution) -> Key:
    attributes = row.typed_search_attributes
    return Key(row.workflow_type, attributes.get(NAMESPACE) or "", attributes.get(NAME) or row.id.rpartition("/")[2])


def _microseconds(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1_000_000)
