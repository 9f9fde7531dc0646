"""The image: what it copies is enough to install the programs, and it does not run as root."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.environment.waiting import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
STEPS = [line for line in (ROOT / "deploy" / "Containerfile").read_text().splitlines() if line and not line.startswith("#")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def copied() -> list[str]:
    """What the build stage takes from the repository."""
    return [word for line in STEPS if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]]


def test_everything_that_is_copied_exists() -> None:
    assert [name for name in copied() if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_what_is_copied_is_enough_to_build_the_whole_package(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in copied():
        origin = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(origin, source / name, ignore=ignore) if origin.is_dir() else shutil.copy(origin, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    packages = {pattern.removesuffix("*") for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    present = {name for name in packages if (ROOT / name / "__init__.py").exists()}
    assert {name.split("/")[0] for name in inside if name.endswith("/__init__.py")} == present
    assert {"worker.py", "testbed/fleet/default-fleet.yaml", "client/main.py"} <= inside


def test_the_image_runs_the_worker_as_a_numbered_user_who_is_not_root() -> None:
    (user,) = [line.split()[1] for line in STEPS if line.startswith("USER ")]
    assert int(user.split(":")[0]) > 0
    assert STEPS[-1] == 'ENTRYPOINT ["modelplane-worker"]'
    assert "modelplane-worker" in PROJECT["project"]["scripts"]


def test_dependencies_come_from_the_lock_with_their_hashes() -> None:
    installs = [line for line in STEPS if "pip install" in line]
    assert "--require-hashes -r requirements.lock" in installs[0]
    assert "--no-deps" in installs[1]
    assert len(installs) == 2
