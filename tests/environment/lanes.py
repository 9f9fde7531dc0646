"""Lanes: each process of pytest-xdist collects and runs the files of one lane.

| Lane | Files | Testbed |
|---|---|---|
| `computing` | no test on real parts; the tests keep a processor busy | none |
| `shared` | marked `testbed("shared")`: each test works in its own namespaces | one for the lane |
| `own` | others with tests on real parts, which stop parts or count objects | one per process |

Tests on real parts wait most of the time, so `make test` runs five processes, also on a machine
with two processors.
No process collects the files of another lane. Within a lane, a free process takes the next unit: a
test, a file whose tests share a fixture of the module, or a folder whose tests share an expensive
fixture of the session.

`pytest -n auto --lanes computing=2,shared=3,own=3` starts eight processes. Without `--lanes`,
pytest-xdist distributes the tests.
"""

import functools
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.environment.times import Budgets

LANES = ("computing", "shared", "own")
# The tests of each of these folders share a testbed of their own, so one process runs the folder.
FOLDERS = (
    "tests/activities/stack/",
    "tests/testbed/dataplane/",
    "tests/testbed/request_path/",
)
ROOT = Path(__file__).parents[2]
_OF_SEVERAL_TESTS = re.compile(r'scope="(module|package|class)"')
# A process runs a test only when it knows the one after it.
KNOWN_AHEAD = 2


def parsed(text: str) -> dict[str, int]:
    """Parse `computing=2,own=3` to the processes of each lane. Raises pytest.UsageError."""
    try:
        counts = {
            lane: int(count)
            for lane, count in (each.split("=") for each in text.split(","))
        }
    except ValueError:
        counts = {}
    if not counts or not set(counts) <= set(LANES):
        raise pytest.UsageError(
            f"--lanes {text}: write it as computing=2,shared=3,own=3"
        )
    return {lane: count for lane, count in counts.items() if count > 0}


def lane_of_process(number: int, counts: Mapping[str, int]) -> str:
    """Return the lane of the process with a number."""
    lanes = [lane for lane, count in counts.items() for _ in range(count)]
    return lanes[number % len(lanes)]


def lane_of_file(file: Path, counts: Mapping[str, int]) -> str:
    """Return the lane that runs a file.

    Without processes in its lane, the file goes to `own`, which can run every file.
    """
    text = _text(file)
    real_parts = "shared" if 'mark.testbed("shared"' in text else "own"
    lane = real_parts if "mark.testbed" in text else "computing"
    return next(
        each for each in (lane, "own", "computing", "shared") if counts.get(each)
    )


@functools.cache
def _text(file: Path) -> str:
    return file.read_text()


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Distributes the units of each lane to its processes, starting with the largest budgets."""

    def __init__(
        self,
        config: pytest.Config,
        log: Any,
        counts: Mapping[str, int],
        root: Path = ROOT,
    ) -> None:
        super().__init__(config, log)
        self._counts = counts
        self._root = root
        self._budgets = Budgets.load()
        self._known: Mapping[WorkerController, frozenset[str]] = {}

    def schedule(self) -> None:
        """Make the units from all collections; each process knows only the tests of its lane."""
        if self.collection is None:
            collections = self.registered_collections
            self._known = {
                node: frozenset(tests) for node, tests in collections.items()
            }
            tests = dict.fromkeys(chain.from_iterable(collections.values()))
            self.collection: list[str] | None = list(tests)
            units: dict[str, dict[str, bool]] = {}
            for test in tests:
                units.setdefault(self._split_scope(test), {})[test] = False
            split = [unit for unit, its in units.items() if not self._is_collected(its)]
            assert not split, f"no process has collected all tests of {split}"
            for unit in sorted(units, key=self._wall_limit, reverse=True):
                self.workqueue[unit] = units[unit]
        for node in self.nodes:
            self._reschedule(node)

    def _is_collected(self, tests: Mapping[str, bool]) -> bool:
        return any(known.issuperset(tests) for known in self._known.values())

    def _wall_limit(self, unit: str) -> float:
        return self._budgets.of(unit.partition("::")[0]).wall

    def _split_scope(self, nodeid: str) -> str:
        """Return the unit of a test, which begins with its folder or file."""
        file: str = nodeid.partition("::")[0]
        path = self._root / file
        lane = lane_of_file(path, self._counts)
        if lane == "computing":
            return file
        if folder := next((each for each in FOLDERS if file.startswith(each)), None):
            return f"{folder}::{lane}"
        return file if _OF_SEVERAL_TESTS.search(_text(path)) else nodeid

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down:
            return
        while self._pending_of(self.assigned_work[node]) < KNOWN_AHEAD:
            unit = self._next_unit(node)
            if unit is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(unit, last=False)
            self._assign_work_unit(node)

    def _next_unit(self, node: WorkerController) -> str | None:
        known = self._known[node]
        return next(
            (unit for unit, its in self.workqueue.items() if known.issuperset(its)),
            None,
        )
