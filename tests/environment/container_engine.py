"""A container engine for tests of the image: Debian's buildah and podman with a store of their own.

The engine needs root and apt. Its images, settings and programs lie beside the testbed's programs
in the user's cache folder, so it neither sees nor changes the machine's own containers.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.programs.install import cache_folder
from tests.environment.summary import Summary
from tests.environment.waiting import pauses

MARK = "image"
PACKAGES = ("buildah", "podman", "runc", "debootstrap")
PROGRESS_SECONDS = 20
NEEDS_ROOT = "a container engine needs root: run the tests as root"
_OUTPUT_TAIL = 3000
# podman sets limits of processes, which takes a capability that virtual machines of CI lack.
_RUNC_WITHOUT_LIMITS = """#!{python}
import json, os, sys
for option, file in (("--bundle", "config.json"), ("--process", "")):
    if option in sys.argv:
        path = os.path.join(sys.argv[sys.argv.index(option) + 1], file).rstrip("/")
        with open(path) as opened:
            tree = json.load(opened)
        tree.get("process", tree).pop("rlimits", None)
        with open(path, "w") as opened:
            json.dump(tree, opened)
os.execvp("runc", ["runc", *sys.argv[1:]])
"""
# runc knows the control groups of every machine, with systemd or without.
_ENGINE = """[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc-without-limits"
[engine.runtimes]
runc-without-limits = ["{runc}"]
"""
_STORAGE = """[storage]
driver = "{driver}"
graphroot = "{images}"
runroot = "{state}"
"""


class EngineFailed(Exception):
    """The engine or a build does not work. The message names the cause and the remedy."""


def leave_out_without_root(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of the image out of a run without root, and name them in its summary."""
    of_image = [item for item in items if item.get_closest_marker(MARK)]
    if not of_image or os.geteuid() == 0:
        return
    items[:] = [item for item in items if item not in of_image]
    Summary.of(config).leave_out(f"of the container image: {NEEDS_ROOT}", len(of_image))


class ContainerEngine:
    """Run buildah and podman on a store in the cache folder. `say` shows progress."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.folder = cache_folder() / "containers"
        self.environment = os.environ | {
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
        }

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs on this machine from installing or building at the same time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("image: another run is building it; waiting")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def install(self) -> None:
        """Install the packages that are missing and write the settings. Raises EngineFailed."""
        missing = [package for package in PACKAGES if shutil.which(package) is None]
        if missing:
            install = [
                "apt-get",
                "install",
                "--yes",
                "--no-install-recommends",
                *missing,
            ]
            try:
                self.run("apt-get", "update", progress="reading the lists of packages")
                self.run(*install, progress=f"installing {', '.join(missing)}")
            except EngineFailed as error:
                hint = f"install {', '.join(missing)}, so that they are on PATH"
                raise EngineFailed(f"{error}\n{hint}") from error
        runc = self.folder / "runc-without-limits"
        runc.write_text(_RUNC_WITHOUT_LIMITS.format(python=sys.executable))
        runc.chmod(0o755)
        (self.folder / "containers.conf").write_text(_ENGINE.format(runc=runc))
        storage = _STORAGE.format(
            driver=self._storage_driver(),
            images=self.folder / "images",
            state="/run/modelplane-containers",
        )
        (self.folder / "storage.conf").write_text(storage)

    def run(self, *command: str, progress: str = "", stdin: str | None = None) -> str:
        """Run a program and return its standard output. `progress` names a slow step for the user.

        Raises EngineFailed with the end of the program's output.
        """
        began = time.monotonic()
        if progress:
            self.say(f"image: {progress}")
        with (
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as errors,
        ):
            try:
                process = subprocess.Popen(
                    command,
                    env=self.environment | {"DEBIAN_FRONTEND": "noninteractive"},
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=errors,
                    text=True,
                )
            except FileNotFoundError as error:
                raise EngineFailed(f"there is no {command[0]}") from error
            unsent = stdin
            while True:
                try:
                    process.communicate(unsent, timeout=PROGRESS_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    unsent = None
                    if progress:
                        self.say(
                            f"image: {progress}, {time.monotonic() - began:.0f} s so far"
                        )
            for file in (output, errors):
                file.seek(0)
            said = output.read()
            if process.returncode != 0:
                tail = (said + errors.read())[-_OUTPUT_TAIL:]
                raise EngineFailed(f"`{' '.join(command)[:200]}` failed:\n{tail}")
        return said

    def has_image(self, name: str) -> bool:
        """Return whether the store has an image of that name."""
        return (
            name
            in self.run(
                "podman", "images", "--format", "{{.Repository}}:{{.Tag}}"
            ).split()
        )

    @contextlib.contextmanager
    def docker_api(self) -> Iterator[str]:
        """Serve the Docker API while the body runs; yield the address for DOCKER_HOST."""
        with tempfile.TemporaryDirectory() as folder:
            address = f"unix://{folder}/docker.sock"
            command = ["podman", "system", "service", "--time", "0", address]
            log = Path(folder) / "log"
            with log.open("w") as out:
                process = subprocess.Popen(
                    command, env=self.environment, stdout=out, stderr=out
                )
            try:
                _wait_for_socket(process, Path(folder) / "docker.sock", log)
                yield address
            finally:
                process.terminate()
                process.wait()

    def _storage_driver(self) -> str:
        """Choose overlay, which shares layers, unless the store itself lies on one."""
        kind = self.run(
            "stat", "--file-system", "--format", "%T", str(self.folder)
        ).strip()
        return "vfs" if "overlay" in kind else "overlay"


def _wait_for_socket(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    for pause in pauses():
        if socket.exists():
            return
        if process.poll() is not None:
            break
        time.sleep(pause)
    raise EngineFailed(f"podman does not serve the Docker API:\n{log.read_text()}")
