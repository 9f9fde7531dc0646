"""A file is not imported if a mark on all its tests deselects them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment.whole_files import left_out_by

# Split in two, so that this file does not appear to have the mark.
ALL = "pytestmark ="
SLOW = f"{ALL} pytest.mark.slow"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("expression", "text", "mark"),
    [
        ("not slow", SLOW, "slow"),
        ("not oracle and not slow", f"import pytest\n\n{SLOW}\n\nONE = 1\n", "slow"),
        (
            "not slow",
            f'{ALL} [pytest.mark.testbed("shared"), pytest.mark.slow]',
            "slow",
        ),
        (
            "not slow",
            f"{ALL} [\n    pytest.mark.image,\n    pytest.mark.slow,\n]\n",
            "slow",
        ),
        ("not slow", f"{ALL} pytest.mark.random", None),
        (
            "not slow",
            f"{ALL} [pytest.mark.random]\n\n@pytest.mark.slow\ndef test(): ...\n",
            None,
        ),
        ("not slow", "@pytest.mark.slow\ndef test(): ...\n", None),
        ("not slow", f"    {SLOW}", None),
        ("not slow", SLOW + "er", None),
        ("", SLOW, None),
        ("slow", SLOW, None),
        ("not slow or random", SLOW, None),
        ("(long or keda) and not slow", SLOW, None),
    ],
)
def test_a_file_is_left_out_by_a_mark_of_all_its_tests(
    expression: str, text: str, mark: str | None
) -> None:
    assert left_out_by(expression, text) == mark


@pytest.mark.slow
def test_a_run_says_how_many_files_it_leaves_out() -> None:
    file = "tests/activities/routing/test_unserved.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "not slow",
        file,
    ]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "left out: 1 file (1 marked slow)" in ended.stdout, ended.stdout
