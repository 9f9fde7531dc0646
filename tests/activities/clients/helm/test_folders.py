"""The files of a worker are private to its user, and do not outlive it."""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.clients.helm import folders
from activities.clients.helm.binary import Helm
from activities.clients.helm.folders import (
    WorkerFolder,
    memory_folder,
    sweep,
    write_private,
)
from activities.clients.helm.pool import HelmClients
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from api_types.messages.cluster_work import Connection
from api_types.sections.stacks import StackSettings

# A worker that is using a cluster.
WORKER = """
import sys, time
from pathlib import Path
from activities.clients.helm.folders import WorkerFolder, write_private
folder = WorkerFolder(Path(sys.argv[1]))
with folder.part() as part:
    write_private(part / "kubeconfig", "secret")
    print(folder.path, flush=True)
    time.sleep(600)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Modes are as requested under any umask of a worker."""
    before = os.umask(0)
    yield
    os.umask(before)


@contextlib.contextmanager
def other_worker(base: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a worker as a process of its own, and return its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(base)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


@pytest.mark.usefixtures("no_umask")
def test_only_the_user_of_the_worker_can_read_its_files(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path)
    with folder.part() as part:
        write_private(part / "kubeconfig", "one")
        write_private(part / "kubeconfig", "two")
        assert (part / "kubeconfig").read_text() == "two"
        assert [
            mode(each)
            for each in (folder.path, part, part / "kubeconfig", folder.path / "lock")
        ] == [0o700, 0o700, 0o600, 0o600]
        assert [each.name for each in part.iterdir()] == ["kubeconfig"]
    folder.remove()


def test_a_part_is_empty_and_its_own_and_removed_after_use_also_after_an_error(
    tmp_path: Path,
) -> None:
    folder = WorkerFolder(tmp_path)
    with folder.part() as one, folder.part() as other:
        assert one != other
        assert list(one.iterdir()) == []
        (one / "cache").mkdir()
        (one / "cache" / "file").write_text("x")
    assert not one.exists()
    with pytest.raises(RuntimeError), folder.part() as failed:
        raise RuntimeError
    assert not failed.exists()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_is_never_seen_half_written(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    write_private(file, "first")
    with file.open() as reading:
        write_private(file, "second")
        assert reading.read() == "first"


def test_the_folder_of_a_killed_worker_is_swept_and_a_live_workers_is_kept(
    tmp_path: Path,
) -> None:
    own = WorkerFolder(tmp_path)
    with other_worker(tmp_path) as (process, folder):
        assert "secret" in {file.read_text() for file in folder.glob("*/kubeconfig")}
        assert sweep(tmp_path) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert folder.is_dir()
        assert sweep(tmp_path) == [folder]
        assert not folder.exists()
    assert own.path.is_dir()
    own.remove()


def test_nothing_else_is_swept(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    base = tmp_path / "base"
    (base / "other-folder").mkdir(parents=True)
    (base / "modelplane-helm-file").write_text("")
    (base / "modelplane-helm-link").symlink_to(elsewhere)
    assert sweep(base) == []
    assert elsewhere.is_dir()
    assert sorted(each.name for each in base.iterdir()) == [
        "modelplane-helm-file",
        "modelplane-helm-link",
        "other-folder",
    ]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    for name in ("target", "missing"):
        (tmp_path / f"modelplane-helm-{name}").mkdir()
        (tmp_path / f"modelplane-helm-{name}" / "lock").symlink_to(tmp_path / name)
    assert sweep(tmp_path) == []
    assert (tmp_path / "target").read_text() == "kept"
    assert not (tmp_path / "missing").exists()


def test_a_folder_swept_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = tempfile.mkdtemp, list[str]()

    def made_and_swept(*_: object, **options: str) -> str:
        made.append(make(prefix=options["prefix"], dir=options["dir"]))
        if len(made) == 1:
            assert sweep(tmp_path) == [Path(made[0])]
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_swept)
    folder = WorkerFolder(tmp_path)
    assert (str(folder.path), len(made)) == (made[1], 2)
    folder.remove()


def test_a_folder_removed_during_the_wait_for_its_lock_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = fcntl.flock, list[Path]()

    def swept_first(number: int, operation: int) -> None:
        if not swept:
            swept.append(tmp_path)
            sweep(tmp_path)
        lock(number, operation)

    monkeypatch.setattr(fcntl, "flock", swept_first)
    folder = WorkerFolder(tmp_path)
    assert folder.path.is_dir()
    assert list(tmp_path.iterdir()) == [folder.path]
    folder.remove()


def test_where_nothing_can_be_locked_the_worker_says_so_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="can be locked"):
        WorkerFolder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_workers_that_start_at_once_have_a_folder_each(tmp_path: Path) -> None:
    def start(_: int) -> WorkerFolder:
        sweep(tmp_path)
        return WorkerFolder(tmp_path)

    with ThreadPoolExecutor(16) as threads:
        started = list(threads.map(start, range(64)))
    assert sorted(tmp_path.iterdir()) == sorted(each.path for each in started)
    assert all((each.path / "lock").is_file() for each in started)
    for each in started:
        each.remove()


def test_the_folder_in_memory_is_one_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert os.access(memory_folder(), os.W_OK)
    monkeypatch.setattr(folders, "_MEMORY", tmp_path / "none")
    assert memory_folder() == Path(tempfile.gettempdir())


# The pool

CONNECTION = Connection(
    cluster="eu-1", namespace="modelplane-system", name="eu-1-kubeconfig"
)


class OneAccess:
    """The kubeconfig of every cluster."""

    async def access(self, connection: Connection) -> ApiServerAccess:
        url = f"https://{connection.cluster}.example.com"
        return ApiServerAccess(url, token="secret-token")  # noqa: S106


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HelmClients:
    """A pool with its folders in memory and on disk below the test's folder."""
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(
        "activities.clients.helm.pool.memory_folder", lambda: tmp_path / "memory"
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
    clients = HelmClients(OneAccess(), StackSettings())

    async def get() -> Helm:
        return Helm("/bin/true", (4, 3, 1))

    monkeypatch.setattr(clients._binary, "get", get)
    return clients


async def test_a_kubeconfig_exists_while_its_cluster_is_used_and_only_in_memory(
    pool: HelmClients, tmp_path: Path
) -> None:
    async with pool.at(CONNECTION), pool.at(CONNECTION):
        assert len(list((tmp_path / "memory").rglob("kubeconfig"))) == 2
        assert list((tmp_path / "disk").rglob("kubeconfig")) == []
    assert list((tmp_path / "memory").rglob("kubeconfig")) == []
    pool.close()
    assert [list((tmp_path / name).iterdir()) for name in ("memory", "disk")] == [
        [],
        [],
    ]


async def test_a_cancelled_use_leaves_no_kubeconfig(
    pool: HelmClients, tmp_path: Path
) -> None:
    entered = asyncio.Event()

    async def use() -> None:
        async with pool.at(CONNECTION):
            entered.set()
            await asyncio.Event().wait()

    using = asyncio.create_task(use())
    await entered.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert list((tmp_path / "memory").rglob("kubeconfig")) == []
    pool.close()


async def test_a_starting_worker_sweeps_folders_of_killed_workers(
    pool: HelmClients, tmp_path: Path
) -> None:
    for name in ("memory", "disk"):
        left = WorkerFolder(tmp_path / name)
        assert left._lock is not None
        os.close(left._lock)
    await pool.start(serves_clusters=False)
    assert [list((tmp_path / name).iterdir()) for name in ("memory", "disk")] == [
        [],
        [],
    ]
