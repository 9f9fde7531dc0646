"""Commands through a server of the test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.front.command_line import CommandLine


@pytest.fixture
def line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], CommandLine]:
    """Run commands through the front at an address."""
    return lambda url: CommandLine(capsys, monkeypatch, tmp_path / "home", url, None)
