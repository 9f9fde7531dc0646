"""Every benchmark explains itself, without running, when it is asked for its options."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize(
    "module", ["", ".decide", ".front_load", ".lost_scheduler", ".policies", ".steady_state", ".storm", ".targets", ".temporal_burst"]
)
def test_help_only_prints_the_options(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", f"tests.bench{module}", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout[:6]) == (0, "usage:"), ended.stderr
