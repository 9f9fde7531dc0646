"""Programs from Debian packages, without installing them.

The packages are unpacked into a folder, with the libraries that the machine lacks. A
browser and shells have no Go module, and few test machines can reach the hosts of their
releases.
Debian keeps only the newest version of a package, so the version is not pinned, and any
version that starts is accepted. apt verifies the packages against the signed lists of
the distribution.
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
    """A program in a Debian package."""

    name: str
    package: str
    program: str
    """Its path inside the package."""
    on_path: tuple[str, ...]
    """The names under which it, or an equivalent program, may be on PATH."""
    hint: str
    """The next step if it is not available."""


BROWSER = DebianProgram(
    name="browser",
    package="chromium-headless-shell",
    program="usr/lib/chromium/chromium-headless-shell",
    on_path=(
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    ),
    hint="install Chromium, so that it is on PATH",
)


ZSH = DebianProgram(
    name="zsh-shell",
    package="zsh",
    program="bin/zsh",
    on_path=("zsh",),
    hint="install zsh, so that it is on PATH",
)
FISH = DebianProgram(
    name="fish-shell",
    package="fish",
    program="usr/bin/fish",
    on_path=("fish",),
    hint="install fish, so that it is on PATH",
)


class PackageFailed(Exception):
    """A package is not available. The message lists the attempts."""


def found_on_path(wanted: DebianProgram) -> Path | None:
    """Return the program on PATH, or None if it does not start."""
    paths = (shutil.which(name) for name in wanted.on_path)
    return next((Path(path) for path in paths if path and starts(Path(path))), None)


def starts(program: Path) -> bool:
    """Return whether the program and its libraries exist."""
    try:
        ended = subprocess.run(
            [program, "--version"],
            capture_output=True,
            timeout=_START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def unpack(wanted: DebianProgram, folder: Path, say: Callable[[str], None]) -> None:
    """Unpack a package into an empty folder, as `bin/NAME`.

    Raise PackageFailed if the package is not available.
    """
    say(f"{wanted.name}: unpacking Debian's {wanted.package}")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        names = _missing(wanted)
        # apt's own user cannot write to this folder.
        _run(
            wanted,
            ["apt-get", "-o", "APT::Sandbox::User=", "download", *names],
            Path(scratch),
        )
        for package in sorted(Path(scratch).glob("*.deb")):
            _run(wanted, ["dpkg-deb", "--extract", str(package), str(folder)], folder)
    program = folder / "bin" / wanted.name
    program.parent.mkdir(exist_ok=True)
    libraries = sorted(
        {os.path.relpath(path.parent, program.parent) for path in folder.rglob("*.so*")}
    )
    joined = ":".join(f"$here/{path}" for path in libraries)
    program.write_text(
        _START.format(
            libraries=joined,
            program=os.path.relpath(folder / wanted.program, program.parent),
        )
    )
    program.chmod(0o755)
    if not starts(program):
        raise PackageFailed(
            f"{wanted.name}: Debian's {wanted.package} does not start here; {wanted.hint}"
        )


def _missing(wanted: DebianProgram) -> list[str]:
    """Return the package and its dependencies that are not installed."""
    ask = [
        "apt-get",
        "--simulate",
        "--no-install-recommends",
        "install",
        wanted.package,
    ]
    try:
        answer = _run(wanted, ask, Path.cwd())
    except PackageFailed:
        # A new machine has no package lists yet.
        _run(wanted, ["apt-get", "update"], Path.cwd())
        answer = _run(wanted, ask, Path.cwd())
    return sorted({wanted.package, *_INSTALLED.findall(answer)})


def _run(wanted: DebianProgram, command: list[str], folder: Path) -> str:
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise PackageFailed(
            f"{wanted.name}: not on PATH, and there is no {command[0]} "
            f"({error.strerror}); {wanted.hint}"
        ) from error
    if ended.returncode != 0:
        raise PackageFailed(
            f"{wanted.name}: `{' '.join(command[:4])}` failed: "
            f"{ended.stderr.strip()[-600:]}; {wanted.hint}"
        )
    return ended.stdout
