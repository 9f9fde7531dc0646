"""Folders of one worker that no other user can read, and that do not outlive it (rules H10 and H14).

A folder is removed when its use ends. One whose worker was killed is found by the next worker of the machine: a live worker holds a lock on
its folder, which ends with the process, however it ends.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "modelplane-helm-"
_LOCK = "lock"
# Workers that start at once may each take one; more often, the file system has no locks.
_ATTEMPTS = 100
# Usual on Linux. What is written there is never written to a disk.
_MEMORY = Path("/dev/shm")  # noqa: S108 - the folders made there are of mode 0700


def memory_folder() -> Path:
    """Give a folder that is in memory, if there is one; else that for temporary files."""
    return _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) and _MEMORY.is_dir() else Path(tempfile.gettempdir())


class WorkerFolder:
    """The folder of this process below `base`, of mode 0700; made and locked at once."""

    def __init__(self, base: Path) -> None:
        self._lock: int | None = None
        for _ in range(_ATTEMPTS):
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            # Another worker that starts may take it for one that was left, until it is locked.
            self._lock = _locked(self.path / _LOCK)
            if self._lock is not None:
                return
            shutil.rmtree(self.path, ignore_errors=True)
        raise OSError(errno.ENOLCK, "no folder of this worker can be locked", str(base))

    @contextlib.contextmanager
    def part(self) -> Iterator[Path]:
        """Give an empty folder for the time of a block."""
        made = Path(tempfile.mkdtemp(dir=self.path))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def remove(self) -> None:
        """Remove all, and give the lock back."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep(base: Path) -> list[Path]:
    """Remove the folders below `base` whose worker no longer runs; gives them."""
    removed = []
    for found in sorted(base.glob(f"{_PREFIX}*")):
        if not _is_own(found):
            continue
        if (lock := _locked(found / _LOCK)) is None:
            continue
        shutil.rmtree(found, ignore_errors=True)
        os.close(lock)
        removed.append(found)
    return removed


def _is_own(found: Path) -> bool:
    try:
        about = found.lstat()
    except FileNotFoundError:  # another worker sweeps too
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()


def write_private(file: Path, text: str) -> None:
    """Write a file of mode 0600, in place of one that another process may be reading."""
    draft = file.with_name(f"{file.name}.new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(text)
    draft.rename(file)


def _locked(file: Path) -> int | None:
    """Lock a file until it is closed or the process ends; None if another process has it locked, or has removed it meanwhile."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = file.lstat().st_ino == os.fstat(lock).st_ino
    except OSError:
        there = False
    if not there:
        os.close(lock)
        return None
    return lock
