"""The table of times, and the budgets of files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import times
from tests.environment.times import BUDGETS, REMEDY, ROOT, Budgets, Spent, Table

FILE = "tests/a/test_a.py"
LIMITS = Budgets(
    Spent(wall=100, cpu=10), {"tests/b/test_b.py": Spent(wall=300, cpu=10)}
)


@pytest.mark.parametrize(
    ("file", "spent", "load", "said"),
    [
        (FILE, Spent(wall=100, cpu=10), 1.0, []),
        (
            FILE,
            Spent(wall=1, cpu=11),
            9.0,
            [f"{FILE} took 11 s of a processor and may take 10 s"],
        ),
        (
            FILE,
            Spent(wall=101, cpu=1),
            0.1,
            [f"{FILE} took 101 s and may take 100 s at this load"],
        ),
        (FILE, Spent(wall=101, cpu=1), 2.0, []),
        (
            FILE,
            Spent(wall=201, cpu=1),
            2.0,
            [f"{FILE} took 201 s and may take 200 s at this load"],
        ),
        ("tests/b/test_b.py", Spent(wall=299, cpu=1), 0.1, []),
        ("tests/b/", Spent(wall=299, cpu=1), 0.1, []),
    ],
)
def test_a_file_over_its_budget_is_named_with_its_limit_and_a_remedy(
    file: str,
    spent: Spent,
    load: float,
    said: list[str],
) -> None:
    assert LIMITS.exceeded({file: spent}, load) == [
        f"{each}; {REMEDY}" for each in said
    ]


def test_the_tables_of_processes_are_added_up() -> None:
    whole = Table()
    for load in (1.0, 3.0):
        part = Table(collection=Spent(2, 1))
        part.add(FILE, "others", Spent(5, 4), load)
        whole.merge(json.loads(json.dumps(part.wire())))
    assert whole.rows({"linters": Spent(9, 8)}, Spent(20, 30)) == [
        ("linters", Spent(9, 8), 0),
        ("collection", Spent(4, 2), 0),
        ("others", Spent(10, 8), 2),
        ("whole machine", Spent(20, 30), 2),
    ]
    assert (whole.load, list(whole.slowest())) == (2.0, [(FILE, Spent(10, 8))])


def test_every_file_with_a_budget_of_its_own_is_there() -> None:
    assert [
        name for name in Budgets.load(BUDGETS).files if not (ROOT / name).is_file()
    ] == []


@pytest.mark.slow
def test_a_run_over_its_budget_fails_and_shows_where_the_time_went(
    tmp_path: Path,
) -> None:
    """Run pytest in its own folder, with a budget below the duration of any test."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "budgets.toml").write_text(
        "[default]\ncpu = 0.0\nwall = 1000\n"
    )
    (tmp_path / "tests" / "test_a.py").write_text(
        "def test_a():\n    sum(range(10**6))\n"
    )
    (tmp_path / "conftest.py").write_text(
        "import pathlib\n"
        "from tests.environment import times\n"
        "times.BUDGETS = pathlib.Path('tests/budgets.toml').absolute()\n"
        "times.FOLDER = pathlib.Path('build').absolute()\n"
        "def pytest_addoption(parser):\n    parser.addoption('--budgets', action='store_true')\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(times.Times(config))\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "--budgets", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, "tests"]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
    assert (
        "OVER BUDGET: tests/test_a.py took 0 s of a processor and may take 0 s"
        in ran.stdout
    )
    rows = json.loads((tmp_path / "build" / "run.json").read_text())["rows"]
    tests = {name: row["tests"] for name, row in rows.items()}
    assert tests == {"collection": 0, "others": 1, "whole machine": 1}


def test_a_note_of_a_command_is_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "FOLDER", tmp_path)
    assert times.main("linters", "false") == 1
    assert list(times._noted()) == ["linters"]
    assert times._noted() == {}
