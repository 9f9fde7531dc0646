"""pyhelm3's command line, run in a way that can be stopped and bounded (rules H1, H2, H10, H14).

pyhelm3 runs helm below a shell: a cancellation ends the shell, and helm goes on. Here helm is started itself, at the head of a process
group that is ended with it. Its environment is ours and not that of the worker, and nothing secret is on a command line.
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
"""How long one helm run may take (ruling 78)."""
TERM_SECONDS = 20.0
HISTORY_MAX = 10
# What helm writes of a release is its manifest at most, of which a Secret of 1 MiB holds the compressed form.
_OUTPUT_MAX = 64 << 20
_STDERR_MAX = 64 << 10
_READ_BYTES = 1 << 16
# How often an ended helm is looked for: a run takes seconds.
_LOOK_SECONDS = 0.05
# What a program needs to run and to reach a registry; a HELM_* of the worker's environment would change what is installed.
_INHERITED = ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# How JSON escapes a character above U+FFFF; before it, backslashes that are escaped themselves.
_SURROGATES = re.compile(rb"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


class HelmFailed(Exception):
    """Helm ended with an error, or was ended because its time was up. `stderr` may hold secrets: it is not in the text."""

    def __init__(self, verb: str, code: int | None, stderr: str) -> None:
        super().__init__(f"helm {verb} failed with exit code {code}")
        self.stderr = stderr


def environment(home: Path) -> dict[str, str]:
    """Give the environment of a helm process whose home and caches are below `home` (H14)."""
    inherited = {name: value for name in _INHERITED if (value := os.environ.get(name)) is not None}
    proxies = {name: value for each in _PROXIES for name in (each, each.lower()) if (value := os.environ.get(name)) is not None}
    folders = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    return {**inherited, **proxies, **folders, "HOME": str(home), "KUBECACHEDIR": str(home / "kube"), "HELM_NO_PLUGINS": "1"}


class HelmCommand(Command):  # type: ignore[misc] # the library is untyped
    """The helm of one cluster, or with an empty name of none. `prepare` runs before each process: it sees to a fresh credential."""

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
            # Helm refuses a number without a unit.
            default_timeout=f"{operation_seconds}s",
            history_max_revisions=HISTORY_MAX,
        )
        self._variables = dict(variables)
        self._limits = limits
        self._cluster = cluster
        self._prepare = prepare
        self._seconds = operation_seconds
        self._term_seconds = term_seconds

    async def run(self, command: list[Any], input: bytes | None = None) -> bytes:  # noqa: A002 - the library's name
        """Run helm with some arguments and give what it writes. Raises HelmFailed and AnswerTooLarge.

        When it returns or raises, also because it is cancelled, no process of the run is alive.
        """
        arguments = [str(part) for part in command]
        if self._kubeconfig:
            arguments += ["--kubeconfig", str(self._kubeconfig)]
        async with self._limits.turn(self._cluster):
            if self._prepare:
                await self._prepare()
            log.debug("running helm", cluster=self._cluster, command=arguments[0])
            return await self._run(arguments, None if input is None else _as_yaml(input))

    async def roll_back(self, name: str, namespace: str, revision: int, *, on_server: bool) -> None:
        """Go back to a revision, also where someone changed a field by hand: pyhelm3 has no option for that. Raises as `run` does."""
        bounds = ["--history-max", HISTORY_MAX, "--timeout", f"{self._seconds}s"]
        conflicts = ["--server-side=true", "--force-conflicts"] if on_server else []
        await self.run(["rollback", name, revision, "--namespace", namespace, *bounds, *conflicts])

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
            # If a start is cancelled, asyncio kills helm alone, and its children would live on.
            await _shielded(start)
            stdout, stderr = await self._talk(start.result(), arguments[0], given)
        finally:
            if not start.exception():
                await _shielded(_end(start.result(), self._term_seconds))
        process = start.result()
        if process.returncode == 0:
            return stdout
        raise HelmFailed(arguments[0], process.returncode, stderr)

    async def _talk(self, process: Process, verb: str, given: bytes | None) -> tuple[bytes, str]:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        try:
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as parts:
                stdout = parts.create_task(_whole(process.stdout, verb))
                stderr = parts.create_task(_tail(process.stderr))
                parts.create_task(_feed(process, given))
                parts.create_task(process.wait())
        except TimeoutError:
            raise HelmFailed(verb, None, f"helm {verb} did not end within {self._seconds} s and was stopped") from None
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return stdout.result(), stderr.result()


def _as_yaml(values: bytes) -> bytes:
    """Rewrite JSON so that helm can read it, which does as YAML: there, half of a surrogate pair is no character, also when escaped."""

    def character(found: re.Match[bytes]) -> bytes:
        return found[1] + bytes.fromhex((found[2] + found[3]).decode()).decode("utf-16-be").encode()

    return _SURROGATES.sub(character, values)


async def _feed(process: Process, given: bytes | None) -> None:
    if process.stdin is None or given is None:
        return
    # A helm that ends before it has read its values says why itself.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()


async def _whole(source: StreamReader, verb: str) -> bytes:
    output = bytearray()
    while chunk := await source.read(_READ_BYTES):
        output += chunk
        if len(output) > _OUTPUT_MAX:
            raise AnswerTooLarge(f"helm {verb} wrote more than {_OUTPUT_MAX >> 20} MiB and was stopped")
    return bytes(output)


async def _tail(source: StreamReader) -> str:
    """Read all and keep the end: the error comes last, after warnings."""
    output = bytearray()
    while chunk := await source.read(_READ_BYTES):
        output += chunk
        del output[:-_STDERR_MAX]
    return output.decode(errors="replace")


async def _end(process: Process, term_seconds: float) -> None:
    """End what is left of a process group: helm may record a release as failed before it is killed."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(term_seconds):
                await _ended(process)
    _signal(process, signal.SIGKILL)
    # A pipe that was not read to its end stays open otherwise.
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - asyncio has no other way
    await process.wait()


async def _ended(process: Process) -> None:
    """Wait until a process has ended. `Process.wait` also waits for its pipes, and a child may hold one open."""
    while process.returncode is None:  # noqa: ASYNC110 - no event says that it holds
        await asyncio.sleep(_LOOK_SECONDS)


def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _shielded(work: Awaitable[object]) -> None:
    """Finish some work also when the task is cancelled meanwhile, once or more often; then the cancellation goes on."""
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
