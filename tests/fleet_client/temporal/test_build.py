"""The build of a program: one id for one set of sources."""

import re
import shutil
from pathlib import Path

import pytest

from fleet_client.temporal.build import build_of_sources

ROOT = Path(__file__).parents[3]
PACKAGES = ("activities", "api_types", "fleet_client", "scheduler", "workflows")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program of one module in each package."""
    (tmp_path / "worker.py").write_text("import workflows\n")
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").write_text("VALUE = 1\n")
    return tmp_path


def build(folder: Path) -> str:
    return build_of_sources.__wrapped__(folder)


def test_this_program_has_a_build_that_temporal_and_a_label_can_hold() -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+-[0-9a-f]{12}", build_of_sources())


@pytest.mark.parametrize(
    "changed", ["worker.py", *(f"{package}/module.py" for package in PACKAGES)]
)
def test_a_change_of_any_source_makes_another_build(folder: Path, changed: str) -> None:
    before = build(folder)
    (folder / changed).write_text("VALUE = 2\n")
    assert build(folder) != before


def test_a_module_that_moves_makes_another_build(folder: Path) -> None:
    before = build(folder)
    (folder / "workflows" / "module.py").rename(folder / "workflows" / "moved.py")
    assert build(folder) != before


def test_the_same_sources_elsewhere_are_the_same_build(
    folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy" / "site-packages")
    (copy / "workflows" / "__pycache__").mkdir()
    (copy / "workflows" / "__pycache__" / "module.cpython-311.pyc").write_bytes(
        b"compiled"
    )
    assert build(copy) == build(folder)
