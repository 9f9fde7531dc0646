"""Runs a command in a container, connected to this terminal or to pipes."""

import asyncio
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from activities.pod_access import STDOUT, CommandStream
from client.engines.cluster_access import cluster_failures
from client.engines.pods import EnginePod
from client.output.terminal import unescaped
from fleet_client.errors import CommandFailed

_READ_BYTES = 1 << 15
_STDIN = 0


async def run_connected(
    pod: EnginePod,
    container: str,
    command: Sequence[str],
    *,
    stdin: bool,
    terminal: bool,
) -> int:
    """Run a command with this program's standard streams, and return its exit code.

    With `terminal`, this terminal passes every key to the command. Raise
    `CommandFailed` if the command did not run to its end.
    """
    with cluster_failures():
        async with pod.streams.command(
            pod.pod, container, command, stdin=stdin, tty=terminal
        ) as stream:
            with raw_terminal() if terminal else nullcontext():
                await _connect(stream, stdin=stdin, terminal=terminal)
    if stream.problem:
        raise CommandFailed(
            f"{pod.title}: {stream.problem}",
            next_step="check the command, and that the pod still runs",
        )
    return stream.exit_code


async def _connect(stream: CommandStream, *, stdin: bool, terminal: bool) -> None:
    sending = asyncio.create_task(_send_input(stream)) if stdin else None
    if terminal:
        await _follow_size(stream)
    try:
        async for channel, data in stream.output():
            _write(channel, data, raw=terminal)
    finally:
        if sending:
            sending.cancel()
        if terminal:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGWINCH)


def _write(channel: int, data: bytes, *, raw: bool) -> None:
    """Write output unchanged, except for control characters on a terminal without -t."""
    stream = sys.stdout if channel == STDOUT else sys.stderr
    if stream.isatty() and not raw:
        stream.write(data.decode(errors="replace"))
    else:
        unescaped(stream).buffer.write(data)
    stream.flush()


async def _send_input(stream: CommandStream) -> None:
    """Send standard input until its end."""
    received: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
    loop = asyncio.get_running_loop()

    def read() -> None:
        # A file has no readiness to wait for, so that a thread reads.
        while True:
            data = os.read(_STDIN, _READ_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(received.put(data), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the command has ended
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    while data := await received.get():
        await stream.send(data)
    await stream.end_input()


async def _follow_size(stream: CommandStream) -> None:
    """Send the size of this terminal now, and when it changes."""
    sending = set[asyncio.Task[None]]()

    def send() -> None:
        size = shutil.get_terminal_size()
        task = asyncio.create_task(stream.resize(size.columns, size.lines))
        sending.add(task)
        task.add_done_callback(sending.discard)

    send()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, send)


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Pass every key of this terminal on, and restore its modes at the end."""
    before = termios.tcgetattr(_STDIN)
    tty.setraw(_STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
