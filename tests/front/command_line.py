"""Commands through the front, in this process and in a thread of their own: the front runs in the loop of the test."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from api_types import environment
from client.main import run as run_command

OF_FRONT = (
    environment.SERVER_VARIABLE,
    environment.TOKEN_VARIABLE,
    environment.TOKEN_FILE_VARIABLE,
    environment.CA_FILE_VARIABLE,
    environment.CLIENT_CERT_VARIABLE,
    environment.CLIENT_KEY_VARIABLE,
)


@dataclass(frozen=True)
class Shown:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs commands through one front, with nothing else to reach: Temporal is where nothing listens."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path, url: str, ca: Path | None) -> None:
        """`home`: an empty folder. `ca`: None for a front without TLS."""
        self._capsys, self._monkeypatch = capsys, monkeypatch
        for variable in (*OF_FRONT, environment.CONFIG_VARIABLE):
            # Set, then removed: what a command itself writes there is undone at the end of the test as well.
            monkeypatch.setenv(variable, "")
            monkeypatch.delenv(variable)
        monkeypatch.setenv(environment.HOME_VARIABLE, str(home))
        monkeypatch.setenv("MODELPLANE_TEMPORAL__ADDRESS", "127.0.0.1:1")
        monkeypatch.setenv("MODELPLANE_SECRETS__DIRECTORY", str(home / "secrets"))
        monkeypatch.setenv(environment.SERVER_VARIABLE, url)
        if ca:
            monkeypatch.setenv(environment.CA_FILE_VARIABLE, str(ca))

    async def run(self, *words: str, token: str = "", change: Callable[[pytest.MonkeyPatch], None] = lambda _: None) -> Shown:
        """Run a command with a token; `change` sets further variables of the environment first."""
        self._monkeypatch.setenv(environment.TOKEN_VARIABLE, token)
        change(self._monkeypatch)
        self._capsys.readouterr()
        code = await asyncio.to_thread(run_command, words)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err, err
        return Shown(code, out, err)
