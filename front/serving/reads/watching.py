"""Watches: send changes of a collection as they happen, one JSON object per line.

A watch ends when the client stops reading or its user loses the right.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from aiohttp import web

from front.serving import errors
from front.serving.reads import list_options, tables
from front.serving.reads.reading import (
    Form,
    Parameters,
    check_all_are_read,
    number,
    selection,
)
from front.serving.reads.selectors import ObjectSelector
from front.serving.requests import RequestedResource
from front.serving.sending import PART_BYTES, WRITE_SECONDS, in_turns
from front.store.projection import (
    OTHER_FRONT_MICROSECONDS,
    Expired,
    ObjectKey,
    Projection,
    StoredObject,
    Tree,
    WatchQueue,
)

GoesOn = Callable[[], Awaitable[bool]]

BOOKMARK_SECONDS = 60.0
CHECK_SECONDS = 10.0
# The default is for clients that name no timeout. A client continues with a new
# request.
SECONDS_DEFAULT, SECONDS_MAX = 1800, 86_400
_TABLE: Tree = {
    "kind": "Table",
    "apiVersion": "meta.k8s.io/v1",
    "columnDefinitions": [],
}
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """One watch of one client."""

    def __init__(
        self,
        projection: Projection,
        resource: RequestedResource,
        parameters: Parameters,
        form: Form,
    ) -> None:
        """Parse the parameters. Raises `RejectedRequest`."""
        self._projection = projection
        self._resource = resource
        self._form = form
        list_options.check(parameters, watch=True)
        self._wanted: ObjectSelector = selection(resource, parameters)
        check_all_are_read(projection, resource, self._wanted)
        self._from = list_options.version(parameters)
        self._bookmarks = list_options.is_set(parameters, "allowWatchBookmarks")
        self._initial = list_options.is_set(parameters, list_options.INITIAL)
        if list_options.INITIAL in parameters and not self._initial:
            # Without a version, such a watch begins now.
            self._from = self._from or projection.high
        self._seconds = min(
            number(parameters, "timeoutSeconds") or SECONDS_DEFAULT, SECONDS_MAX
        )
        # The objects that the client may know. None means an unknown state.
        self._known: dict[ObjectKey, StoredObject | None] = {}
        self._headed = True
        self._high = 0
        self._asked = time.monotonic()

    async def lines(self, goes_on: GoesOn) -> AsyncGenerator[bytes, None]:
        """Yield the lines of the response until the timeout.

        The response ends earlier if `goes_on` returns False. It is checked every few
        seconds.
        """
        watcher = self._projection.watch(self._resource.info.kind)
        try:
            async for line in in_turns(self._first()):
                if not line:
                    continue
                if not await self._goes_on(goes_on):
                    return
                yield line
                # Writing to a fast client never suspends, so yield to other tasks here.
                await asyncio.sleep(0)
            async for line in self._following(watcher, goes_on):
                yield line
        finally:
            self._projection.unwatch(watcher)

    async def _goes_on(self, goes_on: GoesOn) -> bool:
        """Return whether the watch continues.

        `goes_on` is called at most once every few seconds, because many lines may be
        sent at once or be read slowly.
        """
        now = time.monotonic()
        if now - self._asked < CHECK_SECONDS:
            return True
        self._asked = now
        return await goes_on()

    def _first(self) -> Iterator[bytes]:
        """Yield the first events: all objects, or changes since the client's version.

        The objects are collected at once, and each line is produced after the previous
        one was sent. An object without an event yields an empty line.
        """
        self._high = max(self._from, self._projection.high)
        if self._initial or not self._from:
            held = sorted(self._projection.of_kind(self._resource.info.kind).items())
            bookmark = b""
            if self._bookmarks:
                bookmark = self._bookmark(initial=True)
            for key, stored in held:
                yield from self._events(key, stored) or (b"",)
            if bookmark:
                yield bookmark
            return
        try:
            changed = self._projection.changed_since(
                self._resource.info.kind, self._from
            )
        except Expired:
            self._seconds = 0
            yield _line("ERROR", errors.expired().status)
            return
        news = dict(changed)
        all_known = self._projection.of_kind(self._resource.info.kind) | news
        for key, stored in all_known.items():
            is_news = key in news
            if self._wanted.has_key(key) and self._may_be_known(
                stored, is_news=is_news
            ):
                self._known[key] = None if is_news else stored
            yield b""
        for key, stored in changed:
            yield from self._events(key, stored) or (b"",)

    def _may_be_known(self, stored: StoredObject, *, is_news: bool) -> bool:
        """Return whether a resuming client may have an object of this name."""
        if not is_news:
            return self._wanted.has_labels(stored)
        if self._selects(stored):
            # The event is sent in any case, as ADDED or MODIFIED.
            return stored.first <= self._from and self._wanted.had_labels(
                stored, self._from
            )
        return self._may_have_been_selected(stored)

    def _may_have_been_selected(self, stored: StoredObject) -> bool:
        """Return whether a resuming client may have an object that is not selected.

        The object may also be gone. Another front, or an earlier process of this one,
        may have sent states that this process never saw. A DELETED event for an object
        that the client does not have is harmless. Without the event, the client would
        keep the object indefinitely.
        """
        if not self._from or stored.since > self._from:
            return False
        return (
            stored.gone or stored.labels_since > self._from - OTHER_FRONT_MICROSECONDS
        )

    def _may_be_told_elsewhere(self, stored: StoredObject) -> bool:
        """Return whether another front may have sent a newer state to the client.

        Newer means newer than the state that this front had when the watch began.
        """
        is_soon = (
            not stored.uid or stored.version <= self._from + OTHER_FRONT_MICROSECONDS
        )
        return is_soon and self._may_have_been_selected(stored)

    def _selects(self, stored: StoredObject) -> bool:
        return not stored.gone and self._wanted.has_labels(stored)

    async def _following(
        self, watcher: WatchQueue, goes_on: GoesOn
    ) -> AsyncGenerator[bytes, None]:
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
            if self._bookmarks and time.monotonic() - told >= BOOKMARK_SECONDS:
                told = time.monotonic()
                yield self._bookmark()
        if self._bookmarks:
            # The next watch of the client begins at this version.
            yield self._bookmark()

    def _in_parts(
        self, changes: Iterable[tuple[ObjectKey, StoredObject]]
    ) -> Iterator[bytes]:
        """Yield the lines of changes, joined up to the size of one write.

        Writes dominate the cost of many watches.
        """
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

    def _events(self, key: ObjectKey, stored: StoredObject) -> list[bytes]:
        if not self._wanted.has_key(key):
            return []
        is_known, before = key in self._known, self._known.get(key)
        if not self._selects(stored):
            self._known.pop(key, None)
            if is_known or self._may_be_told_elsewhere(stored):
                return [self._object("DELETED", stored)]
            return []
        if before and (before.uid, before.version) == (stored.uid, stored.version):
            return []
        self._known[key] = stored
        if before and before.uid != stored.uid:
            return [self._object("DELETED", before), self._object("ADDED", stored)]
        return [self._object("MODIFIED" if is_known else "ADDED", stored)]

    def _object(self, event: str, stored: StoredObject) -> bytes:
        if self._form.is_whole:
            return _whole(event, stored)
        tree = self._form.one(self._resource, stored.tree, headed=self._headed)
        self._headed = False
        return _line(event, tree)

    def _bookmark(self, *, initial: bool = False) -> bytes:
        info = self._resource.info
        metadata: dict[str, Any] = {"resourceVersion": str(self._high)}
        if initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        tree = {"kind": info.kind, "apiVersion": info.api_version, "metadata": metadata}
        if self._form.metadata:
            tree = tables.partial(tree)
        if self._form.table:
            row = {
                "cells": [],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                },
            }
            version = {"resourceVersion": metadata["resourceVersion"]}
            return _line("BOOKMARK", {**_TABLE, "metadata": version, "rows": [row]})
        return _line("BOOKMARK", tree)


def _line(event: str, tree: Tree) -> bytes:
    text = json.dumps({"type": event, "object": tree}, separators=(",", ":"))
    return text.encode() + b"\n"


def _whole(event: str, stored: StoredObject) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.encode(), stored.encoded)


async def streamed(
    request: web.Request, lines: AsyncGenerator[bytes, None]
) -> web.StreamResponse:
    """Send the lines until they end or the client disconnects.

    A client that does not read is disconnected. It has to start again, and can list
    everything it missed.
    """
    response = web.StreamResponse(
        headers={
            "Content-Type": "application/json",
            "Cache-Control": "no-cache, private",
        }
    )
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
    """Return a check that the client is connected and the user still has the right."""

    async def check() -> bool:
        transport = request.transport
        return transport is not None and not transport.is_closing() and await may()

    return check
