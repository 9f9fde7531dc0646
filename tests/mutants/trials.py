"""Run tests against mutants: a pytest session collects once, and each mutant lives in a fork of it.

The fork runs only the mutant's tests, up to the first failure. A mutant outside of functions runs
in a new process, which imports the changed module.
"""

import ast
import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutants.edits import ROOT
from tests.mutants.swapping import ChangedModule, NotSwappableError, swap

# Processor time for the tests of one mutant. The limit of wall time is WAITING times as long, so
# that the load of the machine does not decide.
LIMIT_SECONDS = 60.0
WAITING = 10
NOT_SWAPPABLE, NOT_ENDED, PROCESS_ENDED = "not swappable", "(did not end)", "(the process ended)"
NOT_COLLECTED = "(not collected)"
CASES = "MODELPLANE_TEST_CASES"
FEW_CASES = "0.05"
LEFT_OUT = "not testbed and not oracle"


@dataclass
class Trial:
    """A mutant, the tests that may kill it, and the killer, which is empty for a survivor.

    A mutant is undecided if its tests did not end in time, or never ran, or if the failed test
    also fails without it.
    """

    module: str
    symbol: str
    tree: ast.Module
    title: str
    tests: Sequence[str]
    killer: str = ""
    undecided: bool = False
    tried: int = 0
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """The outcome in one word."""
        return "undecided" if self.undecided else "killed" if self.killer else "SURVIVED"


class Trials:
    """A pytest plugin that runs trials in place of the collected tests."""

    def __init__(self, trials: Iterable[Trial], limit: float = LIMIT_SECONDS) -> None:
        self._trials, self._limit = list(trials), limit
        self._passing: dict[str, bool] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant."""
        for number, trial in enumerate(self._trials, 1):
            started = time.monotonic()
            self._try(session, trial)
            trial.seconds = time.monotonic() - started
            spent = f"{trial.seconds:6.1f} s {trial.tried:4} tests"
            count = f"[{number}/{len(self._trials)}]"
            print(f"{count} {trial.verdict:9} {spent}  {trial.title}  {trial.killer}", flush=True)
        return True

    def _try(self, session: pytest.Session, trial: Trial) -> None:
        items = _chosen(session.items, trial.tests)
        trial.tried = len(items)
        killer = _in_a_fork(session, items, trial, self._limit) if items else ""
        if killer == NOT_SWAPPABLE:
            killer = _in_a_process(trial, self._limit)
        trial.killer = killer
        trial.undecided = killer in {NOT_ENDED, PROCESS_ENDED, NOT_COLLECTED} or (
            "::" in killer and not self._passes(session, killer)
        )

    def _passes(self, session: pytest.Session, test: str) -> bool:
        """Whether a killer passes without a mutant."""
        if test not in self._passing:
            items = [item for item in session.items if item.nodeid == test]
            self._passing[test] = not _in_a_fork(session, items, None, self._limit)
        return self._passing[test]


def run(trials: Sequence[Trial], *, limit: float = LIMIT_SECONDS) -> int:
    """Try mutants, and return pytest's exit code."""
    os.environ.setdefault(CASES, FEW_CASES)
    files = sorted({test.partition("::")[0] for trial in trials for test in trial.tests})
    return int(
        pytest.main(
            ["-qq", "--no-summary", "-s", "-p", "no:cacheprovider", "-m", LEFT_OUT, *files],
            plugins=[Trials(trials, limit)],
        )
    )


def _chosen(items: Sequence[pytest.Item], tests: Sequence[str]) -> list[pytest.Item]:
    """Choose the items of tests, in their order. A test without parameters has all its items."""
    chosen: list[pytest.Item] = []
    by_prefix: dict[str, list[pytest.Item]] = {}
    for item in items:
        file, _, name = item.nodeid.partition("::")
        for prefix in {file, item.nodeid, f"{file}::{name.partition('[')[0]}"}:
            by_prefix.setdefault(prefix, []).append(item)
    seen = set()
    for test in tests:
        for item in by_prefix.get(test, ()):
            if item.nodeid not in seen:
                seen.add(item.nodeid)
                chosen.append(item)
    return chosen


def _in_a_fork(
    session: pytest.Session, items: Sequence[pytest.Item], trial: Trial | None, limit: float
) -> str:
    """Run items in a fork, with a mutant. Return the id of the first failed test, or a reason."""
    with tempfile.TemporaryFile() as answer:
        process = os.fork()
        if not process:
            _limit_processor(limit)
            _run_and_exit(session, items, trial, answer.fileno())
        if not _ended(process, limit):
            return NOT_ENDED
        answer.seek(0)
        content = answer.read()
        if not content:
            return PROCESS_ENDED
        return str(pickle.loads(content))  # noqa: S301 - our own fork wrote it


def _run_and_exit(
    session: pytest.Session, items: Sequence[pytest.Item], trial: Trial | None, answer: int
) -> None:
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    failed = PROCESS_ENDED
    try:
        if trial is not None:
            swap(trial.module, trial.symbol, trial.tree)
        failed = _first_failed(session, items)
    except NotSwappableError:
        failed = NOT_SWAPPABLE
    finally:
        os.write(answer, pickle.dumps(failed))
        os._exit(0)


def _first_failed(session: pytest.Session, items: Sequence[pytest.Item]) -> str:
    watcher = _Watcher()
    session.config.pluginmanager.register(watcher)
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if watcher.failed:
            return watcher.failed
    return ""


class _Watcher:
    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _limit_processor(limit: float) -> None:
    """Let the kernel end this process with SIGXCPU after that processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (round(limit), round(limit) + 1))


def _ended(process: int, limit: float) -> bool:
    """Wait for a process. Return False if it reached a limit."""
    deadline = time.monotonic() + WAITING * limit
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            _kill_group(process)
            return not (
                os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}
            )
        time.sleep(0.02)
    _kill_group(process)
    os.waitpid(process, 0)
    return False


def _kill_group(process: int) -> None:
    """Kill a process and what it started, such as the servers of tests that it left early."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _in_a_process(trial: Trial, limit: float) -> str:
    """Run the tests of a mutant in a process that has not imported its module."""
    with tempfile.TemporaryDirectory() as folder:
        handed = Path(folder, "trial")
        handed.write_bytes(pickle.dumps(trial))
        command = [sys.executable, "-m", "tests.mutants.trials", str(handed)]
        try:
            subprocess.run(
                command, cwd=ROOT, timeout=WAITING * limit, capture_output=True, check=False
            )
        except subprocess.TimeoutExpired:
            return NOT_ENDED
        found = handed.with_suffix(".failed")
        return found.read_text() if found.exists() else PROCESS_ENDED


def _main(handed: Path) -> None:
    trial: Trial = pickle.loads(handed.read_bytes())  # noqa: S301 - the parent process wrote it
    ChangedModule(trial.module, trial.tree).install()
    watcher = _Watcher()
    command = ["-q", "-x", "-p", "no:cacheprovider", "-m", LEFT_OUT, *trial.tests]
    code = pytest.main(command, plugins=[watcher])
    failed = watcher.failed or (
        "" if code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} else NOT_COLLECTED
    )
    handed.with_suffix(".failed").write_text(failed)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
