"""Imports point in the direction that ARCHITECTURE.md states."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def test_every_import_contract_is_kept() -> None:
    # A subprocess, because import-linter would disable the loggers of this process.
    program = (
        "from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
