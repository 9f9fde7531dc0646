"""pyhelm3's command line, run so that it can be stopped and limited.

pyhelm3 runs helm in a shell. A cancellation ends the shell, but helm continues. Here
helm is started directly, as the leader of a process group that is ended together with
it. Its environment is not the worker's, and no secret is on a command line.
"""

import asyncio
import contextlib
import os
import re
import signal
from asyncio import StreamReader
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
from pyhelm3.command import Command

from activities.clients.helm.limits import HelmLimits
from api_types.errors import AnswerTooLarge

log = structlog.get_logger("modelplane.helm")

OPERATION_SECONDS = 300
"""The time limit of one helm run."""
TERM_SECONDS = 20.0
HISTORY_MAX = 10
# Helm writes at most the manifest of a release. Its compressed form fits into a Secret
# of 1 MiB.
_OUTPUT_MAX = 64 << 20
_STDERR_MAX = 64 << 10
_READ_BYTES = 1 << 16
# The interval for checking whether helm has ended. A run takes seconds.
_LOOK_SECONDS = 0.05
# The variables that a program needs to run and to access a registry. A HELM_* variable
# of the worker's environment would change the installation.
_INHERITED = ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# The JSON escape of a character above U+FFFF. Escaped backslashes may precede it.
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE
)


class HelmFailed(Exception):
    """Helm failed, or was stopped at its time limit.

    `stderr` may contain secrets, so the message does not include it.
    """

    def __init__(self, verb: str, code: int | None, stderr: str) -> None:
        super().__init__(f"helm {verb} failed with exit code {code}")
        self.stderr = stderr


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a helm process with its home and caches below `home`."""
    wanted = [*_INHERITED, *_PROXIES, *(name.lower() for name in _PROXIES)]
    inherited = {name: os.environ[name] for name in wanted if name in os.environ}
    folders = {
        f"HELM_{kind}_HOME": str(home / kind.lower())
        for kind in ("CACHE", "CONFIG", "DATA")
    }
    return {
        **inherited,
        **folders,
        "HOME": str(home),
        "KUBECACHEDIR": str(home / "kube"),
        "HELM_NO_PLUGINS": "1",
    }


class HelmCommand(Command):  # type: ignore[misc] # the library has no types
    """The helm of one cluster, or of no cluster if the name is empty.

    `prepare` runs before each process and provides a fresh credential.
    """

    def __init__(
        self,
        executable: str,
        variables: Mapping[str, str],
        limits: HelmLimits,
        *,
        cluster: str = "",
        kubeconfig: Path | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        operation_seconds: int = OPERATION_SECONDS,
        term_seconds: float = TERM_SECONDS,
    ) -> None:
        super().__init__(
            executable=executable,
            kubeconfig=kubeconfig,
            # Helm rejects a number without a unit.
            default_timeout=f"{operation_seconds}s",
            history_max_revisions=HISTORY_MAX,
        )
        self._variables = dict(variables)
        self._limits = limits
        self._cluster = cluster
        self._prepare = prepare
        self._seconds = operation_seconds
        self._term_seconds = term_seconds

    async def run(
        self,
        command: list[Any],
        input: bytes | None = None,  # noqa: A002 - the library's name
    ) -> bytes:
        """Run helm with these arguments and return its output.

        When it returns or raises, also after a cancellation, all processes of the run
        have ended. Raises HelmFailed and AnswerTooLarge.
        """
        arguments = [str(part) for part in command]
        if self._kubeconfig:
            arguments += ["--kubeconfig", str(self._kubeconfig)]
        async with self._limits.turn(self._cluster):
            if self._prepare:
                await self._prepare()
            log.debug("running helm", cluster=self._cluster, command=arguments[0])
            return await self._run(
                arguments, None if input is None else _as_yaml(input)
            )

    async def roll_back(
        self, name: str, namespace: str, revision: int, *, on_server: bool
    ) -> None:
        """Roll back to a revision, even if somebody changed a field by hand.

        pyhelm3 has no option for that. Raises the errors of `run`.
        """
        bounds = ["--history-max", HISTORY_MAX, "--timeout", f"{self._seconds}s"]
        conflicts = ["--server-side=true", "--force-conflicts"] if on_server else []
        await self.run(
            ["rollback", name, revision, "--namespace", namespace, *bounds, *conflicts]
        )

    async def _run(self, arguments: list[str], given: bytes | None) -> bytes:
        start = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                self._executable,
                *arguments,
                env=self._variables,
                stdin=DEVNULL if given is None else PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
        )
        try:
            # If the start of a process is cancelled, asyncio kills only helm, and its
            # children would continue.
            await _shielded(start)
            stdout, stderr = await self._talk(start.result(), arguments[0], given)
        finally:
            if not start.exception():
                await _shielded(_end(start.result(), self._term_seconds))
        process = start.result()
        if process.returncode == 0:
            return stdout
        raise HelmFailed(arguments[0], process.returncode, stderr)

    async def _talk(
        self, process: Process, verb: str, given: bytes | None
    ) -> tuple[bytes, str]:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        try:
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as parts:
                stdout = parts.create_task(_whole(process.stdout, verb))
                stderr = parts.create_task(_tail(process.stderr))
                parts.create_task(_feed(process, given))
                parts.create_task(process.wait())
        except TimeoutError:
            raise HelmFailed(
                verb,
                None,
                f"helm {verb} did not end within {self._seconds} s and was stopped",
            ) from None
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return stdout.result(), stderr.result()


def _as_yaml(values: bytes) -> bytes:
    """Rewrite JSON so that helm, which reads it as YAML, can parse it.

    In YAML, half of a surrogate pair is not a character, even when escaped.
    """

    def character(found: re.Match[bytes]) -> bytes:
        pair = bytes.fromhex((found[2] + found[3]).decode())
        return found[1] + pair.decode("utf-16-be").encode()

    return _SURROGATES.sub(character, values)


async def _feed(process: Process, given: bytes | None) -> None:
    if process.stdin is None or given is None:
        return
    # If helm ends before it has read its values, it reports the reason itself.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()


async def _whole(source: StreamReader, verb: str) -> bytes:
    output = bytearray()
    while chunk := await source.read(_READ_BYTES):
        output += chunk
        if len(output) > _OUTPUT_MAX:
            raise AnswerTooLarge(
                f"helm {verb} wrote more than {_OUTPUT_MAX >> 20} MiB and was stopped"
            )
    return bytes(output)


async def _tail(source: StreamReader) -> str:
    """Read all output and return its end, because the error follows after warnings."""
    output = bytearray()
    while chunk := await source.read(_READ_BYTES):
        output += chunk
        del output[:-_STDERR_MAX]
    return output.decode(errors="replace")


async def _end(process: Process, term_seconds: float) -> None:
    """End the remaining processes of a group.

    SIGTERM lets helm record a release as failed.
    """
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(term_seconds):
                await _ended(process)
    _signal(process, signal.SIGKILL)
    # Otherwise a pipe that was not read to its end stays open.
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001
    await process.wait()


async def _ended(process: Process) -> None:
    """Wait until a process has ended.

    `Process.wait` also waits for its pipes, and a child may hold one open.
    """
    while process.returncode is None:  # noqa: ASYNC110 - asyncio has no event for it
        await asyncio.sleep(_LOOK_SECONDS)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _shielded(work: Awaitable[object]) -> None:
    """Finish an awaitable before raising the task's cancellation."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
