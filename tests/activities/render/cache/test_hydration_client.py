"""Install the hub client from a package index into an image without it.

The installation checks hashes and does not see the token.
"""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from activities.render.cache.hydration import CLIENT_REQUIREMENTS, HUGGINGFACE
from tests.environment.local_hub import Repo, a_commit, local_hub

ROOT = Path(__file__).parents[4]
TOKEN = "hf_" + "verysecret"
VERSION = "1.33.0"
PWNED = "from pathlib import Path; Path(__import__('os').environ['PWNED']).touch()\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with only pip, like the default image."""
    folder = tmp_path_factory.mktemp("image")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python3"


def hydrate(
    python: Path, folder: Path, requirements: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run the program like a Job."""
    (folder / "volume").mkdir(exist_ok=True)
    base = {
        # The package index depends on the image. Here it is the index of this machine.
        **{
            name: value
            for name, value in os.environ.items()
            if name.startswith("PIP_") or name in ("PATH", "HOME")
        },
        "HF_HOME": str(folder / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_TOKEN": TOKEN,
        "MODELPLANE_REPO": "acme/private",
        "MODELPLANE_REVISION": a_commit("first"),
        "MODELPLANE_ARTEFACT_KEY": "key-1",
        "MODELPLANE_TARGET": str(folder / "volume"),
        "MODELPLANE_CLIENT_REQUIREMENTS": requirements,
        "PWNED": str(folder / "pwned"),
        "TMPDIR": str(folder),
    }
    ended = subprocess.run(
        [str(python), "-c", HUGGINGFACE],
        env={**base, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert TOKEN not in ended.stdout + ended.stderr
    return ended


def wheel(folder: Path) -> Path:
    """A package with the client's name that misbehaves when it is imported."""
    place, information = (
        folder / f"huggingface_hub-{VERSION}-py3-none-any.whl",
        f"huggingface_hub-{VERSION}.dist-info",
    )
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("huggingface_hub/__init__.py", PWNED)
        archive.writestr(
            f"{information}/METADATA",
            f"Metadata-Version: 2.1\nName: huggingface-hub\nVersion: {VERSION}\n",
        )
        archive.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{information}/RECORD", "")
    return place


def source(folder: Path) -> Path:
    """A package that misbehaves when it is built."""
    place = folder / f"huggingface_hub-{VERSION}.tar.gz"
    backend = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    with tarfile.open(place, "w:gz") as archive:
        for name, text in (("pyproject.toml", backend), ("backend.py", PWNED)):
            member = tarfile.TarInfo(f"huggingface_hub-{VERSION}/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return place


def offering(folder: Path) -> dict[str, str]:
    """Let pip find packages only in a folder."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONFIG_FILE": os.devnull,
    }


def hashed(place: Path) -> str:
    return (
        f"huggingface-hub=={VERSION} "
        f"--hash=sha256:{hashlib.sha256(place.read_bytes()).hexdigest()}"
    )


def pinned() -> str:
    """Return the requirement of the client itself."""
    (line,) = [
        line
        for line in CLIENT_REQUIREMENTS.splitlines()
        if line.startswith("huggingface-hub==")
    ]
    return line


@pytest.mark.slow
def test_the_pinned_client_is_installed_whole_and_stages_a_private_repository(
    python: Path, tmp_path: Path
) -> None:
    with local_hub() as hub:
        hub.repos = {"acme/private": Repo(token=TOKEN)}
        ended = hydrate(python, tmp_path, CLIENT_REQUIREMENTS, HF_ENDPOINT=hub.address)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("staged acme/private")
    assert list(tmp_path.glob(f"client-*/huggingface_hub-{VERSION}.dist-info"))


@pytest.mark.slow
def test_a_package_with_another_hash_is_not_installed(
    python: Path, tmp_path: Path
) -> None:
    wheel(tmp_path)
    ended = hydrate(python, tmp_path, pinned(), **offering(tmp_path))
    assert ended.returncode == 1
    assert "DO NOT MATCH THE HASHES" in ended.stderr
    assert (
        "huggingface_hub could not be installed; use an image that has it"
        in ended.stderr.splitlines()[-1]
    )
    assert not (tmp_path / "pwned").exists()


@pytest.mark.slow
def test_a_package_without_a_hash_is_not_installed(
    python: Path, tmp_path: Path
) -> None:
    wheel(tmp_path)
    ended = hydrate(
        python, tmp_path, f"huggingface-hub=={VERSION}", **offering(tmp_path)
    )
    assert ended.returncode == 1
    assert not (tmp_path / "pwned").exists()


@pytest.mark.slow
def test_no_package_is_built(python: Path, tmp_path: Path) -> None:
    ended = hydrate(python, tmp_path, hashed(source(tmp_path)), **offering(tmp_path))
    assert ended.returncode == 1
    assert not (tmp_path / "pwned").exists()


@pytest.mark.slow
def test_a_package_with_its_hash_is_installed(python: Path, tmp_path: Path) -> None:
    hydrate(python, tmp_path, hashed(wheel(tmp_path)), **offering(tmp_path))
    assert (tmp_path / "pwned").exists(), "so the tests above would see it"


@pytest.mark.slow
def test_pip_is_not_given_the_token(python: Path, tmp_path: Path) -> None:
    """A `pip` that records its environment."""
    (tmp_path / "packages" / "pip").mkdir(parents=True)
    (tmp_path / "packages" / "pip" / "__init__.py").touch()
    program = (
        "import json, os\nfrom pathlib import "
        "Path\nPath(os.environ['RECORDED']).write_text(json.dumps(dict(os.environ)))\n"
    )
    (tmp_path / "packages" / "pip" / "__main__.py").write_text(program)
    hydrate(
        python,
        tmp_path,
        "",
        PYTHONPATH=str(tmp_path / "packages"),
        RECORDED=str(tmp_path / "recorded"),
    )
    environment = json.loads((tmp_path / "recorded").read_text())
    assert environment["MODELPLANE_REPO"] == "acme/private"
    assert "HF_TOKEN" not in environment
    assert TOKEN not in environment.values()


def test_the_hashes_match_the_tested_versions() -> None:
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", CLIENT_REQUIREMENTS, re.MULTILINE))
    tested = dict(
        re.findall(
            r"^([\w.-]+)==(\S+)",
            (ROOT / "requirements-dev.lock").read_text(),
            re.MULTILINE,
        )
    )
    assert locked.items() <= tested.items()
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]["dev"]
    assert f"huggingface_hub=={locked['huggingface-hub']}" in wanted
    assert all("--hash=sha256:" in line for line in CLIENT_REQUIREMENTS.splitlines())
