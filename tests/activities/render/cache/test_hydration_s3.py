"""The program that stages a bucket, in a process of its own.

It uses the real client and an S3 server on loopback.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from activities.render.cache.hydration import S3, S3_REQUIREMENTS
from activities.render.cache.hydration.s3 import (
    File,
    file_name,
    listing_digest,
    read_login,
)
from tests.environment.local_s3 import REGION, LocalS3, local_s3

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
MARKER = ".modelplane-hydrated"
FILES = {
    "qwen/config.json": b"{}",
    "qwen/weights/model one.safetensors": b"w" * 4096,
    "qwen/empty": b"",
    "qwen/": b"",
    "other/x": b"o",
}
ADMINISTRATOR = "[default]\naws_access_key_id = admin\naws_secret_access_key = admin\n"
LARGE = bytes(range(256)) * 80_000


@pytest.fixture(scope="module")
def s3() -> Iterator[LocalS3]:
    with local_s3() as server:
        server.put("models", FILES)
        server.put("large", {"model.bin": LARGE})
        yield server


@pytest.fixture(autouse=True)
def fresh(s3: LocalS3) -> None:
    s3.requests.clear()
    s3.ranges.clear()
    s3.on_bytes = None


def environment(
    s3: LocalS3, volume: Path, bucket: str, prefix: str, given: Mapping[str, str]
) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(volume.parent),
        "AWS_EC2_METADATA_DISABLED": "true",
        "MODELPLANE_S3_ENDPOINT": s3.address,
        "MODELPLANE_S3_REGION": REGION,
        "MODELPLANE_S3_BUCKET": bucket,
        "MODELPLANE_S3_PREFIX": prefix,
        "MODELPLANE_S3_ADDRESSING": "path",
        "MODELPLANE_REVISION": "",
        "MODELPLANE_ARTEFACT_KEY": "key-1",
        "MODELPLANE_TARGET": str(volume),
        "MODELPLANE_CLIENT_REQUIREMENTS": S3_REQUIREMENTS,
        "MODELPLANE_S3_CREDENTIALS": ADMINISTRATOR,
        **given,
    }


def hydrate(
    s3: LocalS3,
    volume: Path,
    bucket: str = "models",
    prefix: str = "qwen/",
    **given: str,
) -> tuple[int, str]:
    """Run the program like a Job. Returns its exit code and its last line."""
    variables = environment(s3, volume, bucket, prefix, given)
    ended = subprocess.run(
        [sys.executable, "-c", S3],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, (ended.stderr.splitlines() or [""])[-1]


def staged_files(volume: Path) -> dict[str, bytes]:
    found = (
        path
        for path in sorted(volume.rglob("*"))
        if path.is_file() and path.name != MARKER
    )
    return {path.relative_to(volume).as_posix(): path.read_bytes() for path in found}


def marker(volume: Path) -> dict[str, str]:
    written: dict[str, str] = json.loads((volume / MARKER).read_text())
    return written


def test_objects_below_the_prefix_are_staged_and_the_marker_names_their_digest(
    s3: LocalS3, tmp_path: Path
) -> None:
    code, said = hydrate(s3, tmp_path)
    assert code == 0, said
    assert staged_files(tmp_path) == {
        "config.json": b"{}",
        "empty": b"",
        "weights/model one.safetensors": b"w" * 4096,
    }
    written = marker(tmp_path)
    assert (written["source"], written["repo"], written["artefactKey"]) == (
        "S3",
        "s3://models/qwen/",
        "key-1",
    )
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", written["commit"])
    before = len(s3.requests)
    assert hydrate(s3, tmp_path) == (0, "already staged")
    assert len(s3.requests) == before


def test_a_listing_that_differs_from_the_pinned_one_is_final(
    s3: LocalS3, tmp_path: Path
) -> None:
    s3.put("moving", {"model.bin": b"first"})
    assert (
        hydrate(s3, tmp_path / "..", "moving", "", MODELPLANE_TARGET=str(tmp_path))[0]
        == 0
    )
    pinned = marker(tmp_path)["commit"]
    (tmp_path / MARKER).unlink()
    assert hydrate(s3, tmp_path, "moving", "", MODELPLANE_REVISION=pinned)[0] == 0
    (tmp_path / MARKER).unlink()
    s3.put("moving", {"model.bin": b"other"})
    code, said = hydrate(s3, tmp_path, "moving", "", MODELPLANE_REVISION=pinned)
    assert code == 42
    assert "the files of s3://moving/" in said
    assert "annotation for a refresh" in said
    assert not (tmp_path / MARKER).exists()


def test_files_of_another_listing_do_not_count_as_staged(
    s3: LocalS3, tmp_path: Path
) -> None:
    """Without a pin, a file of the same name and size would otherwise stay."""
    s3.put("mixed", {"a.bin": b"1111", "gone.bin": b"1"})
    assert hydrate(s3, tmp_path, "mixed", "")[0] == 0
    (tmp_path / MARKER).unlink()
    s3.put("mixed", {"a.bin": b"2222"})
    s3.administrator("s3").delete_object(Bucket="mixed", Key="gone.bin")
    assert hydrate(s3, tmp_path, "mixed", "")[0] == 0
    assert staged_files(tmp_path) == {"a.bin": b"2222"}


def test_a_broken_connection_resumes_where_it_broke(
    s3: LocalS3, tmp_path: Path
) -> None:
    s3.cut_after = 9_000_000
    code, said = hydrate(s3, tmp_path, "large", "")
    assert code == 0, said
    assert 0 < int(s3.ranges[0].removeprefix("bytes=").removesuffix("-")) <= 9_000_000
    assert staged_files(tmp_path) == {"model.bin": LARGE}


@pytest.mark.parametrize(
    ("ending", "code"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 128 + 15)],
    ids=["killed", "asked to end"],
)
def test_an_interrupted_download_resumes_where_it_stopped(
    s3: LocalS3, tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", S3],
        env=environment(s3, tmp_path, "large", "", {}),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def end_it() -> None:
        if any(
            part.stat().st_size
            for part in (tmp_path / ".modelplane" / "s3").glob("?" * 64)
        ):
            process.send_signal(ending)
            process.wait()

    s3.on_bytes = end_it
    process.communicate()
    assert process.returncode == code
    assert not (tmp_path / MARKER).exists()
    s3.on_bytes = None
    assert hydrate(s3, tmp_path, "large", "")[0] == 0
    assert int(s3.ranges[0].removeprefix("bytes=").removesuffix("-")) > 0
    assert staged_files(tmp_path) == {"model.bin": LARGE}


def test_an_object_that_changes_after_it_was_listed_is_not_staged(
    s3: LocalS3, tmp_path: Path
) -> None:
    s3.put("changing", {"a.bin": b"1111"})

    def change_it() -> None:
        s3.on_bytes = None
        s3.put("changing", {"a.bin": b"2222"})

    s3.on_bytes = change_it
    code, said = hydrate(s3, tmp_path, "changing", "")
    assert (code, "changed during the download" in said) == (1, True)
    assert not (tmp_path / MARKER).exists()


class Case(NamedTuple):
    """The bucket of a Job, and its expected end."""

    story: str
    code: int
    says: str
    bucket: str = "models"
    prefix: str = "qwen/"
    login: str = ""


REFUSALS = [
    Case("no such bucket", 42, "does not exist", bucket="none", login="none"),
    Case(
        "nothing below the prefix",
        42,
        "no object is below s3://models/absent/",
        prefix="absent/",
        login="models",
    ),
    Case("a key for another bucket", 41, "refused the credentials", login="large"),
    Case("a key that does not exist", 41, "refused the credentials", login="!"),
    Case(
        "a Secret that is no credentials file",
        41,
        "cannot be read: it must have a section [default]",
        login="?",
    ),
    Case("its own key", 0, "staged s3://models/qwen/", login="models"),
]
LOGINS = {
    "!": "[default]\naws_access_key_id = AKIAUNKNOWN\naws_secret_access_key = wrong\n",
    "?": "just a password",
}


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.story)
def test_errors_of_the_real_client_become_exit_codes(
    s3: LocalS3, tmp_path: Path, case: Case
) -> None:
    login = LOGINS.get(case.login) or s3.login(case.login)
    with s3.guarded():
        code, said = hydrate(
            s3, tmp_path, case.bucket, case.prefix, MODELPLANE_S3_CREDENTIALS=login
        )
    assert code == case.code, said
    assert case.says in said
    assert len(said.encode()) <= 1024
    assert (tmp_path / MARKER).exists() == (code == 0)


def test_the_log_does_not_hold_the_key(s3: LocalS3, tmp_path: Path) -> None:
    login = ADMINISTRATOR.replace(
        "secret_access_key = admin", "secret_access_key = qwen"
    )
    code, said = hydrate(s3, tmp_path, MODELPLANE_S3_CREDENTIALS=login)
    assert (code, "s3://models/***/" in said) == (0, True)


def test_a_public_bucket_needs_no_credentials_and_a_private_one_does(
    s3: LocalS3, tmp_path: Path
) -> None:
    s3.put("public", {"a.bin": b"1"}, acl="public-read")
    assert hydrate(s3, tmp_path, "public", "", MODELPLANE_S3_CREDENTIALS="")[0] == 0
    s3.put("private", {"a.bin": b"1"})
    (tmp_path / MARKER).unlink()
    assert hydrate(s3, tmp_path, "private", "", MODELPLANE_S3_CREDENTIALS="")[0] == 41


def test_a_volume_without_room_is_final(s3: LocalS3, tmp_path: Path) -> None:
    s3.put("sized", {"a.bin": b"1"})
    program = S3.replace("shutil.disk_usage(target).free", "0")
    assert program != S3
    variables = environment(s3, tmp_path, "sized", "", {})
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 43
    assert (
        "the volume has 0 bytes free, but 1 bytes are missing: raise sizeGiB"
        in ended.stderr
    )


def test_a_server_that_does_not_answer_is_retried(tmp_path: Path) -> None:
    code, said = hydrate(LocalS3(address="http://127.0.0.1:9"), tmp_path)
    assert code == 1
    assert "127.0.0.1:9" in said


@pytest.mark.parametrize(
    "key",
    ["a/../../x", "/x", "a//b", ".modelplane-hydrated", ".modelplane/s3/listing"],
    ids=str,
)
def test_a_key_that_leads_out_of_the_volume_is_refused(
    s3: LocalS3, tmp_path: Path, key: str
) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        file_name(f"qwen/{key}", "qwen/")
    bucket = f"evil-{abs(hash(key)) % 10**8}"
    s3.put(bucket, {key: b"x"})
    volume = tmp_path / "volume"
    volume.mkdir()
    code, said = hydrate(s3, volume, bucket, "")
    assert (code, "cannot be the name of a file" in said) == (42, True)
    assert [path.name for path in tmp_path.iterdir()] == ["volume"]


def test_an_object_that_others_need_as_a_folder_is_refused(
    s3: LocalS3, tmp_path: Path
) -> None:
    s3.put("both", {"a": b"x", "a/b": b"y"})
    code, said = hydrate(s3, tmp_path, "both", "")
    assert (code, "'a' is an object and the prefix of others" in said) == (42, True)


def test_the_digest_covers_the_listing_and_not_its_order() -> None:
    one, two = File("a", 1, '"e1"', "p/a"), File("b", 2, '"e2"', "p/b")
    digest = listing_digest([one, two])
    assert digest == listing_digest([two, one._replace(etag="e1", key="q/a")])
    others = [one._replace(name="c"), one._replace(size=2), one._replace(etag='"e3"')]
    assert len({digest, *(listing_digest([each, two]) for each in others)}) == 4


def test_a_profile_of_a_credentials_file_is_read() -> None:
    text = (
        "[default]\naws_access_key_id=AK\naws_secret_access_key = "
        "s%3/+=\naws_session_token=t\n[other]\naws_access_key_id=x\n"
    )
    assert read_login(text) == ("AK", "s%3/+=", "t")
    for wrong in (
        "",
        "[default]\naws_access_key_id=AK\n",
        "[other]\naws_access_key_id=x\naws_secret_access_key=y\n",
    ):
        with pytest.raises(ValueError, match="section"):
            read_login(wrong)


def test_the_hashes_of_the_client_match_the_tested_versions() -> None:
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", S3_REQUIREMENTS, re.MULTILINE))
    tested = dict(
        re.findall(
            r"^([\w.-]+)==(\S+)",
            (ROOT / "requirements-dev.lock").read_text(),
            re.MULTILINE,
        )
    )
    assert "boto3" in locked
    assert locked.items() <= tested.items()
    assert all("--hash=sha256:" in line for line in S3_REQUIREMENTS.splitlines())
    assert (
        "**/*.lock"
        in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
            "package-data"
        ]["activities"]
    )


def test_the_program_needs_none_of_our_packages(s3: LocalS3, tmp_path: Path) -> None:
    assert "from activities" not in S3
    assert "import activities" not in S3
    (tmp_path / "volume").mkdir()
    assert hydrate(s3, tmp_path / "volume", PYTHONPATH=str(tmp_path))[0] == 0
