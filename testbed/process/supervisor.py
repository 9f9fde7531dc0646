"""The supervisor of a testbed's processes: `python -m testbed.process.supervisor HOME`.

It detaches itself, so a fleet outlives the shell that started it. It is the only
parent, and the kernel kills each child when the supervisor dies, so even `kill -9`
leaves no orphan. It has one thread, waits for signals with `sigtimedwait`, and never
polls, with one exception: `MODELPLANE_TESTBED_OWNER` names a process with which all of
them end, so that a killed test run leaves no testbed.

On HUP it reads the desired processes again. On TERM and INT it stops all of them in
stages. It restarts a child that exits, with growing pauses.
"""

import ctypes
import fcntl
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.documents import read_json
from testbed.process.processes import (
    OWNER_VARIABLE,
    SUPERVISOR,
    ProcessFiles,
    ProcessIdentity,
    ProcessSpec,
    start_time,
)

SIGNALS = {signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGINT}
BACKOFF_SECONDS_MIN = 0.25
BACKOFF_SECONDS_MAX = 15.0
STEADY_SECONDS = 30.0
"""A child that ran this long no longer counts as failing."""
STOP_SECONDS = 8.0
"""How long a child may take to end after SIGTERM before it is killed."""
LOOK_SECONDS = 3600.0
"""The limit of one wait in the kernel. Signals wake the loop earlier."""
OWNER_SECONDS = 5.0
"""The pause between two looks at the owner."""
LOG_BYTES_MAX = 20 << 20
PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29
TIMER_SLACK_NANOSECONDS = 50_000_000
"""How much later than asked the kernel may wake a child that waits for a time.

An idle control plane has hundreds of short timers. Woken together, they take a third of
the processor time. Messages still wake a child at once.
"""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Child:
    """One supervised process, its failures and its deadlines."""

    spec: ProcessSpec
    process: "subprocess.Popen[bytes] | None" = None
    started: float = 0.0
    failures: int = 0
    start_at: float = 0.0
    kill_at: float | None = None


class Supervisor:
    """The loop. `run` returns when all processes have ended."""

    def __init__(self, home: Path, owner: ProcessIdentity | None = None) -> None:
        self._home = home
        self._owner = owner
        self._files = ProcessFiles(home)
        self._children: dict[str, Child] = {}
        self._pid = os.getpid()
        self._ending = False

    def run(self) -> None:
        """Supervise until SIGTERM, SIGINT, or the end of the owner."""
        while self._owner is None or self._owner.alive():
            self._look()
            received = signal.sigtimedwait(SIGNALS, self._patience())
            if received is not None and received.si_signo in (
                signal.SIGTERM,
                signal.SIGINT,
            ):
                break
            self._collect()
        self._end_all()

    def _look(self) -> None:
        now = time.monotonic()
        specs = self._files.specs()
        for name, spec in specs.items():
            child = self._children.setdefault(name, Child(spec))
            child.spec = spec
            if spec.stop_signal is not None:
                self._end(child, spec.stop_signal)
            elif child.process is None and now >= child.start_at:
                self._start(child)
        for name in [name for name in self._children if name not in specs]:
            self._end(self._children[name], signal.SIGTERM)

    def _patience(self) -> float:
        """Return the seconds until the next action that no signal triggers."""
        now = time.monotonic()
        dues = [
            child.kill_at
            for child in self._children.values()
            if child.kill_at is not None
        ]
        if not self._ending:
            dues += [
                child.start_at
                for child in self._children.values()
                if child.process is None
            ]
        longest = OWNER_SECONDS if self._owner else LOOK_SECONDS
        return min(longest, max(0.0, min(dues, default=math.inf) - now))

    def _start(self, child: Child) -> None:
        log = self._home / "logs" / f"{child.spec.name}.log"
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as out:
            try:
                child.process = subprocess.Popen(
                    list(child.spec.argv),
                    env=os.environ | dict(child.spec.environment),
                    cwd=self._home,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    preexec_fn=self._before_exec,  # noqa: PLW1509 - there is one thread
                )
            except OSError as error:
                out.write(f"cannot be started: {error}\n".encode())
                self._failed(child)
                return
        child.started = time.monotonic()
        child.kill_at = None
        self._files.note(
            child.spec.name,
            ProcessIdentity(child.process.pid, start_time(child.process.pid) or 0),
            child.failures + 1,
        )

    def _before_exec(self) -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _libc.prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NANOSECONDS)
        if os.getppid() != self._pid:  # the supervisor died before prctl took effect
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _collect(self) -> None:
        for name, child in list(self._children.items()):
            if child.process is None:
                continue
            code = child.process.poll()
            if code is None:
                if child.kill_at is not None and time.monotonic() >= child.kill_at:
                    _signal_group(child.process.pid, signal.SIGKILL)
                    child.kill_at = math.inf
                continue
            child.process = None
            if child.kill_at is not None:
                self._files.forget(name)
                del self._children[name]
            else:
                print(f"{name} ended with {code}", flush=True)
                self._failed(child)

    def _failed(self, child: Child) -> None:
        steady = (
            child.process is None
            and time.monotonic() - child.started > STEADY_SECONDS
            and child.started > 0
        )
        child.failures = 0 if steady else child.failures + 1
        child.start_at = time.monotonic() + min(
            BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2**child.failures
        )

    def _end(self, child: Child, number: int) -> None:
        """Send a child its signal once.

        Forget the child at once if it does not run.
        """
        if child.process is None:
            self._files.forget(child.spec.name)
            self._children.pop(child.spec.name, None)
        elif child.kill_at is None:
            child.kill_at = time.monotonic() + STOP_SECONDS
            _signal_group(child.process.pid, number)

    def _end_all(self) -> None:
        self._ending = True
        for stage in sorted(
            {child.spec.stage for child in self._children.values()}, reverse=True
        ):
            for child in [
                child for child in self._children.values() if child.spec.stage == stage
            ]:
                self._end(child, signal.SIGTERM)
            while any(child.spec.stage == stage for child in self._children.values()):
                signal.sigtimedwait({signal.SIGCHLD}, self._patience())
                self._collect()


def _signal_group(pid: int, number: int) -> None:
    # Each child leads its own process group, so the signal reaches its helpers too.
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return  # the process has just ended by itself


def _owner() -> ProcessIdentity | None:
    """Return the process with which the testbed ends, or None if it outlives them all."""
    if not (owner := int(os.environ.get(OWNER_VARIABLE, "0"))):
        return None
    return ProcessIdentity(owner, start_time(owner) or 0)


def detach(body: Callable[[], None]) -> None:
    """Run `body` in a process without a terminal and a parent.

    Return in the caller once that process runs.
    """
    if os.fork():
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    body()
    os._exit(0)


def main() -> int:
    """Become the supervisor of the testbed in `argv[1]`."""
    home = Path(sys.argv[1]).resolve()
    files = ProcessFiles(home)
    for folder in (home / "logs", files.wanted, files.actual):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The process holds the lock until it ends, and the detached process inherits it. A
    # second supervisor of the same home stops here.
    lock = (home / "supervisor.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(
            f"a supervisor already runs in {home}: "
            f"{read_json(files.actual / f'{SUPERVISOR}.json')}",
            file=sys.stderr,
        )
        return 1
    ready, written = os.pipe()

    def supervise() -> None:
        os.close(ready)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        log = os.open(
            home / "logs" / f"{SUPERVISOR}.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o600,
        )
        os.dup2(log, 1)
        os.dup2(log, 2)
        files.note(
            SUPERVISOR, ProcessIdentity(os.getpid(), start_time(os.getpid()) or 0)
        )
        os.close(written)
        Supervisor(home, _owner()).run()
        files.forget(SUPERVISOR)

    detach(supervise)
    os.close(written)
    os.read(ready, 1)  # end of file, after the detached process has written its pid
    return 0


if __name__ == "__main__":
    sys.exit(main())
