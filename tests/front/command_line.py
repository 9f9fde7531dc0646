"""Runs CLI commands through the front, in a thread, while the front runs in the test's
event loop.
"""

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
    code: int
    out: str
    err: str


class CommandLine:
    """Runs commands through one front. The address of Temporal has no listener."""

    def __init__(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        home: Path,
        url: str,
        ca: Path | None,
    ) -> None:
        """Set an empty folder as home. Without `ca`, the front has no TLS."""
        self._capsys, self._monkeypatch = capsys, monkeypatch
        for variable in (*OF_FRONT, environment.CONFIG_VARIABLE):
            # Setting and deleting registers the variables, so that changes by a command
            # are undone at the end of the test.
            monkeypatch.setenv(variable, "")
            monkeypatch.delenv(variable)
        monkeypatch.setenv(environment.HOME_VARIABLE, str(home))
        monkeypatch.setenv("MODELPLANE_TEMPORAL__ADDRESS", "127.0.0.1:1")
        monkeypatch.setenv("MODELPLANE_SECRETS__DIRECTORY", str(home / "secrets"))
        monkeypatch.setenv(environment.SERVER_VARIABLE, url)
        if ca:
            monkeypatch.setenv(environment.CA_FILE_VARIABLE, str(ca))

    async def run(
        self,
        *words: str,
        token: str = "",
        change: Callable[[pytest.MonkeyPatch], None] = lambda _: None,
    ) -> Shown:
        """Run a command with a token; `change` sets further environment variables."""
        self._monkeypatch.setenv(environment.TOKEN_VARIABLE, token)
        change(self._monkeypatch)
        self._capsys.readouterr()
        code = await asyncio.to_thread(run_command, words)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err, err
        return Shown(code, out, err)
