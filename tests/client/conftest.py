"""Running commands as a user does: words in; exit code, standard output and error out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from api_types.environment import CONFIG_VARIABLE, HOME_VARIABLE
from client.main import run as run_command


@dataclass(frozen=True)
class Result:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run one command in this process."""

    def run(*words: str) -> Result:
        code = run_command(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty home, with a Temporal address at which nothing listens."""
    # Set and remove it: then monkeypatch also undoes a value that the command sets.
    monkeypatch.setenv(CONFIG_VARIABLE, "")
    monkeypatch.delenv(CONFIG_VARIABLE)
    home = tmp_path / "home"
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    monkeypatch.setenv("MODELPLANE_TEMPORAL__ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("MODELPLANE_SECRETS__DIRECTORY", str(tmp_path / "secrets"))
    return home
