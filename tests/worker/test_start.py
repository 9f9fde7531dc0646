"""A worker that cannot start says why in one line and leaves with the exit code for it, without a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment.waiting import TIMEOUT_SECONDS
from tests.workflows.environment.harness import free_port


def started(**settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "worker"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


CASES = [
    ("an unknown setting", {"MODELPLANE_WORKER__SPEED": "9"}, 2, "worker.speed"),
    ("a setting of the wrong type", {"MODELPLANE_TEARDOWN__DRAIN_SECONDS": "soon"}, 2, "teardown.drain_seconds"),
    ("a group of settings that is no JSON", {"MODELPLANE_CACHE": "/var/cache"}, 2, "cache: this is a group of settings"),
    ("a settings file that is not there", {"MODELPLANE_CONFIG": "/nowhere/config.yaml"}, 2, "/nowhere/config.yaml"),
    ("encryption keys that cannot be read", {"MODELPLANE_ENCRYPTION__ACTIVE_KEY": "k1"}, 2, "encryption.activeKey"),
    ("a Temporal that is down", {"MODELPLANE_TEMPORAL__ADDRESS": f"127.0.0.1:{free_port()}"}, 6, "does not answer"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("story", "settings", "code", "said"), CASES, ids=[case[0] for case in CASES])
def test_a_start_that_fails_is_reported_without_a_traceback(
    story: str, settings: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    del story
    ended = started(**{"MODELPLANE_TEMPORAL__ADDRESS": f"127.0.0.1:{free_port()}", "HOME": str(tmp_path), **settings})
    assert (ended.returncode, said in ended.stderr, "Traceback" in ended.stderr) == (code, True, False), ended.stderr
