"""The file system of a container: `python -m testbed.node.sandbox CONFIG`.

It is started in a mount namespace of its own. It makes a root folder with the
machine's programs and libraries, the container's program and its volumes, and becomes
the container's process there.

CONFIG is a JSON object {root, programs: {NAME: PATH}, files: {PATH: TEXT}, mounts:
{PATH: FOLDER}, argv, environment}.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from testbed.documents import read_json

PROGRAMS = "/programs"
_PR_SET_PDEATHSIG = 1
# /dev and /proc are those of the machine. There is no user database beyond root.
_SHARED = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "dev", "proc")
_EMPTY = ("tmp", "var", "run", "etc", "home")


def main() -> None:
    """Build the root folder and execute the program."""
    # A program of a pod must not outlive the node.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    config = read_json(Path(sys.argv[1]))
    root = Path(config["root"])
    root.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "tmpfs", str(root))
    for name in _SHARED:
        source = Path("/", name)
        if source.is_symlink():
            (root / name).symlink_to(source.readlink())
        elif source.is_dir():
            _bind(source, root / name)
    for name in _EMPTY:
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    for name, program in config["programs"].items():
        target = root / PROGRAMS.lstrip("/") / name
        target.parent.mkdir(exist_ok=True)
        target.touch()
        _mount("--bind", program, str(target))
    for path, folder in config["mounts"].items():
        _bind(Path(folder), root / path.lstrip("/"))
    for path, text in config["files"].items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    os.chroot(root)
    os.chdir("/")
    environment = {"PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin"}
    argv = config["argv"]
    # The name may be a path of the image, such as /usr/local/bin/envoy.
    program = f"{PROGRAMS}/{argv[0].rsplit('/', 1)[-1]}"
    os.execve(program, argv, environment | config["environment"])  # noqa: S606 - a container has no shell


def _bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _mount("--rbind", str(source), str(target))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main()
