"""Where the time of a test run goes: a table, a JSON file, and a budget for each file.

python -m tests.environment.times NAME COMMAND...    run a command, and note its time under NAME

The processor time of a test covers its pytest process and all processes that ended during the
test. Other work on the machine hardly changes it, so its limit is fixed. The limit of wall time
grows with the load, which is the mean number of runnable processes per processor while the tests
ran. Parts that outlive a test (API servers, Temporal, workers) count only in the row of the whole
machine.
"""

import json
import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "times"
BUDGETS = ROOT / "tests" / "budgets.toml"
SLOWEST = 10
REMEDY = (
    "make its tests cheaper, split it, or name it in tests/budgets.toml with the reason"
)
GROUPS = ("real parts", "simulation", "others")


@dataclass(frozen=True)
class Spent:
    """Seconds of wall time and of processor time."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.wall + other.wall, self.cpu + other.cpu)

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.wall - other.wall, self.cpu - other.cpu)


def now() -> Spent:
    """Read both clocks of this process. Its child processes count after they ended."""
    used = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return Spent(time.monotonic(), sum(each.ru_utime + each.ru_stime for each in used))


@dataclass(frozen=True)
class Budgets:
    """The limits of files: a default, and named exceptions."""

    default: Spent
    files: Mapping[str, Spent]

    @classmethod
    def load(cls, path: Path | None = None) -> "Budgets":
        """Read the file of budgets. Raises KeyError or ValueError if it is malformed."""
        read = tomllib.loads((path or BUDGETS).read_text())
        default, files = read["default"], read.get("files", {})
        own = {name: Spent(**default | limits) for name, limits in files.items()}
        return cls(Spent(**default), own)

    def of(self, file: str) -> Spent:
        """Return the budget of a file. The budget of a folder is the largest budget in it."""
        if not file.endswith("/"):
            return self.files.get(file, self.default)
        inside = [each for name, each in self.files.items() if name.startswith(file)]
        return max(inside, key=lambda each: each.wall, default=self.default)

    def exceeded(self, files: Mapping[str, Spent], load: float) -> list[str]:
        """List the files over their budget, with a remedy.

        `load` is the number of runnable processes per processor.
        """
        found = []
        for file, spent in sorted(files.items()):
            allowed = self.of(file)
            wall = allowed.wall * max(1.0, load)
            if spent.cpu > allowed.cpu:
                used = f"{spent.cpu:.0f} s of a processor"
                found.append(f"{file} took {used} and may take {allowed.cpu:g} s")
            if spent.wall > wall:
                took = f"{spent.wall:.0f} s"
                found.append(
                    f"{file} took {took} and may take {wall:.0f} s at this load"
                )
        return [f"{each}; {REMEDY}" for each in found]


@dataclass
class Table:
    """The time of a run: the sum over its pytest processes."""

    collection: Spent = field(default_factory=Spent)
    groups: dict[str, Spent] = field(default_factory=dict)
    files: dict[str, Spent] = field(default_factory=dict)
    tests: dict[str, int] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def add(self, file: str, group: str, spent: Spent, load: float) -> None:
        self.groups[group] = self.groups.get(group, Spent()) + spent
        self.files[file] = self.files.get(file, Spent()) + spent
        self.tests[group] = self.tests.get(group, 0) + 1
        self.loads.append(load)

    def merge(self, sent: Mapping[str, Any]) -> None:
        """Add the table that another process sent with `wire`."""
        self.collection += Spent(*sent["collection"])
        for name, spent in sent["groups"].items():
            self.groups[name] = self.groups.get(name, Spent()) + Spent(*spent)
        for name, spent in sent["files"].items():
            self.files[name] = self.files.get(name, Spent()) + Spent(*spent)
        for name, count in sent["tests"].items():
            self.tests[name] = self.tests.get(name, 0) + count
        self.loads += sent["loads"]

    def wire(self) -> dict[str, Any]:
        """Return the table as types that pytest-xdist can send."""
        return {
            "collection": (self.collection.wall, self.collection.cpu),
            "groups": {
                name: (each.wall, each.cpu) for name, each in self.groups.items()
            },
            "files": {name: (each.wall, each.cpu) for name, each in self.files.items()},
            "tests": self.tests,
            "loads": self.loads,
        }

    @property
    def load(self) -> float:
        """Return the mean number of runnable processes per processor."""
        return sum(self.loads) / len(self.loads) if self.loads else 0.0

    def rows(
        self, before: Mapping[str, Spent], machine: Spent
    ) -> list[tuple[str, Spent, int]]:
        """Return the rows of the table: name, time and number of tests."""
        rows = [(name, spent, 0) for name, spent in before.items()]
        rows.append(("collection", self.collection, 0))
        present = [name for name in GROUPS if name in self.groups]
        rows += [(name, self.groups[name], self.tests[name]) for name in present]
        rows.append(("whole machine", machine, sum(self.tests.values())))
        return rows

    def slowest(self) -> Iterable[tuple[str, Spent]]:
        """Return the slowest files."""
        return sorted(self.files.items(), key=lambda item: -item[1].wall)[:SLOWEST]


class Times:
    """A plugin that measures each test.

    In the process with the terminal it prints the table and checks the budgets.
    """

    NAME = "modelplane-times"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._table = Table()
        self._began = now()
        self._machine = _busy()
        self._exceeded: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            # The imports of pytest and its plugins count as collection, because a
            # process without tests would not need them.
            self._table.collection += Spent(now().wall - self._began.wall, now().cpu)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        began = now()
        try:
            return (yield)
        finally:
            file = item.nodeid.partition("::")[0]
            load = os.getloadavg()[0] / (os.cpu_count() or 1)
            self._table.add(file, _group(item, file), now() - began, load)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[self.NAME] = self._table.wire()
        elif self._config.option.budgets:
            self._exceeded = Budgets.load().exceeded(
                self._table.files, self._table.load
            )
            if self._exceeded and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        sent = getattr(node, "workeroutput", {}).get(self.NAME)
        if sent:
            self._table.merge(sent)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        if not self._config.option.budgets:
            return
        before = _noted()
        machine = Spent(now().wall - self._began.wall, _busy() - self._machine)
        rows = self._table.rows(before, machine)
        terminalreporter.section("where the time went")
        terminalreporter.write_line(f"{'':<24}{'tests':>7}{'wall s':>9}{'CPU s':>9}")
        for name, spent, count in rows:
            row = f"{name:<24}{count or '':>7}{spent.wall:>9.0f}{spent.cpu:>9.0f}"
            terminalreporter.write_line(row)
        terminalreporter.write_line(
            f"The {len(self._table.files)} files ran beside each other, so their wall times add up "
            f"to more than that of the run. Load per processor: {self._table.load:.1f}. "
            "Slowest files:"
        )
        for file, spent in self._table.slowest():
            terminalreporter.write_line(
                f"  {spent.wall:>7.0f}{spent.cpu:>7.0f}  {file}"
            )
        for line in self._exceeded:
            terminalreporter.write_line(f"OVER BUDGET: {line}", red=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        document = {
            "rows": {
                name: {**asdict(spent), "tests": count} for name, spent, count in rows
            },
            "files": {
                name: asdict(spent) for name, spent in sorted(self._table.files.items())
            },
            "load": self._table.load,
            "over": self._exceeded,
        }
        (FOLDER / "run.json").write_text(json.dumps(document, indent=1) + "\n")


def _group(item: pytest.Item, file: str) -> str:
    if item.get_closest_marker("testbed"):
        return "real parts"
    return "simulation" if file.startswith("tests/simulation/") else "others"


def _busy() -> float:
    """Return the busy seconds of this machine's processors; 0 without /proc/stat."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system = (int(each) for each in stat.read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _noted() -> dict[str, Spent]:
    """Read and delete the notes of the commands that ran before this run."""
    notes = [file for file in sorted(FOLDER.glob("*.json")) if file.stem != "run"]
    found = {file.stem: Spent(**json.loads(file.read_text())) for file in notes}
    for file in notes:
        file.unlink()
    return found


def main(name: str, *command: str) -> int:
    """Run a command and note its time for the table of the run that follows."""
    began = now()
    code = subprocess.run(command, check=False).returncode
    spent = now() - began
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(asdict(spent)))
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
