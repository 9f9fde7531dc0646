"""Programs out of Debian's packages, without installing any: they are unpacked into a folder, with the libraries that are missing.

For a browser there is no Go module, and its own releases lie on hosts that few machines of tests reach. Debian keeps only the newest
version of a package, so none is pinned: any that starts will do. apt checks the packages against the signed lists of the distribution.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_INSTALLED = re.compile(r"^Inst (\S+) ", re.MULTILINE)
_START_SECONDS = 60
_START = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="{libraries}"
exec "$here/{program}" "$@"
"""


@dataclass(frozen=True)
class DebianProgram:
    """A program that a Debian package has."""

    name: str
    package: str
    program: str
    """Its path inside the package."""
    on_path: tuple[str, ...]
    """Under which names it, or one that can do the same, may be on PATH."""
    hint: str
    """What to do where it cannot be had."""


BROWSER = DebianProgram(
    name="browser",
    package="chromium-headless-shell",
    program="usr/lib/chromium/chromium-headless-shell",
    on_path=("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"),
    hint="install Chromium, so that it is on PATH",
)


class PackageFailed(Exception):
    """A package cannot be had; the message says what was tried."""


def found_on_path(wanted: DebianProgram) -> Path | None:
    """Find it on PATH; None unless it starts."""
    paths = (shutil.which(name) for name in wanted.on_path)
    return next((Path(path) for path in paths if path and starts(Path(path))), None)


def starts(program: Path) -> bool:
    """Whether it is there and its libraries are."""
    try:
        ended = subprocess.run([program, "--version"], capture_output=True, timeout=_START_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def unpack(wanted: DebianProgram, folder: Path, say: Callable[[str], None]) -> None:
    """Put it into an empty folder, as `bin/NAME`. Raises PackageFailed."""
    say(f"{wanted.name}: unpacking Debian's {wanted.package}")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        names = _missing(wanted)
        # Its own user of apt could not write here.
        _run(wanted, ["apt-get", "-o", "APT::Sandbox::User=", "download", *names], Path(scratch))
        for package in sorted(Path(scratch).glob("*.deb")):
            _run(wanted, ["dpkg-deb", "--extract", str(package), str(folder)], folder)
    program = folder / "bin" / wanted.name
    program.parent.mkdir()
    libraries = sorted({os.path.relpath(path.parent, program.parent) for path in folder.rglob("*.so*")})
    joined = ":".join(f"$here/{path}" for path in libraries)
    program.write_text(_START.format(libraries=joined, program=os.path.relpath(folder / wanted.program, program.parent)))
    program.chmod(0o755)
    if not starts(program):
        raise PackageFailed(f"{wanted.name}: Debian's {wanted.package} does not start here; {wanted.hint}")


def _missing(wanted: DebianProgram) -> list[str]:
    """Name the package and those it needs that are not installed."""
    ask = ["apt-get", "--simulate", "--no-install-recommends", "install", wanted.package]
    try:
        answer = _run(wanted, ask, Path.cwd())
    except PackageFailed:
        # On a new machine there are no lists of packages yet.
        _run(wanted, ["apt-get", "update"], Path.cwd())
        answer = _run(wanted, ask, Path.cwd())
    return sorted({wanted.package, *_INSTALLED.findall(answer)})


def _run(wanted: DebianProgram, command: list[str], folder: Path) -> str:
    try:
        ended = subprocess.run(command, cwd=folder, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PackageFailed(f"{wanted.name}: not on PATH, and there is no {command[0]} ({error.strerror}); {wanted.hint}") from error
    if ended.returncode != 0:
        raise PackageFailed(f"{wanted.name}: `{' '.join(command[:4])}` failed: {ended.stderr.strip()[-600:]}; {wanted.hint}")
    return ended.stdout
