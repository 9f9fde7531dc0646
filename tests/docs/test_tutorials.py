"""The commands of the tutorials, run in their order on a fleet that the tutorial starts.

`UPDATE_GOLDEN=1` writes their outputs into the pages. Outputs that name paths, ports or
ages of one machine are not shown. `tests/docs/test_generated.py` compares the outputs
of the steps that need no server.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from api_types.environment import HOME_VARIABLE
from tests.client.commands.local_fleet import processes_of
from tests.docs.generated import TUTORIALS

pytestmark = [pytest.mark.testbed, pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
LINES_MAX = 8
SECONDS = 1200
PROMPT = "$ modelplane "
_BLOCK = re.compile(r"(?ms)^```console\n(\$ modelplane .*?)^```$")
_EXIT = re.compile(r"#\s*exits with (\d+)")
_UNSHOWN = re.compile(r"\$ modelplane (up|get|describe|policy get)\b")
_FIXED = (
    (r"-[0-9a-f]{8}\b", "-0a1b2c3d"),
    (r"\b10\.\d+\.\d+\.\d+\b", "10.0.0.1"),
    (r"\b\d+(\.\d+)? ?(s|ms)\b", "5 s"),
    (r"(?m)[ \t]+$", ""),
)


class Step(NamedTuple):
    """One command of a page with the output that the page shows."""

    line: str
    shown: str

    @property
    def code(self) -> int:
        """The exit code that the page promises."""
        code = _EXIT.search(self.line)
        return int(code[1]) if code else 0


def steps(block: str) -> list[Step]:
    found = []
    for part in re.split(r"(?m)^(?=\$ modelplane )", block):
        line, _, output = part.partition("\n")
        if line:
            found.append(Step(line, output.strip("\n")))
    return found


def shown(line: str, output: str) -> str:
    """Return the part of an output that a page shows, with fixed values."""
    if _UNSHOWN.match(line):
        return ""
    for pattern, value in _FIXED:
        output = re.sub(pattern, value, output)
    lines = output.strip("\n").splitlines()
    more = ["…"] if len(lines) > LINES_MAX else []
    return "\n".join([*lines[:LINES_MAX], *more])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    yield home
    run(home, f"{PROMPT}down --wipe")
    assert processes_of(home) == []


def run(home: Path, line: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line.removeprefix(PROMPT), comments=True)
    return subprocess.run(
        [sys.executable, "-m", "client.main", *words],
        cwd=ROOT,
        env={**os.environ, HOME_VARIABLE: str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("page", TUTORIALS)
def test_every_command_of_a_tutorial_prints_what_the_page_shows(
    home: Path, page: str
) -> None:
    text = (ROOT / page).read_text()
    found: dict[str, str] = {}
    for block in _BLOCK.findall(text):
        lines = []
        for step in steps(block):
            ended = run(home, step.line)
            assert ended.returncode == step.code, f"{step.line}\n{ended.stderr}"
            output = shown(step.line, ended.stdout)
            lines.append(f"{step.line}\n{output}\n" if output else f"{step.line}\n")
        found[block] = "".join(lines)
    assert found, "the page has no commands"
    if os.environ.get("UPDATE_GOLDEN"):
        (ROOT / page).write_text(
            _BLOCK.sub(lambda match: f"```console\n{found[match[1]]}```", text)
        )
    else:
        assert list(found) == list(found.values())
