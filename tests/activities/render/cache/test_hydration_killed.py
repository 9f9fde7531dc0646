"""The volume that a killed or terminated hydration leaves.

The tests use the real `huggingface_hub` and a hub on loopback.
"""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from activities.render.cache.hydration import FINAL_EXIT_CODES
from tests.activities.render.cache.programs import (
    AS_FIRST_PROCESS,
    COMMAND,
    MARKER,
    job_environment,
    small_volume,
    wait_until,
)
from tests.environment.local_hub import LocalHub, Repo, a_commit, local_hub

pytestmark = pytest.mark.slow

# The client writes it after the file. Without it the file is sent again.
ARRIVED = ".cache/huggingface/download/config.json.metadata"

# The client writes chunks of 10 MB. A volume of 26 MiB has room for the file and one
# chunk, but not for three.
WEIGHTS = b"w" * 24_000_000
FIRST_CHUNK = 10_000_000
SENT = 12_000_000
VOLUME_MIB = 26
FILES = ["config.json", "model.safetensors"]
TERMINATED = 143


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as hub:
        hub.repos = {
            "acme/large": Repo(
                files={"config.json": b"{}", "model.safetensors": WEIGHTS}
            )
        }
        yield hub


def partial(volume: Path) -> list[Path]:
    """Return the files that are being written."""
    return [path for path in volume.rglob("*.incomplete") if path.is_file()]


def has_grown(paths: Iterable[Path]) -> bool:
    """Return whether a file contains the first part.

    A small file may have been completed and renamed since it was found.
    """
    sizes = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return max(sizes, default=0) >= FIRST_CHUNK


def left(volume: Path) -> list[str]:
    return sorted(str(path.relative_to(volume)) for path in volume.rglob("*"))


def finish(
    hub: LocalHub, volume: Path, *around: str
) -> "subprocess.CompletedProcess[str]":
    command = [*around, *COMMAND]
    return subprocess.run(
        command,
        env=job_environment(hub, volume, "acme/large"),
        capture_output=True,
        text=True,
        check=False,
    )


@contextlib.contextmanager
def downloading(
    hub: LocalHub, volume: Path, *around: str, seen_at: Path | None = None
) -> "Iterator[subprocess.Popen[str]]":
    """Start a download and wait until a part of the weights is written.

    The rest is held back. The download is killed at the end.
    """
    seen_at = seen_at or volume
    before = set(partial(seen_at))
    hub.stall_after = SENT
    environment = job_environment(hub, volume, "acme/large")
    with subprocess.Popen(
        [*around, *COMMAND], env=environment, stderr=subprocess.PIPE, text=True
    ) as job:
        try:
            wait_until(
                lambda: has_grown(set(partial(seen_at)) - before),
                "a part of the weights",
            )
            yield job
        finally:
            job.kill()


def test_three_kills_on_a_volume_that_is_just_large_enough_end_in_success(
    hub: LocalHub, tmp_path: Path
) -> None:
    with small_volume(tmp_path / "volume", VOLUME_MIB) as volume:
        for _ in range(3):
            with downloading(hub, volume.path, *volume.around, seen_at=volume.seen_at):
                wait_until((volume.seen_at / ARRIVED).is_file, "the small file")
            assert len(partial(volume.seen_at)) == 1, (
                "what earlier attempts left is removed"
            )
        ended = finish(hub, volume.path, *volume.around)
        assert ended.returncode == 0, ended.stderr
        assert left(volume.seen_at) == [MARKER, *FILES]
        assert (volume.seen_at / "model.safetensors").read_bytes() == WEIGHTS


def test_the_clients_own_files_take_no_room_from_the_next_attempt(
    hub: LocalHub, tmp_path: Path
) -> None:
    with small_volume(tmp_path / "volume", VOLUME_MIB) as volume:
        kept = volume.seen_at / ".modelplane" / "huggingface" / "xet"
        kept.mkdir(parents=True)
        (kept / "chunks").write_bytes(bytes(6 << 20))
        ended = finish(hub, volume.path, *volume.around)
        assert ended.returncode == 0, ended.stderr


def test_files_that_arrived_before_the_kill_are_not_sent_again(
    hub: LocalHub, tmp_path: Path
) -> None:
    with downloading(hub, tmp_path):
        wait_until((tmp_path / ARRIVED).is_file, "the small file")
    asked = len(hub.requests)
    assert finish(hub, tmp_path).returncode == 0
    assert not [path for path in hub.requests[asked:] if path.endswith("config.json")]


def test_leftovers_of_a_kill_after_the_marker_are_removed_by_the_next_attempt(
    hub: LocalHub, tmp_path: Path
) -> None:
    (tmp_path / MARKER).write_text(json.dumps({"artefactKey": "key-1"}))
    for folder in (
        tmp_path / ".modelplane" / "huggingface",
        tmp_path / ".cache" / "huggingface" / "download",
    ):
        folder.mkdir(parents=True)
        (folder / "something").touch()
    ended = finish(hub, tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "already staged\n")
    assert left(tmp_path) == [MARKER]


def test_a_folder_of_the_repository_next_to_the_clients_stays(
    hub: LocalHub, tmp_path: Path
) -> None:
    hub.repos["acme/large"] = Repo(files={".cache/tokenizer.json": b"{}"})
    assert finish(hub, tmp_path).returncode == 0
    assert left(tmp_path) == [".cache", ".cache/tokenizer.json", MARKER]


@pytest.mark.parametrize(
    "around",
    [[], AS_FIRST_PROCESS],
    ids=["a process", "the first process of a container"],
)
def test_sigterm_ends_a_download_at_once_with_a_code_that_is_retried(
    hub: LocalHub, tmp_path: Path, around: list[str]
) -> None:
    with downloading(hub, tmp_path, *around) as job:
        target = job.pid
        if around:
            target = int(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text())
        subprocess.run(["kill", f"-{signal.SIGTERM}", str(target)], check=True)
        # Less than the 30 s after which a container is killed.
        code = job.wait(timeout=20)
        assert job.stderr
        assert job.stderr.read().splitlines()[-1].startswith("stopped by SIGTERM")
    assert code == TERMINATED
    assert TERMINATED not in FINAL_EXIT_CODES
    assert finish(hub, tmp_path).returncode == 0


OLD = 10_500_000


@pytest.mark.parametrize("size", [OLD, OLD - 1], ids=["as large", "another size"])
def test_files_of_an_older_commit_are_deleted_to_free_space(
    hub: LocalHub, tmp_path: Path, size: int
) -> None:
    """Only the client can distinguish newer weights of the same size."""
    same = {"config.json": b"{}"}
    hub.repos["acme/large"] = Repo(
        files={
            **same,
            "a.safetensors": b"o" * OLD,
            "b.safetensors": WEIGHTS,
            "c.safetensors": b"o",
        }
    )
    with small_volume(tmp_path / "volume", VOLUME_MIB + 10) as volume:
        with downloading(hub, volume.path, *volume.around, seen_at=volume.seen_at):
            notes = [
                volume.seen_at / ARRIVED.replace("config.json", name)
                for name in ("config.json", "a.safetensors")
            ]
            wait_until(
                lambda: all(note.is_file() for note in notes), "the smaller files"
            )
        for path in partial(volume.seen_at):
            path.unlink()
        # The volume has room for the newer weights, but not together with the older
        # ones.
        (volume.seen_at / "lost+found").mkdir()
        (volume.seen_at / "lost+found" / "1").write_bytes(bytes(2 * OLD - 1_000_000))
        kept = (volume.seen_at / "config.json").stat().st_ino
        hub.repos["acme/large"] = Repo(
            files={**same, "a.safetensors": b"n" * size},
            branches={"main": a_commit("second")},
        )
        ended = finish(hub, volume.path, *volume.around)
        assert ended.returncode == 0, ended.stderr
        assert left(volume.seen_at) == [
            MARKER,
            "a.safetensors",
            "config.json",
            "lost+found",
            "lost+found/1",
        ]
        assert (volume.seen_at / "a.safetensors").read_bytes() == b"n" * size
        assert json.loads((volume.seen_at / MARKER).read_text())["commit"] == a_commit(
            "second"
        )
        assert (volume.seen_at / "config.json").stat().st_ino == kept, (
            "what both have is not sent again"
        )
