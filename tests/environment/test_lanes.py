"""Each file runs in the processes of its lane, and every test runs."""

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.environment.lanes import (
    FOLDERS,
    ROOT,
    Lanes,
    lane_of_file,
    lane_of_process,
    parsed,
)

# Split in two, so that this file is not taken for one with tests on real parts.
MARK = "testbed"
PLAIN = "def test_0(): ..."
OWN = f"pytestmark = pytest.mark.{MARK}"
SHARED = f'{OWN}("shared")'
MODULE = '@pytest.fixture(scope="module")'
FILES = {
    "tests/scheduler/test_a.py": PLAIN,
    "tests/scheduler/test_b.py": PLAIN,
    "tests/activities/test_c.py": SHARED,
    "tests/activities/test_d.py": f"{SHARED}\n{MODULE}",
    "tests/workflows/test_e.py": OWN,
    "tests/workflows/test_f.py": f"{OWN}\n{MODULE}",
    f"{FOLDERS[0]}test_g.py": OWN,
    f"{FOLDERS[0]}test_h.py": OWN,
    f"{FOLDERS[0]}test_i.py": SHARED,
    f"{FOLDERS[0]}test_j.py": PLAIN,
}
TESTS = 3


@dataclass(eq=False)
class Process:
    """A process as the scheduler sees it.

    It runs a test once it knows the next test, or knows that none follows.
    """

    gateway: Any
    shutting_down: bool = False
    given: list[int] = field(default_factory=list)

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def ran_by_processes(
    monkeypatch: pytest.MonkeyPatch,
    tree: Path,
    lanes: str,
) -> dict[str, list[str]]:
    """Run all files, one test per process in turn. Return the tests of each process."""
    counts = parsed(lanes)
    total = sum(counts.values())
    parser = "xdist.scheduler.loadscope.parse_tx_spec_config"
    monkeypatch.setattr(parser, lambda _: ["popen"] * total)
    config = cast(pytest.Config, SimpleNamespace(getvalue=lambda _: None))
    scheduling = Lanes(config, None, counts, tree)
    processes = [Process(SimpleNamespace(id=f"gw{number}")) for number in range(total)]
    collections = {}
    for number, process in enumerate(processes):
        lane = lane_of_process(number, counts)
        files = [name for name in FILES if lane_of_file(tree / name, counts) == lane]
        collections[process] = [
            f"{name}::test_{each}" for name in files for each in range(TESTS)
        ]
        scheduling.add_node(process)
        scheduling.add_node_collection(process, collections[process])
    scheduling.schedule()
    ran: dict[str, list[str]] = defaultdict(list)
    while any(process.given for process in processes):
        before = sum(map(len, ran.values()))
        for process in processes:
            if len(process.given) > 1 or (process.given and process.shutting_down):
                test = process.given.pop(0)
                ran[process.gateway.id].append(collections[process][test])
                scheduling.mark_test_complete(process, test)
        assert sum(map(len, ran.values())) > before, "no process can go on"
    assert all(process.shutting_down for process in processes)
    return ran


@pytest.mark.parametrize(
    "lanes",
    [
        "computing=1",
        "own=1",
        "computing=1,own=2",
        "computing=2,shared=3,own=3",
        "computing=9,shared=9,own=9",
    ],
)
def test_every_test_runs_once(
    monkeypatch: pytest.MonkeyPatch, tree: Path, lanes: str
) -> None:
    ran = ran_by_processes(monkeypatch, tree, lanes)
    all_tests = [f"{name}::test_{number}" for name in FILES for number in range(TESTS)]
    assert sorted(test for each in ran.values() for test in each) == sorted(all_tests)


def test_tests_of_a_file_run_beside_each_other_unless_they_share_a_fixture(
    monkeypatch: pytest.MonkeyPatch,
    tree: Path,
) -> None:
    ran = ran_by_processes(monkeypatch, tree, "computing=3,shared=3,own=4")
    files = Counter(file for tests in ran.values() for file in files_of(tests))
    assert files == {
        "tests/scheduler/test_a.py": 1,
        "tests/scheduler/test_b.py": 1,
        "tests/activities/test_c.py": 2,
        "tests/activities/test_d.py": 1,
        "tests/workflows/test_e.py": 2,
        "tests/workflows/test_f.py": 1,
        f"{FOLDERS[0]}test_g.py": 1,
        f"{FOLDERS[0]}test_h.py": 1,
        f"{FOLDERS[0]}test_i.py": 1,
        f"{FOLDERS[0]}test_j.py": 1,
    }
    folder = {f"{FOLDERS[0]}test_g.py", f"{FOLDERS[0]}test_h.py"}
    shares = [files_of(tests) & folder for tests in ran.values()]
    assert [share for share in shares if share] == [folder]


def files_of(tests: Iterable[str]) -> set[str]:
    return {test.partition("::")[0] for test in tests}


@pytest.mark.parametrize(
    ("lanes", "chosen"),
    [
        ("computing=1,shared=1,own=1", ["computing", "shared", "own"]),
        ("computing=1,own=1", ["computing", "own", "own"]),
        ("shared=1,own=1", ["own", "shared", "own"]),
        ("computing=1", ["computing", "computing", "computing"]),
    ],
)
def test_a_lane_without_processes_leaves_its_files_to_another(
    tree: Path,
    lanes: str,
    chosen: list[str],
) -> None:
    files = (
        "tests/scheduler/test_a.py",
        "tests/activities/test_c.py",
        "tests/workflows/test_e.py",
    )
    assert [lane_of_file(tree / name, parsed(lanes)) for name in files] == chosen


@pytest.mark.parametrize("text", ["", "own", "own=x", "other=1"])
def test_other_lanes_are_refused(text: str) -> None:
    with pytest.raises(
        pytest.UsageError, match="write it as computing=2,shared=3,own=3"
    ):
        parsed(text)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_one_process_runs_is_there(folder: str) -> None:
    assert list((ROOT / folder).glob("test_*.py"))


@pytest.mark.slow
def test_a_run_with_lanes_runs_the_tests_of_all_files_in_the_order_of_a_seed() -> None:
    """The first file has no tests on real parts; those of the second are deselected."""
    files = [
        "tests/environment/test_waiting.py",
        "tests/fleet_client/temporal/test_execution.py",
    ]
    order = ["-p", "random_order.plugin", "--random-order-seed=7"]
    lanes = ["-n", "auto", "--lanes", "computing=1,own=1"]
    options = ["-p", "no:cacheprovider", "-m", "not testbed"]
    command = [sys.executable, "-m", "pytest", *lanes, *order, *options, *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == pytest.ExitCode.OK, ran.stdout + ran.stderr
    assert "Using --random-order-seed=7" in ran.stdout
    assert "2 workers [1 item]" in ran.stdout
    assert "1 passed" in ran.stdout
