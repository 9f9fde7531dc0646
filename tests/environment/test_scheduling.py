"""Files go to processes by what they need, and none is left over."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.environment.scheduling import COMMANDS, FIRST, TESTBEDS, TestbedScheduling

ON_TESTBED = [f"{COMMANDS}test_a.py", f"{COMMANDS}test_b.py", *(f"tests/workflows/model_cache/test_{number}.py" for number in range(8))]
ELSEWHERE = [f"{COMMANDS}test_c.py", *(f"tests/scheduler/test_{number}.py" for number in range(8))]
TESTS = 3
ROOT = Path(__file__).parents[2]


@dataclass(eq=False)
class Process:
    """What the scheduler knows of a process; it runs a test when it knows the next one, or that there is none."""

    gateway: Any
    shutting_down: bool = False
    given: list[int] = field(default_factory=list)

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def files_by_process(monkeypatch: pytest.MonkeyPatch, count: int) -> dict[str, list[str]]:
    """Let so many processes run all files, a test each in turn; gives the files of each."""
    config = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=False),
        cache=SimpleNamespace(get=lambda _key, _default: ON_TESTBED),
        getvalue=lambda _: None,
    )
    monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", lambda _: ["popen"] * count)
    scheduling = TestbedScheduling(config)
    processes = [Process(SimpleNamespace(id=f"gw{number}")) for number in range(count)]
    tests = [f"{file}::test_{number}" for file in (*ELSEWHERE, *ON_TESTBED) for number in range(TESTS)]
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, tests)
    scheduling.schedule()
    ran: dict[str, list[str]] = defaultdict(list)
    while any(process.given for process in processes):
        for process in processes:
            if len(process.given) > 1 or (process.given and process.shutting_down):
                test = process.given.pop(0)
                ran[process.gateway.id].append(tests[test])
                scheduling.mark_test_complete(process, test)
    assert sorted(test for each in ran.values() for test in each) == sorted(tests)
    assert all(process.shutting_down for process in processes)
    return {name: list(dict.fromkeys(test.partition("::")[0] for test in each)) for name, each in ran.items()}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_every_test_runs_once_and_few_processes_start_a_testbed(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    ran = files_by_process(monkeypatch, count)
    with_testbed = {name for name, files in ran.items() if set(files) & set(ON_TESTBED)}
    assert with_testbed == {f"gw{number}" for number in range(min(count, TESTBEDS))}
    assert set(ran["gw0"][:2]) == set(ON_TESTBED[:2])
    for name in with_testbed - {"gw0"}:
        of_commands = [file.startswith(COMMANDS) for file in ran[name] if file in ON_TESTBED]
        assert of_commands == sorted(of_commands)
    for name in with_testbed:
        needs = [file in ON_TESTBED for file in ran[name]]
        assert needs == sorted(needs, reverse=True)


@pytest.mark.parametrize("prefix", FIRST)
def test_what_comes_first_is_there(prefix: str) -> None:
    """Whoever moves a long file moves it here too: it would be left for the end, when the other processes have nothing to do."""
    assert list(ROOT.glob(f"{prefix}*"))
