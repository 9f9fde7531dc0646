"""The shared part of programs that fill a volume: marker, space check, client, exit codes.

This file is the first part of such a program, so it imports only the standard library.
"""

import errno
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

AUTH_REFUSED = 41
NOT_FOUND = 42
NO_SPACE = 43
# The code of shells for SIGTERM. It is not final: the pod was ended to run elsewhere or
# later.
TERMINATED = 128 + signal.SIGTERM
MARKER = ".modelplane-hydrated"
# Files of the file system or its server in the root folder of a volume. Snapshots are
# read-only.
KEPT = ("lost+found", ".snapshot", ".snapshots")
# The kubelet copies this file into the status of the pod, where the control plane reads
# the commit of a branch.
TERMINATION_LOG = Path("/dev/termination-log")
MESSAGE_BYTES_MAX = 1000
FULL = (errno.ENOSPC, errno.EDQUOT)
UNAUTHORIZED = (401, 403)
MISSING = 404
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY")


class Hopeless(Exception):
    """A failure that no retry can repair; `code` is the exit code."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


def run(fill: Callable[[], None]) -> int:
    """Run a program until its volume is filled; return the exit code."""
    # The first process of a container ignores signals without a handler, and would be
    # killed after its grace period.
    signal.signal(signal.SIGTERM, terminate)
    try:
        check_proxies()
        fill()
        report(Path(os.environ["MODELPLANE_TARGET"]))
    except Hopeless as verdict:
        say(str(verdict))
        return verdict.code
    except OSError as error:
        say(f"{type(error).__name__}: {error}")
        return NO_SPACE if error.errno in FULL else 1
    return 0


def check_proxies() -> None:
    """Refuse a login that clients would read as host and port.

    Clients would quote it, and their messages become the status of the cache.
    """
    for name in PROXIES:
        address = os.environ.get(name, "")
        login = address.rpartition("@")[0]
        if set("/?#") & set(login.partition("://")[2] or login):
            raise Hopeless(
                AUTH_REFUSED,
                "the address of the proxy is invalid: "
                "write / ? and # of its login as %2F %3F and %23",
            )


def terminate(*_: object) -> None:
    """End at once, without waiting for the threads of the client."""
    say("stopped by SIGTERM: the next attempt goes on with what has not arrived")
    os._exit(TERMINATED)


def report(target: Path) -> None:
    """Write the revision of the volume for the kubelet; outside of a pod the file is missing."""
    if TERMINATION_LOG.exists():
        TERMINATION_LOG.write_text(
            json.loads((target / MARKER).read_text(encoding="utf-8"))["commit"],
            encoding="utf-8",
        )


def staged(target: Path, artefact_key: str) -> bool:
    """Return whether the volume has the marker of this artefact."""
    try:
        marker = json.loads((target / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("artefactKey") == artefact_key


def client(name: str, requirements: str, secret: str) -> Any:
    """Import the client from the image, or install the pinned packages first.

    The installation runs without the variable `secret`.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        folder = tempfile.mkdtemp(prefix="client-")
    say(f"installing {name}")
    wanted = Path(folder) / "requirements.txt"
    wanted.write_text(requirements, encoding="utf-8")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    # Install only packages with a known hash, and none that would build code. The
    # installation does not need the secret.
    checked = [
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--target",
        folder,
        "--requirement",
        str(wanted),
    ]
    environ = {
        variable: value for variable, value in os.environ.items() if variable != secret
    }
    command = [*pip, *checked]  # the requirements are pinned in this repository
    if subprocess.run(command, env=environ, check=False).returncode:  # noqa: S603
        raise OSError(
            errno.EIO,
            f"{name} could not be installed; use an image that has it, "
            "or a package index that pip reaches",
        )
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def check_space(target: Path, missing: int) -> None:
    """Fail before the download if the missing bytes exceed the free space."""
    free = shutil.disk_usage(target).free
    if missing > free:
        raise Hopeless(
            NO_SPACE,
            f"the volume has {free} bytes free, but {missing} bytes are missing: raise sizeGiB",
        )


def check_files(target: Path, sizes: Mapping[str, int | None]) -> None:
    """Raise OSError if a file is incomplete."""
    lacking = [name for name, size in sizes.items() if not arrived(target / name, size)]
    if lacking:
        raise OSError(
            errno.EIO,
            f"{len(lacking)} of {len(sizes)} files are missing or incomplete: "
            f"{', '.join(lacking[:5])}",
        )


def arrived(path: Path, size: int | None) -> bool:
    """Return whether a file exists with its full size in bytes."""
    return path.is_file() and (size is None or path.stat().st_size == size)


def write_marker(
    target: Path, artefact_key: str, source: str, repo: str, commit: str
) -> None:
    """Write the marker atomically."""
    marker = {
        "source": source,
        "repo": repo,
        "commit": commit,
        "artefactKey": artefact_key,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    part = target / f"{MARKER}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(marker, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(target / MARKER)
    say(f"staged {repo} at {commit}")


SECRETS: list[str] = []


def say(text: str) -> None:
    """Write one line without credentials, short enough for a termination message."""
    # An address with a login.
    proxies = [os.environ.get(name, "") for name in PROXIES]
    for secret in (*SECRETS, *(proxy for proxy in proxies if "@" in proxy)):
        text = text.replace(secret, "***")
    line = " ".join(text.split())
    sys.stderr.write(line.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore") + "\n")
