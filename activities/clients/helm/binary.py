"""Find the helm program of a worker and check it before a release needs it.

A helm that was built without its linker variable reports `v4.3`, which pyhelm3 cannot
parse. Without this check an activity would fail with an error that names neither the
program nor the reason.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from pathlib import Path

from api_types import labels
from api_types.errors import Unsupported

_VERSION_SECONDS = 30.0
_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)(?:[-+][0-9A-Za-z.+-]+)?")
_SHORT_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")
# The oldest version that the tests run.
_OLDEST = (3, 22)
_NEWEST_MAJOR = 4
_ANSWER_MAX = 200
_READ_MAX = 1 << 12


@dataclass(frozen=True)
class Helm:
    """A usable helm program."""

    path: str
    version: tuple[int, int, int]

    @property
    def applies_on_server(self) -> bool:
        """True if it sends objects by server-side apply."""
        return self.version >= (4, 0, 0)


class HelmBinary:
    """The helm of this worker: the program of the setting, else the one on PATH."""

    def __init__(self, setting: str = "") -> None:
        self._setting = setting
        self._found: Helm | None = None
        self._looking = asyncio.Lock()

    async def get(self) -> Helm:
        """Return the program.

        A missing program is searched again at every call. Raises Unsupported, whose
        message states the remedy.
        """
        async with self._looking:
            if self._found is None:
                self._found = await self._look()
        return self._found

    async def _look(self) -> Helm:
        problems = []
        for candidate in self._candidates():
            found = await _checked(candidate)
            if isinstance(found, Helm):
                return found
            problems.append(found)
        where = "none is on PATH, and the setting stack.helm is empty"
        if self._setting:
            where = "the setting stack.helm names none"
        raise Unsupported(
            f"no usable helm program: {'; '.join(problems) or where}. This worker cannot "
            "install stacks: put helm 4 on its PATH or name it in the setting "
            f"stack.helm, or annotate the cluster with {labels.STACK}: external"
        )

    def _candidates(self) -> list[str]:
        if self._setting:
            return [str(Path(self._setting).expanduser())]
        on_path = shutil.which("helm")
        return [on_path] if on_path else []


async def _checked(path: str) -> Helm | str:
    """Return the program if it is usable, else the reason why not."""
    if shutil.which(path) is None:
        return f"{path} is not a program that this user may run"
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "version",
            "--template",
            "{{.Version}}",
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"{path} cannot be run: {error.strerror}"
    try:
        async with asyncio.timeout(_VERSION_SECONDS):
            output = await _answer(process)
    except TimeoutError:
        return f"{path} did not report its version within {_VERSION_SECONDS:.0f} s"
    finally:
        # Kill the children of a script too, and do not wait for their output.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001
        await process.wait()
    return _judged(path, output.decode(errors="replace").strip())


async def _answer(process: Process) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    output = b""
    while len(output) <= _READ_MAX and (chunk := await process.stdout.read(_READ_MAX)):
        output += chunk
    return output


def _judged(path: str, version: str) -> Helm | str:
    if (full := _VERSION.fullmatch(version)) is not None:
        major, minor, patch = (int(part) for part in full.groups())
        if (major, minor) < _OLDEST or major > _NEWEST_MAJOR:
            oldest = ".".join(map(str, _OLDEST))
            return (
                f"{path} is helm {version}, "
                f"and a version from {oldest} to {_NEWEST_MAJOR} is needed"
            )
        return Helm(path, (major, minor, patch))
    if (short := _SHORT_VERSION.fullmatch(version)) is not None:
        variable = f"helm.sh/helm/v{short[1]}/internal/version.version"
        return (
            f"{path} reports the short version {version}: it was built without its "
            "linker variable; build it with "
            f'-ldflags "-X {variable}=<full version>", or use a release of Helm'
        )
    return f"{path} does not report a version of Helm: {version[:_ANSWER_MAX]!r}"
