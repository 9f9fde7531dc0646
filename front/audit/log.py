"""The audit log file.

Lines are appended before a write is answered.

A line that cannot be written stays queued, and further writes are rejected until it is
written. So the file lacks only those writes that were in progress when the process was
killed. The file may be renamed at any time; a new file of the same name is then
created.

Lines are queued synchronously in the event loop, and a single thread writes them.
Cancelled requests do not remove lines from the queue.
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
"""The time limit for writing a line, for example to a pipe that nobody reads."""
UNWRITTEN_MAX = 1_000
"""The number of unwritten requests at which new writes are rejected.

Requests in progress may still add theirs.
"""
_END_SECONDS = 1.0
_STDOUT = 1


class Unwritable(Exception):
    """The audit log accepts no lines. The message says why."""


@dataclass(eq=False)
class _Entry:
    """The lines of a request.

    `problem` is the exception that `make` raised because of a bug.
    """

    make: Callable[[], bytes]
    text: bytes | None = None
    problem: Exception | None = None
    written: bool = False


class AuditLog:
    """The audit log of one front."""

    def __init__(self, target: str) -> None:
        """Open the log.

        `target` is a path, or `-` for standard output. Raises `Unwritable`.
        """
        self._target = target
        self._path = None if target == STANDARD_OUTPUT else Path(target).expanduser()
        self._file = _STDOUT if self._path is None else -1
        self._unwritten: deque[_Entry] = deque()
        self._torn = False
        # A single thread keeps the lines in order.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")
        self._last: Future[None] | None = None
        self._drain()

    async def check(self) -> None:
        """Write queued lines. Raises `Unwritable`; no write may be carried out then."""
        if len(self._unwritten) >= UNWRITTEN_MAX:
            raise Unwritable(
                f"{self._target}: the lines of {UNWRITTEN_MAX} requests are not written yet"
            )
        await self._drained(WRITE_SECONDS)

    async def write(self, lines: Callable[[], bytes]) -> None:
        """Append lines, which `lines` computes in the writer thread, and wait for them.

        Raises `Unwritable`. The lines then stay at the front of the queue.
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
        """Append lines without waiting."""
        self._kept(lines)
        self._pass()

    async def end(self) -> None:
        """Wait at most a second for all lines at shutdown. Raises `Unwritable`."""
        await self._drained(_END_SECONDS)
        # Requests that ended meanwhile may have added lines.
        if self._unwritten:
            await self._drained(_END_SECONDS)

    def _kept(self, lines: Callable[[], bytes]) -> _Entry:
        entry = _Entry(lines)
        self._unwritten.append(entry)
        return entry

    async def _drained(self, seconds: float) -> None:
        """Wait until all queued lines are written. Raises `Unwritable`."""
        # Others wait for the same pass, so it survives the cancellation of this
        # request.
        written = asyncio.shield(asyncio.wrap_future(self._pass()))
        try:
            async with asyncio.timeout(seconds):
                await written
        except TimeoutError:
            raise Unwritable(f"{self._target} accepts no data") from None

    def _pass(self) -> "Future[None]":
        """Return a pass of the thread over the queue; a waiting pass is reused."""
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
        """Reopen the file if it was renamed or deleted."""
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
        self._file = os.open(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def _write(self, lines: bytes) -> None:
        # Terminate a partial line from a failed write, so that it does not corrupt the
        # next one.
        left = b"\n" + lines if self._torn else lines
        while left:
            taken = os.write(self._file, left)
            left = left[taken:]
            self._torn = bool(left)


def _text(entry: _Entry) -> bytes:
    """Return the lines; empty if `make` raises.

    Otherwise one request could block the lines of all others.
    """
    if entry.text is None:
        try:
            entry.text = entry.make()
        except Exception as error:
            log.exception("cannot create the audit log lines of a request")
            entry.text, entry.problem = b"", error
    return entry.text
