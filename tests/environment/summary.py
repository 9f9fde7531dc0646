"""The summary of a test run: random seeds, omitted tests, and testbed starts.

Processes of pytest-xdist send their data to the process that writes to the terminal.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import random_cases

# Maximum number of characters of the reason that is printed for a failed test.
_REASON_MAX = 300


class Summary:
    """A plugin that collects the data and prints the summary."""

    NAME = "modelplane-summary"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._starts: list[float] = []
        self._failed_starts: list[str] = []
        self._left_out: Counter[str] = Counter()
        self._left_out_by_lane: dict[str, Counter[str]] = {}
        self._files: dict[Path, str] = {}
        self._files_by_lane: dict[str, Counter[str]] = {}
        self._tests: set[str] = set()
        self._session: pytest.Session | None = None

    @classmethod
    def of(cls, config: pytest.Config) -> "Summary":
        plugin = config.pluginmanager.get_plugin(cls.NAME)
        assert isinstance(plugin, cls)
        return plugin

    def started(self, seconds: float) -> None:
        """Record a testbed start and its duration."""
        self._starts.append(seconds)

    def start_failed(self, reason: str) -> None:
        """Record a failed testbed start that is retried."""
        self._failed_starts.append(reason)

    def leave_out(self, reason: str, tests: int) -> None:
        """Record tests that cannot run on this machine, with the reason."""
        self._left_out[reason] += tests

    def leave_out_file(self, mark: str, file: Path) -> None:
        """Record a file that is not imported, because `mark` deselects all its tests."""
        self._files[file] = f"marked {mark}"

    def pytest_report_header(self) -> str:
        return random_cases.described()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        unwanted = re.findall(r"not (\w+)", self._config.option.markexpr)
        for item in items:
            found = (mark for mark in unwanted if item.get_closest_marker(mark))
            self._left_out[
                next((f"marked {mark}" for mark in found), "not chosen")
            ] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure immediately, because a run may be killed before its report."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if (
            report.failed
            and terminal is not None
            and not hasattr(self._config, "workeroutput")
        ):
            terminal.ensure_newline()
            reason = getattr(
                getattr(report.longrepr, "reprcrash", None),
                "message",
                str(report.longrepr),
            )
            shown = " ".join(reason.split())[:_REASON_MAX]
            terminal.write_line(f"FAILED {report.when} of {report.nodeid}: {shown}")

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._tests.update(ids)

    def pytest_runtest_logstart(self) -> None:
        """Show the number of tests of all lanes; pytest-xdist shows that of one
        process.
        """
        if self._session and self._tests:
            self._session.testscollected = len(self._tests)

    def pytest_sessionfinish(self) -> None:
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[self.NAME] = {
                "starts": self._starts,
                "failed": self._failed_starts,
                "left_out": dict(self._left_out),
                "files": dict(Counter(self._files.values())),
            }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        sent = getattr(node, "workeroutput", {}).get(self.NAME, {})
        self._starts += sent.get("starts", [])
        self._failed_starts += sent.get("failed", [])
        # All processes of a lane omit the same tests.
        lane = node.workerinput.get("lane", "")
        self._left_out_by_lane[lane] = Counter(sent.get("left_out", {}))
        self._files_by_lane[lane] = Counter(sent.get("files", {}))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        lines = []
        tests = sum(self._left_out_by_lane.values(), self._left_out)
        files = sum(self._files_by_lane.values(), Counter(self._files.values()))
        left_out = [_counted("file", files), _counted("test of other files", tests)]
        if any(left_out):
            said = ", ".join(each for each in left_out if each)
            runs = "`make test`, `make test-long` and `make lives`"
            lines.append(f"left out: {said}; {runs} together run all tests")
        if self._starts:
            seconds = ", ".join(f"{each:.0f} s" for each in self._starts)
            lines.append(f"testbeds ready: {len(self._starts)}, after {seconds}")
        lines += [
            f"testbed: a start failed and was repeated: {reason}"
            for reason in self._failed_starts
        ]
        if terminalreporter.stats.get("failed"):
            lines.append(random_cases.described())
        if lines:
            terminalreporter.section("this run")
            for line in lines:
                terminalreporter.write_line(line)


def _counted(what: str, counts: Counter[str]) -> str:
    """Return a count with its reasons; empty if the count is zero."""
    if not counts:
        return ""
    parts = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    first, _, rest = what.partition(" ")
    plural = first if counts.total() == 1 else f"{first}s"
    return f"{counts.total()} {' '.join(filter(None, (plural, rest)))} ({parts})"
