"""The file of the audit log, to which lines are appended before a write is answered.

A line that could not be written is kept, and nothing more is carried out until it is: so the file lacks no write, but for those that were
on their way when this program was killed. Another program may rename the file at any time: lines go on in a new one of its name.

Lines are kept in order by the thread of the event loop, before it waits for anything, and one thread writes all that are kept: a request
that is cancelled, or waits no longer, takes none of them along.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger("modelplane.front")

STANDARD_OUTPUT = "-"
WRITE_SECONDS = 5.0
"""How long a write waits for its line; a pipe that nobody reads takes none."""
UNWRITTEN_MAX = 1_000
"""Requests whose lines are not written, with which no other one is carried out. Those that were begun before still add theirs."""
_END_SECONDS = 1.0
_STDOUT = 1


class Unwritable(Exception):
    """The audit log takes no lines; the text says why."""


@dataclass(eq=False)
class _Entry:
    """The lines of a request. `problem`: why they could not be made; that is a defect of this program."""

    make: Callable[[], bytes]
    text: bytes | None = None
    problem: Exception | None = None
    written: bool = False


class AuditLog:
    """The audit log of one front."""

    def __init__(self, target: str) -> None:
        """Open it. `target`: a path, or `-` for standard output. Raises `Unwritable`."""
        self._target = target
        self._path = None if target == STANDARD_OUTPUT else Path(target).expanduser()
        self._file = _STDOUT if self._path is None else -1
        self._unwritten: deque[_Entry] = deque()
        self._torn = False
        # One thread, so that lines are written one after the other.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")
        self._last: Future[None] | None = None
        self._drain()

    async def check(self) -> None:
        """Write what is left of before. Raises `Unwritable`: then nothing may be carried out."""
        if len(self._unwritten) >= UNWRITTEN_MAX:
            raise Unwritable(f"{self._target}: lines of {UNWRITTEN_MAX} requests are not written yet")
        await self._drained(WRITE_SECONDS)

    async def write(self, lines: Callable[[], bytes]) -> None:
        """Append lines, which are made in a thread of their own, and wait for them.

        Raises `Unwritable`; then they are written first, as soon as it goes.
        """
        entry = self._kept(lines)
        try:
            await self._drained(WRITE_SECONDS)
        except Unwritable:
            if not entry.written:
                raise
        if entry.problem:
            raise entry.problem

    def append(self, lines: Callable[[], bytes]) -> None:
        """Append lines, and do not wait for them."""
        self._kept(lines)
        self._pass()

    async def end(self) -> None:
        """Wait a second at most for all lines, before this program ends. Raises `Unwritable` if some are not written."""
        await self._drained(_END_SECONDS)
        # Of requests that were ended meanwhile.
        if self._unwritten:
            await self._drained(_END_SECONDS)

    def _kept(self, lines: Callable[[], bytes]) -> _Entry:
        entry = _Entry(lines)
        self._unwritten.append(entry)
        return entry

    async def _drained(self, seconds: float) -> None:
        """Wait until all that is kept now is written. Raises `Unwritable`."""
        # Others wait for the same pass, so it goes on without who waits no longer.
        written = asyncio.shield(asyncio.wrap_future(self._pass()))
        try:
            async with asyncio.timeout(seconds):
                await written
        except TimeoutError:
            raise Unwritable(f"{self._target} takes no lines") from None

    def _pass(self) -> "Future[None]":
        """Give a pass of the thread over all that is kept now: the last one, if it has not begun."""
        if self._last is None or self._last.running() or self._last.done():
            self._last = self._thread.submit(self._drain)
        return self._last

    def _drain(self) -> None:
        try:
            self._reopen()
            while self._unwritten:
                entry = self._unwritten[0]
                self._write(_text(entry))
                entry.written = True
                self._unwritten.popleft()
        except OSError as error:
            raise Unwritable(f"{self._target}: {error.strerror}") from error

    def _reopen(self) -> None:
        """Open the file of that name, if it is another one than the open one by now."""
        if self._path is None:
            return
        if self._file >= 0:
            try:
                named = self._path.stat()
            except FileNotFoundError:
                named = None
            if named and os.path.samestat(named, os.fstat(self._file)):
                return
            os.close(self._file)
            self._file, self._torn = -1, False
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _write(self, lines: bytes) -> None:
        # Half a line of a write that failed is ended, so that it spoils no other.
        left = b"\n" + lines if self._torn else lines
        while left:
            taken = os.write(self._file, left)
            left = left[taken:]
            self._torn = bool(left)


def _text(entry: _Entry) -> bytes:
    """Give the lines; none where they cannot be made, which must not keep those of others from the file."""
    if entry.text is None:
        try:
            entry.text = entry.make()
        except Exception as error:
            log.exception("lines of the audit log could not be made")
            entry.text, entry.problem = b"", error
    return entry.text
