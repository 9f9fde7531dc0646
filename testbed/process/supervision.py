"""Start the supervisor, hand it the wanted processes, and end it with everything it started.

The other side of `supervisor.py`: what a command does to a supervisor that outlives it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from testbed.process.processes import SUPERVISOR, Identity, ProcessFiles, ProcessSpec
from testbed.waiting import StartFailed, tail, wait_until

STOP_SECONDS = 60
KILLED_SECONDS = 10
STARTS_MAX = 8
"""A process that was started this often without becoming ready will not become ready; so many starts take about half a minute."""


class Supervision:
    """The supervisor of one home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.files = ProcessFiles(home)

    def alive(self) -> bool:
        """Whether the supervisor runs."""
        return self.files.identity(SUPERVISOR) is not None

    def start(self) -> None:
        """Start a supervisor that wants nothing yet. Raises StartFailed."""
        for folder in (self.files.wanted, self.files.actual):
            rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "testbed.process.supervisor", str(self._home)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._home, stdin=subprocess.DEVNULL)
        if answer.returncode != 0:
            raise StartFailed(f"the supervisor did not start: {answer.stdout}{answer.stderr}")

    def want(self, specs: Iterable[ProcessSpec]) -> None:
        """Have these processes run (or end, where a spec says so). Raises StartFailed when there is no supervisor."""
        for spec in specs:
            self.files.want(spec)
        supervisor = self.files.identity(SUPERVISOR)
        if supervisor is None:
            raise StartFailed(self.failure_of(SUPERVISOR, "has ended"))
        os.kill(supervisor.pid, signal.SIGHUP)

    def wait_for(self, name: str, ready: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Return when `ready()` holds; raise StartFailed with the log of process `name` when it takes too long or ends again and again."""

        def settled() -> bool:
            return ready() or self.files.starts(name) >= STARTS_MAX

        wait_until(settled, seconds, lambda: self.failure_of(name, otherwise))
        if not ready():
            raise StartFailed(self.failure_of(name, f"{otherwise} and ended {STARTS_MAX - 1} times"))

    def stop(self) -> None:
        """End the supervisor and everything of this home, also what a killed supervisor left."""
        supervisor = self.files.identity(SUPERVISOR)
        # Noted before anything ends: the notes go with the processes.
        children = [identity for name in self.files.specs() if (identity := self.files.identity(name))]
        if supervisor is not None:
            with suppress(ProcessLookupError):
                os.kill(supervisor.pid, signal.SIGTERM)
            with suppress(StartFailed):
                wait_until(lambda: not supervisor.alive(), STOP_SECONDS, lambda: "")
        for identity in [supervisor, *children]:
            _kill(identity)
        left = [identity for identity in [supervisor, *children] if identity]
        wait_until(
            lambda: not any(identity.alive() for identity in left),
            KILLED_SECONDS,
            lambda: f"cannot be ended: {', '.join(f'pid {each.pid}' for each in left if each.alive())}; see `ps` for what they are",
        )

    def failure_of(self, name: str, what: str) -> str:
        """Describe what is wrong with a process, with the end of its log and the next step."""
        log = self._home / "logs" / f"{name}.log"
        return f"{name} {what}; the end of {log}:\n{tail(log)}\nRun `up` again once the cause is gone; `down --wipe` starts afresh."


def _kill(identity: Identity | None) -> None:
    if identity and identity.alive():
        with suppress(ProcessLookupError):
            # Each of ours leads its own group, so what it started is reached too.
            os.killpg(identity.pid, signal.SIGKILL)
