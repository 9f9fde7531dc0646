"""Watch: the changes of a collection as they happen, one JSON object per line, for as long as the client reads them and its user may."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from aiohttp import web

from front.serving import errors, tables
from front.serving.reading import Form, Parameters, check_all_are_read, number, selection
from front.serving.requests import Resource
from front.serving.selectors import Selection
from front.serving.sending import PART_BYTES, WRITE_SECONDS, in_turns
from front.store.projection import OTHER_FRONT_MICROSECONDS, Expired, Key, Projection, Stored, Tree, Watcher

GoesOn = Callable[[], Awaitable[bool]]

BOOKMARK_SECONDS = 60.0
CHECK_SECONDS = 10.0
# A watch ends after this time if its client names none, and goes on with another request.
SECONDS_DEFAULT, SECONDS_MAX = 1800, 86_400
_TABLE: Tree = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": []}
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """One watch of one client. `known`: the objects that the client has, as far as is known."""

    def __init__(self, projection: Projection, resource: Resource, parameters: Parameters, form: Form) -> None:
        """Read what is wanted. Raises `Refused`."""
        self._projection, self._resource, self._form = projection, resource, form
        self._wanted: Selection = selection(resource, parameters)
        check_all_are_read(projection, resource, self._wanted)
        self._from = number(parameters, "resourceVersion")
        self._bookmarks = parameters.get("allowWatchBookmarks") in ("true", "1")
        self._initial = parameters.get("sendInitialEvents") in ("true", "1")
        self._seconds = min(number(parameters, "timeoutSeconds") or SECONDS_DEFAULT, SECONDS_MAX)
        # None: in a state that is not known.
        self._known: dict[Key, Stored | None] = {}
        self._headed = True
        self._high = 0
        self._asked = time.monotonic()

    async def lines(self, goes_on: GoesOn) -> AsyncGenerator[bytes, None]:
        """Give the lines of the answer until its time is over, or it does not go on, which is looked at every few seconds."""
        watcher = self._projection.watch(self._resource.info.kind)
        try:
            async for line in in_turns(self._first()):
                if not line:
                    continue
                if not await self._goes_on(goes_on):
                    return
                yield line
                # A client that reads fast never waits, and others are answered meanwhile.
                await asyncio.sleep(0)
            async for line in self._following(watcher, goes_on):
                yield line
        finally:
            self._projection.unwatch(watcher)

    async def _goes_on(self, goes_on: GoesOn) -> bool:
        """Ask whether it goes on, unless that was asked a few seconds ago: many lines may come at once, or be read slowly."""
        now = time.monotonic()
        if now - self._asked < CHECK_SECONDS:
            return True
        self._asked = now
        return await goes_on()

    def _first(self) -> Iterator[bytes]:
        """Tell what there is already: everything for a client that has nothing, else what changed since it was told last.

        What there is, is taken at once, and each line is made when the one before it was read. An object of which nothing is told has an
        empty one.
        """
        self._high = max(self._from, self._projection.high)
        if self._initial or not self._from:
            held = sorted(self._projection.of_kind(self._resource.info.kind).items())
            bookmark = self._bookmark(initial=True) if self._initial and self._bookmarks else b""
            for key, stored in held:
                yield from self._events(key, stored) or (b"",)
            if bookmark:
                yield bookmark
            return
        try:
            changed = self._projection.changed_since(self._resource.info.kind, self._from)
        except Expired:
            self._seconds = 0
            yield _line("ERROR", errors.expired().status)
            return
        news = dict(changed)
        for key, stored in (self._projection.of_kind(self._resource.info.kind) | news).items():
            if self._wanted.has_key(key) and self._may_be_known(stored, is_news=key in news):
                self._known[key] = None if key in news else stored
            yield b""
        for key, stored in changed:
            yield from self._events(key, stored) or (b"",)

    def _may_be_known(self, stored: Stored, *, is_news: bool) -> bool:
        """Tell whether a client that goes on may have an object of this name."""
        if not is_news:
            return self._wanted.has_labels(stored)
        if self._selects(stored):
            # It is told anyway, as an addition or as a change.
            return stored.first <= self._from and self._wanted.had_labels(stored, self._from)
        return self._may_have_been_selected(stored)

    def _may_have_been_selected(self, stored: Stored) -> bool:
        """Tell whether a client that goes on may have an object that is not selected, or gone.

        It may have been told by another front, or before this one was started, and of states that were never seen here. To tell that one is
        deleted which the client has not changes nothing there; one that it has would stay for ever if nobody told.
        """
        if not self._from or stored.since > self._from:
            return False
        return stored.gone or stored.labels_since > self._from - OTHER_FRONT_MICROSECONDS

    def _may_be_told_elsewhere(self, stored: Stored) -> bool:
        """Tell whether another front may have told the client more of an object than was known here when the watch began."""
        is_soon = not stored.uid or stored.version <= self._from + OTHER_FRONT_MICROSECONDS
        return is_soon and self._may_have_been_selected(stored)

    def _selects(self, stored: Stored) -> bool:
        return not stored.gone and self._wanted.has_labels(stored)

    async def _following(self, watcher: Watcher, goes_on: GoesOn) -> AsyncGenerator[bytes, None]:
        end = time.monotonic() + self._seconds
        told = time.monotonic()
        while (left := end - time.monotonic()) > 0:
            changes = await watcher.take(min(left, CHECK_SECONDS))
            if not await goes_on():
                return
            for part in self._in_parts(changes):
                if not await self._goes_on(goes_on):
                    return
                yield part
            if changes:
                told = time.monotonic()
            elif self._bookmarks and time.monotonic() - told >= BOOKMARK_SECONDS:
                told = time.monotonic()
                yield self._bookmark()

    def _in_parts(self, changes: Iterable[tuple[Key, Stored]]) -> Iterator[bytes]:
        """Tell of changes, as many together as one write may have: what many watches cost is writes."""
        part = b""
        for key, stored in changes:
            self._high = max(self._high, stored.version)
            for line in self._events(key, stored):
                part += line
                if len(part) >= PART_BYTES:
                    yield part
                    part = b""
        if part:
            yield part

    def _events(self, key: Key, stored: Stored) -> list[bytes]:
        if not self._wanted.has_key(key):
            return []
        is_known, before = key in self._known, self._known.get(key)
        if not self._selects(stored):
            self._known.pop(key, None)
            return [self._object("DELETED", stored)] if is_known or self._may_be_told_elsewhere(stored) else []
        if before and (before.uid, before.version) == (stored.uid, stored.version):
            return []
        self._known[key] = stored
        if before and before.uid != stored.uid:
            return [self._object("DELETED", before), self._object("ADDED", stored)]
        return [self._object("MODIFIED" if is_known else "ADDED", stored)]

    def _object(self, event: str, stored: Stored) -> bytes:
        if self._form.is_whole:
            return _whole(event, stored)
        line = _line(event, self._form.one(self._resource, stored.tree, headed=self._headed))
        self._headed = False
        return line

    def _bookmark(self, *, initial: bool = False) -> bytes:
        info = self._resource.info
        metadata: dict[str, Any] = {"resourceVersion": str(self._high)}
        if initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        tree = {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata}
        if self._form.metadata:
            tree = tables.partial(tree)
        if self._form.table:
            row = {"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}
            version = {"resourceVersion": metadata["resourceVersion"]}
            return _line("BOOKMARK", {**_TABLE, "metadata": version, "rows": [row]})
        return _line("BOOKMARK", tree)


def _line(event: str, tree: Tree) -> bytes:
    return json.dumps({"type": event, "object": tree}, separators=(",", ":")).encode() + b"\n"


def _whole(event: str, stored: Stored) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.encode(), stored.encoded)


async def streamed(request: web.Request, lines: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Send the lines; a client goes whenever it likes. One that does not read has to begin anew, and can list all that it missed."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    await response.prepare(request)
    try:
        async with aclosing(lines):
            async for line in lines:
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(line)
        async with asyncio.timeout(WRITE_SECONDS):
            await response.write_eof()
    except ConnectionError:
        return response
    except TimeoutError:
        if request.transport:
            request.transport.abort()
    return response


def goes_on(request: web.Request, may: GoesOn) -> GoesOn:
    """Give a check whether a watch goes on: its client is there, and its user still may."""

    async def check() -> bool:
        transport = request.transport
        return transport is not None and not transport.is_closing() and await may()

    return check
