"""A run that leaves out the tests of KEDA says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.programs.install import PROGRAMS_VARIABLE
from tests.environment.keda import VARIABLE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize(("asked", "left_out"), [("", True), ("0", True), ("1", False)])
def test_tests_of_keda_are_left_out_where_it_is_neither_built_nor_asked_for(tmp_path: Path, asked: str, left_out: bool) -> None:
    environment = {**os.environ, PROGRAMS_VARIABLE: str(tmp_path), VARIABLE: asked}
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests/front/keda"]
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout
    assert (
        f"tests of KEDA, which is not installed; `make keda` builds it once, in about ten minutes, and so does {VARIABLE}=1" in told
    ) is left_out
    assert ("test_keda_wakes_a_deployment_scales_it_and_stops_it" in told) is not left_out
