"""The image copies all files that its programs need, and does not run as root."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from api_types.environment import is_setting, variable_of
from api_types.model_sources import read_image
from api_types.settings import Settings
from fleet_client.temporal.build import build_of_sources
from front.page.files import FOLDER
from testbed.programs.install import MODULES
from testbed.programs.versions import TOOLS
from tests.environment.waiting import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
STEPS = [
    line
    for line in (ROOT / "deploy" / "Containerfile").read_text().splitlines()
    if line and not line.startswith("#")
]
FROM = [at for at, line in enumerate(STEPS) if line.startswith("FROM ")]
HELM, BUILD, IMAGE = (
    STEPS[start:end] for start, end in zip(FROM, [*FROM[1:], len(STEPS)], strict=True)
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def copied(steps: list[str] = BUILD) -> list[str]:
    """Return the files that a stage copies from the repository."""
    return [
        word
        for line in steps
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]


def test_every_copied_file_exists() -> None:
    assert [
        name for name in [*copied(HELM), *copied()] if not (ROOT / name).exists()
    ] == []


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `/opt/build`, created by the steps of the Containerfile from its
    copies.
    """
    folder = tmp_path_factory.mktemp("image")
    source, build = folder / "source", folder / "build"
    source.mkdir()
    for name in copied():
        origin = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(
            origin, source / name, ignore=ignore
        ) if origin.is_dir() else shutil.copy(origin, source / name)
    steps = [
        line.removeprefix("RUN ")
        for line in BUILD
        if line.startswith("RUN ") and "/opt/modelplane" not in line
    ]
    for step in steps:
        command = step.replace("/opt/build", str(build)).replace(
            "python ", f"{sys.executable} ", 1
        )
        ended = subprocess.run(  # noqa: S602 -- a step of ours
            command,
            shell=True,
            cwd=source,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        assert ended.returncode == 0, f"{step}: {ended.stderr}"
    return build


@pytest.mark.slow
def test_the_copied_files_suffice_to_build_the_package(build: Path) -> None:
    (wheel,) = (build / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    packages = {
        pattern.removesuffix("*")
        for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    present = {name for name in packages if (ROOT / name / "__init__.py").exists()}
    assert {
        name.split("/")[0] for name in inside if name.endswith("/__init__.py")
    } == present
    assert {"worker.py", "testbed/fleet/default-fleet.yaml", "client/main.py"} <= inside
    assert "activities/render/cache/hydration/requirements.lock" in inside
    assert {str(path.relative_to(ROOT)) for path in FOLDER.iterdir()} <= inside


@pytest.mark.slow
def test_the_installed_package_is_the_same_build_as_the_sources(
    build: Path, tmp_path: Path
) -> None:
    (wheel,) = (build / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert build_of_sources.__wrapped__(tmp_path) == build_of_sources()


def test_the_image_runs_the_worker_as_a_numbered_user_who_is_not_root() -> None:
    (user,) = [line.split()[1] for line in STEPS if line.startswith("USER ")]
    assert int(user.split(":")[0]) > 0
    assert STEPS[-1] == 'ENTRYPOINT ["modelplane-worker"]'
    assert "modelplane-worker" in PROJECT["project"]["scripts"]


def test_each_base_image_is_named_once_so_that_a_digest_can_replace_it() -> None:
    arguments = dict(
        line.removeprefix("ARG ").split("=", 1)
        for line in STEPS
        if line.startswith("ARG ") and "=" in line
    )
    assert sorted(arguments) == ["GO", "PYTHON"]
    assert all(read_image(image).tag for image in arguments.values())
    assert [line.split()[1] for line in STEPS if line.startswith("FROM ")] == [
        "$GO",
        "$PYTHON",
        "$PYTHON",
    ]


def test_the_build_of_the_image_sets_the_build_of_its_workers() -> None:
    variable = variable_of("worker.buildId")
    stamp = IMAGE[IMAGE.index("ARG BUILD_ID") + 1]
    assert stamp == f"ENV {variable}=$BUILD_ID"
    assert is_setting(Settings, variable)


def test_the_helm_of_the_image_is_pinned_and_reports_its_full_version() -> None:
    (helm,) = [tool for tool in TOOLS if tool.name == "helm"]
    (module,) = copied(HELM)
    (step,) = [line for line in HELM if line.startswith("RUN ")]
    (package,) = helm.packages.values()
    assert (ROOT / module).resolve() == MODULES / helm.module
    ask = re.search(r"\$\((go list .*?)\)", step)
    assert ask
    said = subprocess.run(  # noqa: S602 -- a step of ours
        ask[1],
        shell=True,
        cwd=ROOT / module,
        capture_output=True,
        text=True,
        check=True,
    )
    assert step.replace(ask[0], said.stdout.strip()).endswith(
        f'-X {helm.linker_variables[0]}" {package}'
    )
    (put,) = [line for line in IMAGE if "--from=helm" in line]
    assert put.split()[-1] == "/usr/local/bin/helm"


def test_only_hash_locked_and_built_packages_are_installed() -> None:
    runs = [line.removeprefix("RUN ") for line in STEPS if line.startswith("RUN ")]
    for step in runs:
        if "pip " in step:
            # Without an index and build isolation, nothing can be downloaded.
            offline = (
                "--no-index" in step
                and "--no-deps" in step
                and (" wheel " not in step or "--no-build-isolation" in step)
            )
            assert offline or "--require-hashes -r requirements" in step, step
    assert not [step for step in runs if "curl" in step or "apt" in step]


def test_the_lock_of_the_tools_has_the_build_dependencies() -> None:
    (wanted,) = PROJECT["build-system"]["requires"]
    name, _, least = wanted.partition(">=")
    (locked,) = re.findall(
        rf"^{name}==(\d+)", (ROOT / "requirements-tools.lock").read_text(), re.MULTILINE
    )
    assert int(locked) >= int(least)
