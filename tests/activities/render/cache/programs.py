"""Run hydration programs like a Job: in a process with the Job's environment."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from activities.render.cache.hydration import CLIENT_REQUIREMENTS, HUGGINGFACE
from tests.environment.local_hub import LocalHub
from tests.environment.waiting import pauses

COMMAND = [sys.executable, "-c", HUGGINGFACE]
# A program in a PID namespace is the first process, as in a container, and its children
# end with it.
AS_FIRST_PROCESS = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--kill-child",
]
MARKER = ".modelplane-hydrated"


def job_environment(
    hub: LocalHub,
    volume: Path,
    repo: str,
    *,
    revision: str = "",
    key: str = "key-1",
    token: str = "",
) -> dict[str, str]:
    """Return the environment of a Job for a repository of this hub."""
    return {
        "PATH": os.environ["PATH"],
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(volume / ".modelplane" / "huggingface"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "MODELPLANE_REPO": repo,
        "MODELPLANE_REVISION": revision,
        "MODELPLANE_ARTEFACT_KEY": key,
        "MODELPLANE_TARGET": str(volume),
        "MODELPLANE_CLIENT_REQUIREMENTS": CLIENT_REQUIREMENTS,
        **({"HF_TOKEN": token} if token else {}),
    }


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Poll often, because the condition is true only briefly."""
    for _ in pauses(60):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError(f"{what} was not seen")


class SmallVolume(NamedTuple):
    """A mounted file system.

    A program that is started with `around` finds it at `path`, others at `seen_at`.
    """

    path: Path
    seen_at: Path
    around: list[str]


@contextlib.contextmanager
def small_volume(path: Path, mib: int) -> Iterator[SmallVolume]:
    """Mount a file system of this size.

    It disappears with the process that mounted it, even if the test fails.
    """
    path.mkdir()
    mounting = (
        f'mount -t tmpfs -o size={mib}m none "$0" && echo mounted && exec sleep 600'
    )
    namespaces = ["unshare", "--user", "--map-root-user", "--mount"]
    with subprocess.Popen(
        [*namespaces, "sh", "-c", mounting, str(path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == "mounted\n"
            around = [
                "nsenter",
                f"--target={holder.pid}",
                "--user",
                "--mount",
                "--preserve-credentials",
            ]
            yield SmallVolume(path, Path(f"/proc/{holder.pid}/root{path}"), around)
        finally:
            holder.kill()
