"""Keeps the projection up to date with the workflows.

Each change of an object writes its resource version to the visibility store. The feed
queries every workflow whose version is newer than the projection's, and removes objects
whose workflows have ended. It also lists all workflows periodically, to find changes
that visibility lost.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
from temporalio.client import WorkflowExecution

from activities.messaging.search_attributes import (
    NAME,
    NAMESPACE,
    VERSION,
    changed_query,
    gone_query,
    visibility_query,
)
from api_types.clock import now_ms, timestamp, utc_now
from api_types.resources.kinds import BY_KIND, SERVED
from fleet_client.errors import CommandFailed, NotFound
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from front.store.projection import LATE_MICROSECONDS, ObjectKey, Projection, Tree, shown

POLL_SECONDS = 0.25
# Each poll searches for changes since one second before the newest known version. At
# longer intervals it searches further back, for changes that became visible late. Under
# load most results of the wide search are already known, and reading them costs as much
# as the changes themselves.
RECENT_MICROSECONDS = 1_000_000
WIDE_SECONDS = 1.0
# The pause after a failure, and the interval between full listings.
RETRY_SECONDS = 1.0
RELIST_SECONDS = 60.0
# The pause before an object that did not answer is queried again.
ASK_AGAIN_SECONDS = 5.0
# The age of deleted objects that are read at the start, for watches that were
# interrupted by a restart.
GONE_BEFORE_START = timedelta(minutes=10)
_LATE = timedelta(microseconds=LATE_MICROSECONDS)

log = structlog.get_logger("modelplane.front.feed")
_KINDS = [info.kind for info in SERVED]
# The workflow type is the kind of the object.
_BY_TYPE = {info.kind: info for info in SERVED}


class Feed:
    """The single task that writes changes from visibility into a projection."""

    def __init__(self, plane: ControlPlane, projection: Projection) -> None:
        self._plane = plane
        self._projection = projection
        self._tasks: dict[ObjectKey, asyncio.Task[None]] = {}
        # Objects that did not answer, and the time of their next query.
        self._unanswered: dict[ObjectKey, float] = {}
        self._followed = 0
        self._seen_gone: datetime | None = None
        self._relisted = self._looked_wide = 0.0
        self.problem = ""
        """The error of the last attempt; empty if it succeeded."""
        self.answered = 0.0
        """The time of Temporal's last answer, in seconds since 1970; 0 before it."""

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            try:
                await self.poll()
                self.answered = now_ms() / 1000
            except CommandFailed as failure:
                self._failed("; ".join([failure.message, *failure.details]))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception as error:
                # A bug must not end the only task that follows changes.
                log.exception("cannot follow changes", exc_info=error)
                self._failed("internal error")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self.problem:
                log.info("following changes again")
                self.problem = ""
            await asyncio.sleep(POLL_SECONDS)

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            log.warning(
                "cannot follow changes; the last known state is served",
                problem=problem,
            )
        self.problem = problem

    async def poll(self) -> None:
        """Search for changes once, or list everything if it is due.

        Raises `CommandFailed` if Temporal does not answer.
        """
        started = utc_now()
        if (
            not self._projection.complete
            or time.monotonic() - self._relisted > RELIST_SECONDS
        ):
            await self._relist()
        else:
            query = changed_query(_KINDS, self._since())
            self._ask(self._newer([row async for row in self._plane.rows(query)]))
            now = time.monotonic()
            self._ask([key for key, due in self._unanswered.items() if due < now])
        await self._remove_gone(started)
        self._projection.complete = True

    def _since(self) -> int:
        """Return the version from which this poll searches for changes."""
        now = time.monotonic()
        if now - self._looked_wide < WIDE_SECONDS:
            return self._followed - RECENT_MICROSECONDS
        self._looked_wide = now
        return self._followed - LATE_MICROSECONDS

    async def read(self, key: ObjectKey) -> None:
        """Query the state of one object."""
        target = _target(key)
        known = self._projection.get(key)
        # `_remove_gone` handles objects that no longer exist.
        with contextlib.suppress(NotFound):
            tree = shown(await self._plane.describe(target))
            # A workflow without a uid has not run its first task. It is not an object
            # yet.
            if tree["metadata"].get("uid"):
                self._projection.answered(key, known, tree)
        self._unanswered.pop(key, None)
        if not await self._is_there(key):
            self._projection.unread.discard(key)

    async def _is_there(self, key: ObjectKey) -> bool:
        """Return whether an unread object's workflow is running.

        Objects that were read count as running, without a request to Temporal.
        """
        unread = key in self._projection.unread
        return not unread or await self._plane.exists(_target(key))

    async def _relist(self) -> None:
        rows = [row async for row in self._plane.rows(visibility_query(_KINDS))]
        running = {_key(row) for row in rows if row.workflow_type in _BY_TYPE}
        # A workflow that starts later and does not answer was not sent to any client,
        # so lists need not wait for it.
        unknown = {key for key in running if self._projection.get(key) is None}
        if self._projection.complete:
            unknown &= self._projection.unread
        self._projection.unread = unknown
        self._ask(self._newer(rows))
        if not self._projection.complete:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for key in [key for key in self._projection.all_keys() if key not in running]:
            # The object was created after the listing, or no longer exists.
            known = self._projection.get(key)
            exists = await self._plane.exists(_target(key))
            if not exists and self._projection.get(key) is known:
                self._projection.remove(key, _microseconds(utc_now()))
        self._relisted = self._looked_wide = time.monotonic()

    def _newer(self, rows: Iterable[WorkflowExecution]) -> list[ObjectKey]:
        found = dict[ObjectKey, None]()
        for row in rows:
            if row.workflow_type not in _BY_TYPE:
                continue
            known = self._projection.get(_key(row))
            version = row.typed_search_attributes.get(VERSION) or 0
            # A single wrong clock must not hide the changes of all other workflows.
            self._followed = max(self._followed, min(version, _microseconds(utc_now())))
            if known is None or known.version < version:
                found[_key(row)] = None
        return list(found)

    def _ask(self, keys: Iterable[ObjectKey]) -> None:
        """Query objects in the background, so that a slow one does not delay others."""
        for key in keys:
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._ask_one(key))
                self._tasks[key].add_done_callback(partial(self._answered, key))

    def _answered(self, key: ObjectKey, task: "asyncio.Task[None]") -> None:
        del self._tasks[key]
        error = None if task.cancelled() else task.exception()
        if error:
            log.error("cannot query an object", object="/".join(key), exc_info=error)
            self._unanswered[key] = time.monotonic() + ASK_AGAIN_SECONDS

    async def _ask_one(self, key: ObjectKey) -> None:
        try:
            await self.read(key)
        except CommandFailed as failure:
            if key not in self._unanswered:
                log.warning(
                    "an object does not answer; the query is repeated",
                    object="/".join(key),
                    problem=failure.message,
                )
            self._unanswered[key] = time.monotonic() + ASK_AGAIN_SECONDS

    async def _remove_gone(self, now: datetime) -> None:
        first = self._seen_gone is None
        since = (self._seen_gone or now - GONE_BEFORE_START) - _LATE
        since_text = since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        async for row in self._plane.rows(gone_query(_KINDS, since_text)):
            if row.workflow_type not in _BY_TYPE:
                continue
            key, closed = _key(row), _microseconds(row.close_time or now)
            known = self._projection.get(key)
            if known is None:
                self._projection.bury(key, _named(key, row, closed), closed)
            elif known and known.version <= closed:
                exists = await self._plane.exists(_target(key))
                # The object may have been created again meanwhile.
                if not exists and self._projection.get(key) is known:
                    self._projection.remove(key, closed)
        if first:
            self._projection.low = max(
                self._projection.low, _microseconds(now - GONE_BEFORE_START)
            )
        self._seen_gone = now


def _named(key: ObjectKey, row: WorkflowExecution, closed: int) -> Tree:
    """Return the known fields of an object that was never read.

    `closed` is the time of the object's end, in microseconds since 1970.
    """
    info = BY_KIND[key.kind]
    metadata = {
        "name": key.name,
        "resourceVersion": str(closed),
        "creationTimestamp": timestamp(row.start_time),
    }
    if key.namespace:
        metadata["namespace"] = key.namespace
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}


def _target(key: ObjectKey) -> Target:
    return Target.of(BY_KIND[key.kind], key.namespace, key.name)


def _key(row: WorkflowExecution) -> ObjectKey:
    attributes = row.typed_search_attributes
    return ObjectKey(
        row.workflow_type,
        attributes.get(NAMESPACE) or "",
        attributes.get(NAME) or row.id.rpartition("/")[2],
    )


def _microseconds(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1_000_000)
