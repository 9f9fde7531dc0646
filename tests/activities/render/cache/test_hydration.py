"""The hydration programs in a process, with a client instead of the network."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from activities.render.cache.hydration import (
    CLIENT_REQUIREMENTS,
    HUGGINGFACE,
    OCI,
    OCI_BY_TAG,
)
from tests.activities.render.cache.programs import MARKER, wait_until

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_verysecret"  # noqa: S105 -- made up
# The part of the hub client's interface that the program uses.
#
# A folder is the hub, and `HUB_ERROR` is the error to raise.
CLIENT = """
import os, shutil, types
from pathlib import Path
from huggingface_hub import errors

HUB = Path(os.environ["HUB"])
SAYS = os.environ.get("HUB_ERROR", "")

def complain(moment):
    kind, _, when = SAYS.partition("@")
    if when == moment and kind == "full":
        raise OSError(28, "No space left on device")
    if when == moment and kind:
        name, _, status = kind.partition(":")
        user = os.environ.get("HF_TOKEN", "anonymous")
        proxy = os.environ.get("HTTPS_PROXY", "")
        error = getattr(errors, name)(f"{status} for {user} by {proxy}")
        error.response = types.SimpleNamespace(status_code=int(status))
        raise error

class HfApi:
    def model_info(self, repo_id, revision, files_metadata):
        assert files_metadata
        complain("info")
        Path(os.environ["RECORDED"]).write_text(f"{repo_id} {revision}")
        size = int(os.environ.get("HUB_SIZE", "0"))
        files = [path for path in sorted(HUB.rglob("*")) if path.is_file()]
        huge = {os.environ.get("HUB_HUGE"): 1 << 60}
        siblings = []
        for path in files:
            name = str(path.relative_to(HUB))
            found = huge.get(name) or size or path.stat().st_size
            siblings.append(types.SimpleNamespace(rfilename=name, size=found))
        return types.SimpleNamespace(sha=os.environ["COMMIT"], siblings=siblings)

def snapshot_download(repo_id, revision, local_dir, allow_patterns, ignore_patterns):
    names = [str(path.relative_to(HUB)) for path in sorted(HUB.rglob("*")) if path.is_file()]
    patterns = {"allow_patterns": allow_patterns, "ignore_patterns": ignore_patterns}
    for name in utils.filter_repo_objects(names, **patterns):
        if source := HUB / name:
            target = Path(local_dir) / source.relative_to(HUB)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists() and target.stat().st_size == source.stat().st_size:
                continue
            shutil.copyfile(source, target)
            with Path(os.environ["RECORDED"] + ".copied").open("a") as log:
                log.write(source.name + chr(10))
            complain("download")
    if SAYS == "lossy":
        (Path(local_dir) / "config.json").unlink()
"""
ERRORS = """
class HfHubHTTPError(Exception): pass
class RepositoryNotFoundError(HfHubHTTPError): pass
class GatedRepoError(RepositoryNotFoundError): pass
class RevisionNotFoundError(HfHubHTTPError): pass
"""
# The behaviour of the client's own function for the patterns of these tests.
UTILS = """
from fnmatch import fnmatch

def filter_repo_objects(items, *, allow_patterns, ignore_patterns):
    for name in items:
        wanted = ["*"] if allow_patterns is None else allow_patterns
        allowed = any(fnmatch(name, each) for each in wanted)
        ignored = any(fnmatch(name, each) for each in ignore_patterns or ())
        if allowed and not ignored:
            yield name
"""


class Hub:
    """A hub of two files, a volume, and the program that connects them."""

    def __init__(self, folder: Path) -> None:
        self.volume, self.hub, self.packages, self.recorded = (
            folder / name for name in ("volume", "hub", "packages", "recorded")
        )
        for path in (
            self.volume,
            self.hub / "weights",
            self.packages / "huggingface_hub",
        ):
            path.mkdir(parents=True)
        (self.hub / "config.json").write_text("{}")
        (self.hub / "weights" / "model.safetensors").write_bytes(b"w" * 4096)
        (self.packages / "huggingface_hub" / "errors.py").write_text(ERRORS)
        (self.packages / "huggingface_hub" / "__init__.py").write_text(
            "from . import errors, utils\n" + CLIENT
        )
        (self.packages / "huggingface_hub" / "utils.py").write_text(UTILS)

    def run(self, **environ: str) -> subprocess.CompletedProcess[str]:
        base = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(self.packages),
            "MODELPLANE_REPO": "acme/tiny",
            "MODELPLANE_REVISION": COMMIT,
            "MODELPLANE_ARTEFACT_KEY": "key-1",
            "MODELPLANE_TARGET": str(self.volume),
            "MODELPLANE_CLIENT_REQUIREMENTS": CLIENT_REQUIREMENTS,
            "HUB": str(self.hub),
            "RECORDED": str(self.recorded),
            "COMMIT": COMMIT,
        }
        command = [sys.executable, "-c", HUGGINGFACE]
        return subprocess.run(
            command,
            env={**base, **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def marker(self) -> Mapping[str, str]:
        written: Mapping[str, str] = json.loads((self.volume / MARKER).read_text())
        return written

    @property
    def copied(self) -> list[str]:
        return Path(f"{self.recorded}.copied").read_text().split()


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def test_only_the_selected_files_are_downloaded_and_count_for_the_space(
    hub: Hub,
) -> None:
    (hub.hub / "original").mkdir()
    (hub.hub / "original" / "model.pth").write_text("as large as the hub says")
    huge = {"HUB_HUGE": "original/model.pth"}
    assert hub.run(**huge).returncode == 43
    assert hub.run(**huge, MODELPLANE_IGNORE_PATTERNS='["original/*"]').returncode == 0
    assert not (hub.volume / "original").exists()
    assert hub.copied == ["config.json", "model.safetensors"]


def test_patterns_that_select_nothing_are_final(hub: Hub) -> None:
    ended = hub.run(MODELPLANE_ALLOW_PATTERNS='["*.gguf"]')
    assert ended.returncode == 42
    assert (
        "allowPatterns and ignorePatterns select none of the 2 files of acme/tiny"
        in ended.stderr
    )


def test_a_download_ends_with_a_marker_that_names_the_artifact(hub: Hub) -> None:
    assert hub.run().returncode == 0
    assert (hub.volume / "weights" / "model.safetensors").stat().st_size == 4096
    assert hub.recorded.read_text() == f"acme/tiny {COMMIT}"
    assert hub.marker["finished"].endswith("Z")
    assert {
        name: value for name, value in hub.marker.items() if name != "finished"
    } == {
        "source": "HuggingFace",
        "repo": "acme/tiny",
        "commit": COMMIT,
        "artefactKey": "key-1",
    }
    assert not (hub.volume / f"{MARKER}.part").exists()


def test_files_of_another_commit_that_an_earlier_attempt_left_are_removed(
    hub: Hub,
) -> None:
    """A branch may move between attempts, and engines load every shard."""
    old = [
        hub.volume / "model-00002.safetensors",
        hub.volume / "weights" / "old.safetensors",
    ]
    kept = [
        hub.volume / name
        for name in (
            "lost+found/1",
            ".snapshot/1",
            "other/model.safetensors",
            "config.json",
        )
    ]
    for path in (*old, *kept):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    # The file in which the client records a downloaded file.
    for path in (*old, hub.volume / "config.json"):
        note = (
            hub.volume
            / ".cache/huggingface/download"
            / f"{path.relative_to(hub.volume)}.metadata"
        )
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
    assert hub.run().returncode == 0
    assert [path for path in (*old, *kept) if path.exists()] == kept
    assert hub.copied == ["model.safetensors"]


def test_a_staged_volume_is_left_alone(hub: Hub) -> None:
    hub.run()
    again = hub.run(HUB_ERROR="HfHubHTTPError:500@info")
    assert (again.returncode, again.stderr) == (0, "already staged\n")


def test_an_empty_revision_means_the_default_branch(hub: Hub) -> None:
    assert hub.run(MODELPLANE_REVISION="").returncode == 0
    assert hub.recorded.read_text() == "acme/tiny None"


def test_an_interrupted_download_writes_no_marker_and_resumes(hub: Hub) -> None:
    assert hub.run(HUB_ERROR="HfHubHTTPError:503@download").returncode == 1
    assert not (hub.volume / MARKER).exists()
    assert hub.run().returncode == 0
    assert hub.copied == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    "marker",
    ['{"artefactKey": "key-0"}', "", "[]"],
    ids=["another artifact", "bare", "a list"],
)
def test_a_marker_of_another_artifact_does_not_stop_the_download(
    hub: Hub, marker: str
) -> None:
    (hub.volume / MARKER).write_text(marker)
    assert hub.run().returncode == 0
    assert hub.marker["artefactKey"] == "key-1"


@pytest.mark.parametrize(
    ("says", "token", "code"),
    [
        pytest.param("GatedRepoError:403@download", "", 41, id="gated"),
        pytest.param("HfHubHTTPError:401@info", TOKEN, 41, id="token refused"),
        pytest.param(
            "RepositoryNotFoundError:401@info",
            TOKEN,
            41,
            id="private and the token refused",
        ),
        pytest.param(
            "RepositoryNotFoundError:401@info",
            "",
            42,
            id="unknown without a token",
        ),
        pytest.param(
            "RepositoryNotFoundError:404@info",
            TOKEN,
            42,
            id="no such repository",
        ),
        pytest.param("RevisionNotFoundError:404@info", "", 42, id="no such revision"),
        pytest.param("full@download", "", 43, id="volume full"),
        pytest.param("HfHubHTTPError:500@info", "", 1, id="the hub is ill"),
        pytest.param("HfHubHTTPError:429@info", TOKEN, 1, id="too many requests"),
        pytest.param("lossy", "", 1, id="a file did not arrive"),
    ],
)
def test_the_exit_code_says_whether_a_retry_can_help(
    hub: Hub, says: str, token: str, code: int
) -> None:
    ended = hub.run(HUB_ERROR=says, **({"HF_TOKEN": token} if token else {}))
    assert ended.returncode == code, ended.stderr
    assert not (hub.volume / MARKER).exists()
    assert TOKEN not in ended.stdout + ended.stderr
    assert 0 < len(ended.stderr.splitlines()[-1].encode()) <= 1024


def test_the_login_of_a_proxy_is_not_in_the_log_and_its_address_alone_is(
    hub: Hub,
) -> None:
    ended = hub.run(
        HUB_ERROR="HfHubHTTPError:500@info",
        HTTPS_PROXY="http://robot:pa55word@proxy:3128",
    )
    assert (ended.returncode, "pa55word" in ended.stderr) == (1, False)
    assert (
        "http://proxy:3128"
        in hub.run(
            HUB_ERROR="HfHubHTTPError:500@info", HTTPS_PROXY="http://proxy:3128"
        ).stderr
    )


@pytest.mark.parametrize("password", ["pa55/word", "pa55#word", "pa55?word"])
def test_a_login_that_clients_would_read_as_a_host_is_not_given_to_them(
    hub: Hub, password: str
) -> None:
    """The client quotes `Invalid port` with the login, which the status must not show."""
    for address in (
        f"http://robot:{password}@proxy:3128",
        f"robot:{password}@proxy:3128",
    ):
        ended = hub.run(HTTPS_PROXY=address)
        assert (ended.returncode, "pa55" in ended.stderr) == (41, False)
        assert "%2F" in ended.stderr
    assert hub.run(HTTPS_PROXY="http://robot:pa55%2Fword@proxy:3128/").returncode == 0


def test_a_download_that_cannot_fit_does_not_start(hub: Hub) -> None:
    ended = hub.run(HUB_SIZE=str(1 << 60))
    assert ended.returncode == 43
    assert "raise sizeGiB" in ended.stderr
    assert not (hub.volume / "config.json").exists()


def test_a_malicious_repository_name_is_never_executed(hub: Hub) -> None:
    hub.run(MODELPLANE_REPO='a/b"; import os; os._exit(9)  # $(touch pwned)')
    assert hub.recorded.read_text().startswith('a/b"; import os')
    assert hub.marker["repo"].endswith("$(touch pwned)")


# A pack from a registry

# A `kit` that unpacks two files, or fails with the configured error.
#
# It records its arguments. Its output for a tag is configured too.
KIT = """#!/bin/sh
if [ "$1" = inspect ]; then
  printf '%s\\n' "$KIT_INSPECTS"
  exit 0
fi
printf '%s\\n' "$@" > "$RECORDED"
if [ -n "$KIT_SAYS" ]; then echo "Error: $KIT_SAYS" >&2; exit 1; fi
[ -n "$KIT_EMPTY" ] || echo weights > "$MODELPLANE_TARGET/model.bin"
"""


class Registry:
    """A volume, and the unpacking program with a `kit` instead of the network."""

    def __init__(self, folder: Path) -> None:
        self.volume, self.tools, self.recorded = (
            folder / "volume",
            folder / "tools",
            folder / "recorded",
        )
        self.said = folder / "termination-log"
        self.volume.mkdir()
        self.tools.mkdir()
        kit = self.tools / "kit"
        kit.write_text(KIT)
        kit.chmod(0o755)

    def run(self, **environ: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **environ}
        return subprocess.run(
            ["/bin/sh", "-c", OCI],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def started(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["/bin/sh", "-c", OCI],
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "MODELPLANE_IMAGE": "registry.acme.example/models/qwen@sha256:ab",
            "MODELPLANE_REVISION": "sha256:ab",
            "MODELPLANE_ARTEFACT_KEY": "key-1",
            "MODELPLANE_TARGET": str(self.volume),
            "MODELPLANE_PLAIN_HTTP": "false",
            "KITOPS_HOME": str(self.volume / ".modelplane" / "kit"),
            "RECORDED": str(self.recorded),
            "KIT_SAYS": "",
            "KIT_EMPTY": "",
            "KIT_INSPECTS": "",
        }

    def run_by_tag(
        self, image: str, inspected: str
    ) -> subprocess.CompletedProcess[str]:
        """Unpack a tag for which `kit inspect` returns this output.

        A file replaces the termination log of the kubelet.
        """
        self.said.touch()
        program = OCI_BY_TAG.replace("/dev/termination-log", str(self.said))
        environment = {
            **self.environment,
            "MODELPLANE_IMAGE": image,
            "MODELPLANE_REVISION": "",
            "KIT_INSPECTS": inspected,
        }
        return subprocess.run(
            ["/bin/sh", "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path)


def test_an_image_without_kit_is_not_reported_as_a_missing_pack(
    registry: Registry,
) -> None:
    ended = registry.run(PATH=os.environ["PATH"])
    assert (ended.returncode, "oci.kitImage" in ended.stderr) == (1, True)


def test_a_pack_is_unpacked_once_and_marked(registry: Registry) -> None:
    assert registry.run().returncode == 0
    assert registry.recorded.read_text().split() == [
        "unpack",
        "registry.acme.example/models/qwen@sha256:ab",
        "-o",
        "-d",
        str(registry.volume),
    ]
    marker = json.loads((registry.volume / MARKER).read_text())
    assert (marker["source"], marker["commit"], marker["artefactKey"]) == (
        "OCI",
        "sha256:ab",
        "key-1",
    )
    assert not (registry.volume / ".modelplane" / "kit").exists()
    assert registry.run(KIT_SAYS="down").returncode == 0
    assert (
        registry.run(KIT_SAYS="down", MODELPLANE_ARTEFACT_KEY="key-2").returncode == 1
    )


DIGEST = f"sha256:{'ab' * 32}"
INNER = json.dumps({"manifest": {"config": {"digest": DIGEST}}}, indent=2)


@pytest.mark.parametrize(
    ("image", "by_digest"),
    [
        (
            "registry.acme.example/models/qwen:1.0",
            f"registry.acme.example/models/qwen@{DIGEST}",
        ),
        (
            "registry.acme.example:5000/models/qwen:1.0",
            f"registry.acme.example:5000/models/qwen@{DIGEST}",
        ),
        (
            "registry.acme.example:5000/models/qwen",
            f"registry.acme.example:5000/models/qwen@{DIGEST}",
        ),
        ("localhost:5000/qwen:1.0", f"localhost:5000/qwen@{DIGEST}"),
    ],
)
def test_a_tag_is_unpacked_by_its_digest_which_the_kubelet_records(
    registry: Registry, image: str, by_digest: str
) -> None:
    inspected = json.dumps(
        {
            "digest": DIGEST,
            "cliVersion": "1.11.0",
            "manifest": {"config": {"digest": f"sha256:{'cd' * 32}"}},
        },
        indent=2,
    )
    assert registry.run_by_tag(image, inspected).returncode == 0
    assert registry.recorded.read_text().split()[1] == by_digest
    marker = json.loads((registry.volume / MARKER).read_text())
    assert (marker["repo"], marker["commit"], registry.said.read_text()) == (
        by_digest,
        DIGEST,
        f"{DIGEST}\n",
    )
    registry.said.write_text("")
    again = registry.run_by_tag(image, "")
    assert (again.returncode, again.stderr, registry.said.read_text()) == (
        0,
        "already staged\n",
        f"{DIGEST}\n",
    )


@pytest.mark.parametrize(
    "inspected", ["", "Error: unauthorized", INNER, '{\n  "digest": "latest"\n}']
)
def test_a_tag_without_a_known_digest_is_unpacked_as_a_tag(
    registry: Registry, inspected: str
) -> None:
    image = "registry.acme.example/models/qwen:1.0"
    assert registry.run_by_tag(image, inspected).returncode == 0
    assert registry.recorded.read_text().split()[1] == image
    assert (
        json.loads((registry.volume / MARKER).read_text())["commit"],
        registry.said.read_text().strip(),
    ) == ("", "")


def test_plain_http_only_on_request(registry: Registry) -> None:
    registry.run(MODELPLANE_PLAIN_HTTP="true")
    assert registry.recorded.read_text().split()[-1] == "--plain-http"


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("failed to authorize: 401 Unauthorized", 41),
        ("denied: requested access to the resource is denied", 41),
        ("manifest unknown", 42),
        ("registry.acme.example/models/qwen: not found", 42),
        ("write /x: no space left on device", 43),
        ("connection refused", 1),
        ("open /mnt/artifact/weights/model.bin: permission denied", 1),
        ('failed to unpack: "/mnt/artifact/a b": operation not permitted', 1),
        (
            "mkdir: cannot create directory '/mnt/artifact/weights': Permission denied",
            1,
        ),
        ("dial tcp 10.0.0.1:443: connect: permission denied", 1),
        (
            (
                "open /.docker/config.json: permission denied\nError: failed to "
                "authorize: 401 Unauthorized"
            ),
            41,
        ),
        (
            (
                'GET "https://registry.acme.example/v2/models/qwen": denied: '
                'Permission "get" denied on resource'
            ),
            41,
        ),
        ("https://registry.acme.example/v2/models/qwen: permission denied", 41),
    ],
)
def test_the_error_of_the_unpacker_becomes_an_exit_code(
    registry: Registry, says: str, code: int
) -> None:
    ended = registry.run(KIT_SAYS=says)
    assert ended.returncode == code
    assert says in ended.stderr
    assert ("no_root_squash" in ended.stderr) == ("/mnt/artifact" in says)
    assert not (registry.volume / MARKER).exists()


def test_a_volume_counts_as_too_small_when_nothing_of_an_earlier_attempt_is_in_it(
    registry: Registry,
) -> None:
    left = registry.volume / ".modelplane" / "kit" / "storage" / "partial"
    left.parent.mkdir(parents=True)
    left.touch()
    ended = registry.run(KIT_SAYS="no space left on device")
    assert (
        ended.returncode,
        "removed what an earlier attempt left" in ended.stderr,
    ) == (1, True)
    assert not left.exists()
    assert registry.run(KIT_SAYS="no space left on device").returncode == 43
    assert registry.run(KIT_SAYS="no space left on device").returncode == 43, (
        "a log of ours is nothing of the tool"
    )
    assert registry.run().returncode == 0
    assert sorted(path.name for path in registry.volume.iterdir()) == [
        MARKER,
        "model.bin",
    ]


def test_sigterm_ends_the_unpacker_with_a_code_that_is_retried(
    registry: Registry,
) -> None:
    began = registry.tools / "began"
    (registry.tools / "kit").write_text(
        f"#!/bin/sh\necho $$ >{began}\nexec sleep 600\n"
    )
    with registry.started() as job:
        wait_until(lambda: began.exists() and bool(began.read_text()), "the unpacker")
        job.terminate()
        code = job.wait(timeout=20)
        wait_until(
            lambda: not Path(f"/proc/{began.read_text().strip()}").exists(), "its end"
        )
        assert job.stderr
        assert job.stderr.read().startswith("stopped by SIGTERM")
    assert code == 143


def test_an_empty_pack_is_an_error(registry: Registry) -> None:
    assert registry.run(KIT_EMPTY="yes").returncode == 1
    assert not (registry.volume / MARKER).exists()


def test_a_malicious_image_name_is_never_executed(
    registry: Registry, tmp_path: Path
) -> None:
    registry.run(
        MODELPLANE_IMAGE=f"x; touch {tmp_path}/pwned; $(touch {tmp_path}/pwned)"
    )
    assert not (tmp_path / "pwned").exists()
    assert registry.recorded.read_text().splitlines()[1].startswith("x; touch")
