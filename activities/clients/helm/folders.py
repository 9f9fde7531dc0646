"""Private folders of one worker that do not outlive it.

A folder is removed after its use. The next worker of the machine removes the folders of
a killed worker. A live worker holds a lock on its folder, which the kernel releases
when the process ends.
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
# Workers that start at the same time may each take one. More failures mean that the
# file system does not support locks.
_ATTEMPTS = 100
# Usual on Linux. Files there are never written to a disk.
_MEMORY = Path("/dev/shm")  # noqa: S108 - the folders made there are of mode 0700


def memory_folder() -> Path:
    """Return a folder in memory if there is one, else the folder for temporary files."""
    return (
        _MEMORY
        if os.access(_MEMORY, os.W_OK | os.X_OK) and _MEMORY.is_dir()
        else Path(tempfile.gettempdir())
    )


class WorkerFolder:
    """The folder of this process below `base`, created with mode 0700 and locked."""

    def __init__(self, base: Path) -> None:
        self._lock: int | None = None
        for _ in range(_ATTEMPTS):
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            # Until it is locked, another starting worker may remove it as a leftover.
            self._lock = _locked(self.path / _LOCK)
            if self._lock is not None:
                return
            shutil.rmtree(self.path, ignore_errors=True)
        raise OSError(errno.ENOLCK, "no folder of this worker can be locked", str(base))

    @contextlib.contextmanager
    def part(self) -> Iterator[Path]:
        """Yield an empty folder that exists during the block."""
        made = Path(tempfile.mkdtemp(dir=self.path))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def remove(self) -> None:
        """Remove all files and release the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep(base: Path) -> list[Path]:
    """Remove the folders below `base` whose worker no longer runs, and return them."""
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
    except FileNotFoundError:
        # Another worker removes leftovers too.
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()


def write_private(file: Path, text: str) -> None:
    """Write a file of mode 0600 atomically: another process may read the old one."""
    draft = file.with_name(f"{file.name}.new")
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
    ) as opened:
        opened.write(text)
    draft.rename(file)


def _locked(file: Path) -> int | None:
    """Lock a file until it is closed or the process ends.

    Returns None if another process has locked it, or has removed it meanwhile.
    """
    try:
        lock = os.open(
            file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
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
