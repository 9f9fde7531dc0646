"""The hydration programs with real clients, a hub on loopback and a local registry."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from activities.render.cache.hydration import HUGGINGFACE, OCI, OCI_BY_TAG
from tests.activities.render.cache.programs import COMMAND, MARKER, job_environment
from tests.environment.local_hub import LocalHub, Repo, a_commit, local_hub
from tests.environment.local_registry import LocalRegistry, install_kit, local_registry

pytestmark = pytest.mark.slow

TOKEN = "hf_" + "verysecret"
WRONG = "hf_" + "wrong"
# More than two of the chunks in which the client downloads a file.
WEIGHTS = b"w" * 24_000_000


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    with local_hub() as hub:
        hub.repos = {
            "acme/tiny": Repo(),
            "acme/private": Repo(token=TOKEN),
            "acme/gated": Repo(token=TOKEN, gated=True),
            "acme/large": Repo(
                files={"config.json": b"{}", "model.safetensors": WEIGHTS}
            ),
        }
        yield hub


def hydrate(
    hub: LocalHub,
    volume: Path,
    repo: str,
    *,
    revision: str = "",
    key: str = "key-1",
    token: str = "",
    **environ: str,
) -> tuple[int, str]:
    """Run the program like a Job with the real client.

    Returns its exit code and its last line.
    """
    environment = (
        job_environment(hub, volume, repo, revision=revision, key=key, token=token)
        | environ
    )
    ended = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, check=False
    )
    assert TOKEN not in ended.stdout + ended.stderr
    return ended.returncode, (ended.stderr.splitlines() or [""])[-1]


def test_the_real_client_stages_the_pinned_commit(
    hub: LocalHub, tmp_path: Path
) -> None:
    commit = a_commit("first")
    assert hydrate(hub, tmp_path, "acme/tiny", revision=commit) == (
        0,
        f"staged acme/tiny at {commit}",
    )
    assert (tmp_path / "weights" / "model.safetensors").read_bytes() == b"w" * 4096
    marker = json.loads((tmp_path / MARKER).read_text())
    assert (
        marker["source"],
        marker["repo"],
        marker["commit"],
        marker["artefactKey"],
    ) == ("HuggingFace", "acme/tiny", commit, "key-1")
    before = len(hub.requests)
    assert hydrate(hub, tmp_path, "acme/tiny", revision=commit) == (0, "already staged")
    assert len(hub.requests) == before


PATTERNS = {
    "a folder, as two forms": (
        '["original/"]',
        None,
        ["config.json", "weights/a.safetensors"],
    ),
    "a wildcard crosses folders": (
        None,
        '["*.safetensors"]',
        ["weights/a.safetensors"],
    ),
    "ignored wins over allowed": (
        '["weights/*"]',
        '["*.safetensors", "*.json"]',
        ["config.json"],
    ),
}


@pytest.mark.parametrize(
    ("ignored", "allowed", "staged"), PATTERNS.values(), ids=PATTERNS
)
def test_patterns_select_the_same_files_as_the_client(
    hub: LocalHub,
    tmp_path: Path,
    ignored: str | None,
    allowed: str | None,
    staged: list[str],
) -> None:
    hub.repos["acme/doubled"] = Repo(
        files={
            "config.json": b"{}",
            "original/a.pth": b"p",
            "weights/a.safetensors": b"w",
        }
    )
    given = {
        "MODELPLANE_IGNORE_PATTERNS": ignored,
        "MODELPLANE_ALLOW_PATTERNS": allowed,
    }
    assert (
        hydrate(
            hub,
            tmp_path,
            "acme/doubled",
            **{name: value for name, value in given.items() if value},
        )[0]
        == 0
    )
    found = [
        path.relative_to(tmp_path).as_posix()
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file()
    ]
    assert [name for name in found if not name.startswith(".")] == staged


def test_a_pod_reports_the_commit_of_a_branch_in_its_status(
    hub: LocalHub, tmp_path: Path
) -> None:
    """The test replaces the kubelet's file.

    Outside of a pod, where the file does not exist, the program writes nothing.
    """
    said, volume = tmp_path / "termination-log", tmp_path / "volume"
    volume.mkdir()
    program = HUGGINGFACE.replace("/dev/termination-log", str(said))
    assert program != HUGGINGFACE
    command, environment = (
        [*COMMAND[:-1], program],
        job_environment(hub, volume, "acme/tiny", revision="main"),
    )
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert not said.exists()
    for _ in ("staged before", "asked again"):
        said.touch()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        assert said.read_text() == a_commit("first")
        said.unlink()


def test_a_volume_of_another_artifact_is_filled_again(
    hub: LocalHub, tmp_path: Path
) -> None:
    (tmp_path / MARKER).write_text('{"artefactKey": "key-0"}')
    assert hydrate(hub, tmp_path, "acme/tiny")[0] == 0
    assert json.loads((tmp_path / MARKER).read_text())["artefactKey"] == "key-1"


def test_a_broken_download_resumes_where_it_stopped(
    hub: LocalHub, tmp_path: Path
) -> None:
    hub.cut_after = 12_000_000
    code, _ = hydrate(hub, tmp_path, "acme/large")
    if code:  # The client may stop making the second attempt itself one day.
        assert not (tmp_path / MARKER).exists()
        code, _ = hydrate(hub, tmp_path, "acme/large")
    assert code == 0
    (resumed,) = hub.ranges
    assert 0 < int(resumed.removeprefix("bytes=").removesuffix("-")) <= 12_000_000
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


class Case(NamedTuple):
    """The request of a Job, and its expected end."""

    story: str
    repo: str
    code: int
    says: str
    token: str = ""
    revision: str = ""


REFUSALS = [
    Case(
        "unknown without a token",
        "acme/none",
        42,
        "does not exist, or is private and no token was given",
    ),
    Case(
        "no such repository",
        "acme/none",
        42,
        "acme/none does not exist",
        token=TOKEN,
    ),
    Case(
        "no such revision",
        "acme/tiny",
        42,
        "acme/tiny at v9 does not exist",
        revision="v9",
    ),
    Case(
        "private, no token",
        "acme/private",
        42,
        "is private and no token was given",
    ),
    Case(
        "private, wrong token",
        "acme/private",
        41,
        "refused the token",
        token=WRONG,
    ),
    Case("gated, no token", "acme/gated", 41, "is gated"),
    Case("gated, no access", "acme/gated", 41, "is gated", token=WRONG),
    Case(
        "private with its token", "acme/private", 0, "staged acme/private", token=TOKEN
    ),
    Case("gated with its token", "acme/gated", 0, "staged acme/gated", token=TOKEN),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.story)
def test_errors_of_the_real_client_become_exit_codes(
    hub: LocalHub, tmp_path: Path, case: Case
) -> None:
    ended, last = hydrate(
        hub, tmp_path, case.repo, revision=case.revision, token=case.token
    )
    assert ended == case.code, last
    assert case.says in last
    assert len(last.encode()) <= 1024
    assert (tmp_path / MARKER).exists() == (case.code == 0)


def test_an_unreachable_hub_is_retried(tmp_path: Path) -> None:
    silent = LocalHub(address="http://127.0.0.1:9")
    code, last = hydrate(silent, tmp_path, "acme/tiny")
    assert code == 1
    assert "127.0.0.1" in last or "refused" in last.lower()


# Packs


@pytest.fixture(scope="module")
def registry() -> Iterator[LocalRegistry]:
    with local_registry() as registry:
        yield registry


def unpacked(
    registry: LocalRegistry,
    folder: Path,
    digest: str,
    *around: str,
    login: bool = False,
    plain: bool = True,
    tag: str = "",
) -> tuple[int, str]:
    """Run the unpacking program for a digest or a `tag` like a Job.

    Returns its exit code and its log.
    """
    tools, volume, docker = folder / "tools", folder / "volume", folder / "docker"
    for path in (tools, volume, docker):
        path.mkdir(exist_ok=True)
    install_kit(tools)
    (docker / "config.json").write_text(registry.docker_config)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "MODELPLANE_IMAGE": f"{registry.host}/models/qwen"
        + (f":{tag}" if tag else f"@{digest}"),
        "MODELPLANE_REVISION": digest,
        "MODELPLANE_ARTEFACT_KEY": "key-1",
        "MODELPLANE_TARGET": str(volume),
        "MODELPLANE_PLAIN_HTTP": "true" if plain else "false",
        "KITOPS_HOME": str(volume / ".modelplane" / "kit"),
        **({"DOCKER_CONFIG": str(docker)} if login else {}),
    }
    ended = subprocess.run(
        [*around, "/bin/sh", "-c", OCI_BY_TAG if tag else OCI],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr


def test_a_pack_is_pulled_by_digest_and_unpacked(
    registry: LocalRegistry, tmp_path: Path
) -> None:
    digest = registry.push(
        "models/qwen:1.0", {"config.json": b"{}", "weights/model.bin": b"w" * 100}
    )
    code, log = unpacked(registry, tmp_path, digest)
    assert code == 0, log
    assert (tmp_path / "volume" / "weights" / "model.bin").read_bytes() == b"w" * 100
    marker = json.loads((tmp_path / "volume" / MARKER).read_text())
    assert (marker["source"], marker["commit"], marker["artefactKey"]) == (
        "OCI",
        digest,
        "key-1",
    )
    before = len(registry.requests)
    assert unpacked(registry, tmp_path, digest) == (0, "already staged\n")
    assert len(registry.requests) == before


def test_a_pack_by_tag_is_unpacked_by_the_digest_of_the_tag(
    registry: LocalRegistry, tmp_path: Path
) -> None:
    digest = registry.push("models/qwen:2.0", {"model.bin": b"w"})
    requested = len(registry.requests)
    code, log = unpacked(registry, tmp_path, "", tag="2.0")
    assert code == 0, log
    assert json.loads((tmp_path / "volume" / MARKER).read_text())["commit"] == digest
    assert registry.requests[requested:][:2] == [
        "/v2/models/qwen/manifests/2.0",
        f"/v2/models/qwen/manifests/{digest}",
    ]


def test_a_digest_that_is_not_there_is_final(
    registry: LocalRegistry, tmp_path: Path
) -> None:
    code, log = unpacked(registry, tmp_path, "sha256:" + "00" * 32)
    assert (code, "404" in log) == (42, True)
    assert not (tmp_path / "volume" / MARKER).exists()


def test_a_registry_with_authentication_gets_the_login_of_the_pull_secret(
    tmp_path: Path,
) -> None:
    with local_registry("open-sesame") as guarded:
        digest = guarded.push("models/qwen:1.0", {"model.bin": b"w"})
        code, log = unpacked(guarded, tmp_path, digest)
        assert code == 41, log
        code, log = unpacked(guarded, tmp_path, digest, login=True)
        assert code == 0, log
        assert (tmp_path / "volume" / "model.bin").exists()


@pytest.mark.parametrize(
    "scratch", [True, False], ids=["scratch on the node", "scratch on the volume"]
)
def test_an_unwritable_volume_is_not_reported_as_a_rejected_credential(
    registry: LocalRegistry, tmp_path: Path, scratch: bool
) -> None:
    """Root cannot write to the folder, like on a share with root squash."""
    digest = registry.push("models/qwen:1.0", {"model.bin": b"w"})
    volume = tmp_path / "volume"
    volume.mkdir()
    if scratch:
        (volume / ".modelplane" / "kit").mkdir(parents=True)
    volume.chmod(0o555)
    code, log = unpacked(registry, tmp_path, digest, "unshare", "--user")
    assert (code, "permission denied" in log.lower()) == (1, True), log
    assert "no_root_squash" in log.splitlines()[-1]


def test_tls_is_used_unless_plain_http_is_requested(
    registry: LocalRegistry, tmp_path: Path
) -> None:
    digest = registry.push("models/qwen:1.0", {"model.bin": b"w"})
    code, log = unpacked(registry, tmp_path, digest, plain=False)
    assert code == 1
    assert "ssl" in log.lower()
