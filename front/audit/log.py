"""The file of the audit log, to which lines are appended before a write is answered.

A line that could not be written is kept, and nothing more is carried out until it is: so the file lacks no write, but for those that were
on their way when this program was killed. Another program may rename the file at any time: lines go on in a new one of its name.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STANDARD_OUTPUT = "-"
WRITE_SECONDS = 5.0
"""How long a write waits for its line; a pipe that nobody reads takes none."""
_END_SECONDS = 1.0
_STDOUT = 1


class Unwritable(Exception):
    """The audit log takes no lines; the text says why."""


class AuditLog:
    """The audit log of one front."""

    def __init__(self, target: str) -> None:
        """Open it. `target`: a path, or `-` for standard output. Raises `Unwritable`."""
        self._target = target
        self._path = None if target == STANDARD_OUTPUT else Path(target).expanduser()
        self._file = _STDOUT if self._path is None else -1
        self._unwritten: deque[bytes] = deque()
        self._torn = False
        # One thread, so that lines are written one after the other.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")
        self._append(b"")

    async def check(self) -> None:
        """Write what is left of before. Raises `Unwritable`: then nothing may be carried out."""
        await self._apart(lambda: b"")

    async def write(self, lines: Callable[[], bytes]) -> None:
        """Append lines, which are made in a thread of their own. Raises `Unwritable`; they are written first then, as soon as it goes."""
        await self._apart(lines)

    def write_at_once(self, lines: bytes) -> None:
        """Append lines while the whole program waits, for a second at most. Raises `Unwritable`."""
        try:
            self._thread.submit(self._append, lines).result(_END_SECONDS)
        except TimeoutError:
            raise Unwritable(f"{self._target} takes no lines") from None

    async def _apart(self, lines: Callable[[], bytes]) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._append(lines()))
        except TimeoutError:
            raise Unwritable(f"{self._target} takes no lines") from None

    def _append(self, lines: bytes) -> None:
        if lines:
            self._unwritten.append(lines)
        try:
            self._reopen()
            while self._unwritten:
                self._write(self._unwritten[0])
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
