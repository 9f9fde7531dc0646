"""Start the supervisor, send it the desired processes, and stop everything.

Commands use this module. `supervisor.py` is the process itself, which outlives them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from testbed.process.processes import (
    SUPERVISOR,
    ProcessFiles,
    ProcessIdentity,
    ProcessSpec,
)
from testbed.waiting import StartFailed, tail, wait_until

STOP_SECONDS = 60
KILLED_SECONDS = 10
STARTS_MAX = 8
"""The number of starts after which a process without readiness counts as failed.

These starts take about half a minute.
"""


class Supervision:
    """The supervisor of one testbed's home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.files = ProcessFiles(home)

    def alive(self) -> bool:
        """Return whether the supervisor runs."""
        return self.files.identity(SUPERVISOR) is not None

    def start(self) -> None:
        """Start a supervisor without processes.

        Raise StartFailed if it does not start.
        """
        for folder in (self.files.wanted, self.files.actual):
            rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "testbed.process.supervisor", str(self._home)]
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
        )
        if answer.returncode != 0:
            raise StartFailed(
                f"the supervisor did not start: {answer.stdout}{answer.stderr}"
            )

    def want(self, specs: Iterable[ProcessSpec]) -> None:
        """Store these desired processes, and notify the supervisor.

        The supervisor starts or ends them. Raise StartFailed if there is no supervisor.
        """
        for spec in specs:
            self.files.want(spec)
        supervisor = self.files.identity(SUPERVISOR)
        if supervisor is None:
            raise StartFailed(self.failure_of(SUPERVISOR, "has ended"))
        os.kill(supervisor.pid, signal.SIGHUP)

    def wait_for(
        self, name: str, ready: Callable[[], bool], seconds: float, otherwise: str
    ) -> None:
        """Wait until `ready()` is true.

        Raise StartFailed with the log of process `name` after a timeout, or if the
        process keeps ending.
        """

        def settled() -> bool:
            return ready() or self.files.starts(name) >= STARTS_MAX

        wait_until(settled, seconds, lambda: self.failure_of(name, otherwise))
        if not ready():
            raise StartFailed(
                self.failure_of(name, f"{otherwise} and ended {STARTS_MAX - 1} times")
            )

    def stop(self) -> None:
        """Stop the supervisor and all processes of this home.

        This includes the processes of a supervisor that was killed.
        """
        supervisor = self.files.identity(SUPERVISOR)
        # List the children first, because the supervisor deletes the files of its
        # processes.
        children = [
            identity
            for name in self.files.specs()
            if (identity := self.files.identity(name))
        ]
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
            lambda: (
                "could not be stopped: "
                f"{', '.join(f'pid {each.pid}' for each in left if each.alive())}; "
                "examine them with `ps`"
            ),
        )

    def failure_of(self, name: str, what: str) -> str:
        """Return a message about a process, with the end of its log and the next step."""
        log = self._home / "logs" / f"{name}.log"
        return (
            f"{name} {what}; the end of {log}:\n{tail(log)}\nRun `up` again once the "
            "cause is gone; `down --wipe` starts afresh."
        )


def _kill(identity: ProcessIdentity | None) -> None:
    if identity and identity.alive():
        with suppress(ProcessLookupError):
            # Each process leads its own process group, so the signal reaches its
            # children too.
            os.killpg(identity.pid, signal.SIGKILL)
