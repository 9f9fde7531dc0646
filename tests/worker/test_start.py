"""A worker that cannot start prints the reason in one line and exits with its code."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.environment.waiting import TIMEOUT_SECONDS, pauses
from tests.workflows.environment.forking import forks
from tests.workflows.environment.harness import SOON_SECONDS, free_port


def ended(log: Path, settings: dict[str, str]) -> tuple[int, str]:
    """Start a worker that exits by itself; return its exit code and output."""
    pid = forks().start(settings, log)
    for pause in pauses(shortest=SOON_SECONDS):
        if (code := forks().exit_code(pid)) is not None:
            return code, log.read_text()
        time.sleep(pause)
    raise AssertionError(f"it still runs: {log.read_text()}")


CASES = [
    (
        "an unknown setting",
        {"MODELPLANE_WORKER__LISTENS": "9"},
        2,
        "did you mean MODELPLANE_WORKER__LISTEN?",
    ),
    (
        "a variable that names no group",
        {"MODELPLANE_TEMPORAL_ADDRESS": "x"},
        2,
        "did you mean MODELPLANE_TEMPORAL__ADDRESS?",
    ),
    (
        "a variable without the prefix changes nothing",
        {"KUBECONFIG": "/x", "TEMPORAL__ADDRESS": "x"},
        6,
        "does not answer",
    ),
    (
        "a setting of the wrong type",
        {"MODELPLANE_TEARDOWN__DRAIN_SECONDS": "soon"},
        2,
        "teardown.drainSeconds",
    ),
    (
        "a group of settings that is no JSON",
        {"MODELPLANE_CACHE": "/var/cache"},
        2,
        "cache: this is a group of settings",
    ),
    (
        "a settings file that is not there",
        {"MODELPLANE_CONFIG": "/nowhere/config.yaml"},
        2,
        "/nowhere/config.yaml",
    ),
    (
        "encryption keys that cannot be read",
        {"MODELPLANE_ENCRYPTION__ACTIVE_KEY": "k1"},
        2,
        "encryption.activeKey",
    ),
    (
        "a Temporal that is down",
        {"MODELPLANE_TEMPORAL__ADDRESS": f"127.0.0.1:{free_port()}"},
        6,
        "does not answer",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "settings", "code", "said"), CASES, ids=[case[0] for case in CASES]
)
def test_a_failed_start_is_reported_without_a_traceback(
    story: str, settings: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    del story
    address = f"127.0.0.1:{free_port()}"
    found, text = ended(
        tmp_path / "log",
        {"MODELPLANE_TEMPORAL__ADDRESS": address, "HOME": str(tmp_path), **settings},
    )
    assert (found, said in text, "Traceback" in text) == (code, True, False), text


@pytest.mark.slow
def test_the_program_reports_it_on_standard_error(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "MODELPLANE_CONFIG": "/nowhere/config.yaml",
    }
    process = subprocess.run(
        [sys.executable, "-m", "worker"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (
        process.returncode,
        "/nowhere/config.yaml" in process.stderr,
        process.stdout,
    ) == (2, True, "")
