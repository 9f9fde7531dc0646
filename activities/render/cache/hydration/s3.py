"""Fill a volume with the objects below one prefix of an S3 bucket, once.

Together with the text of `common` this file is a program, like `huggingface`. It reads
only environment variables. The listing has names, sizes and ETags. Its digest is the
revision, so all clusters have the same files, or report that the bucket has others. An
interrupted download continues at the byte where it stopped.

The control plane uses the pure functions of this file to pin a listing.
"""

import configparser
import errno
import hashlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from activities.render.cache.hydration.common import (
    AUTH_REFUSED,
    KEPT,
    MISSING,
    NOT_FOUND,
    SECRETS,
    UNAUTHORIZED,
    Hopeless,
    arrived,
    check_files,
    check_space,
    client,
    run,
    say,
    staged,
    write_marker,
)

CREDENTIALS = "MODELPLANE_S3_CREDENTIALS"
HIDDEN = ".modelplane"
WORK = f"{HIDDEN}/s3"
FILES_AT_ONCE = 8
CHUNK_BYTES = 8 << 20
PARTIAL = 206
CHANGED = 412
# Error codes of a bucket in another region, and of an object that was moved to an
# archive.
ELSEWHERE = (
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
)
ARCHIVED = "InvalidObjectState"


class Login(NamedTuple):
    """The key of an account; `token` is empty for permanent keys."""

    key_id: str
    secret: str
    token: str


class File(NamedTuple):
    """An object of the bucket; `name` is its path in the volume."""

    name: str
    size: int
    etag: str
    key: str


def read_login(text: str) -> Login:
    """Read the profile `default` of an AWS credentials file.

    Raises ValueError without the text.
    """
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        profile = parser["default"]
        return Login(
            profile["aws_access_key_id"],
            profile["aws_secret_access_key"],
            profile.get("aws_session_token", ""),
        )
    except (configparser.Error, KeyError):
        raise ValueError(
            "it must have a section [default] with aws_access_key_id and aws_secret_access_key"
        ) from None


def file_name(key: str, prefix: str) -> str:
    """Return the path in the volume for a key below the prefix.

    It is empty for a folder. Raises ValueError if the key has no valid path.
    """
    if key.endswith("/"):
        return ""
    name = key[len(prefix) :]
    parts = name.split("/")
    if (
        not key.startswith(prefix)
        or not all(parts)
        or "\0" in name
        or {".", ".."} & set(parts)
        or parts[0].startswith(HIDDEN)
    ):
        raise ValueError(f"{key!r} cannot be the name of a file in the volume")
    return name


def listing_digest(files: Sequence[File]) -> str:
    """Return the digest of a listing; it does not depend on the order."""
    listed = sorted([file.name, file.size, file.etag.strip('"')] for file in files)
    return (
        "sha256:"
        + hashlib.sha256(json.dumps(listed, separators=(",", ":")).encode()).hexdigest()
    )


@dataclass(frozen=True)
class S3Order:
    """The download: source and target.

    `prefix` is empty or ends in `/`. Without `revision` the present objects are staged.
    """

    endpoint: str
    region: str
    bucket: str
    prefix: str
    addressing: str
    revision: str
    artefact_key: str
    target: Path
    requirements: str

    @classmethod
    def from_environment(cls) -> "S3Order":
        """Read the order from the environment.

        A missing variable is a defect of the Job.
        """
        environ = os.environ
        return cls(
            endpoint=environ["MODELPLANE_S3_ENDPOINT"],
            region=environ["MODELPLANE_S3_REGION"],
            bucket=environ["MODELPLANE_S3_BUCKET"],
            prefix=environ["MODELPLANE_S3_PREFIX"],
            addressing=environ["MODELPLANE_S3_ADDRESSING"],
            revision=environ.get("MODELPLANE_REVISION", ""),
            artefact_key=environ["MODELPLANE_ARTEFACT_KEY"],
            target=Path(environ["MODELPLANE_TARGET"]),
            requirements=environ["MODELPLANE_CLIENT_REQUIREMENTS"],
        )

    @property
    def origin(self) -> str:
        """The source of the files, for messages."""
        return f"s3://{self.bucket}/{self.prefix}"


def main() -> int:
    """Carry out the order of the environment; return the exit code."""
    return run(fill)


def fill() -> None:
    """Fill the volume, unless it is filled already."""
    order = S3Order.from_environment()
    if staged(order.target, order.artefact_key):
        say("already staged")
        return
    login = given_login()
    boto3 = client("boto3", order.requirements, CREDENTIALS)
    errors = importlib.import_module("botocore.exceptions")
    try:
        stage(order, connect(order, login, boto3))
    except errors.ClientError as error:
        raise verdict_of(error.response, order) from error
    except errors.BotoCoreError as error:
        raise OSError(errno.EIO, f"{order.endpoint}: {error}") from error


def given_login() -> Login | None:
    """Return the key of the Secret; None without one."""
    text = os.environ.get(CREDENTIALS)
    if not text:
        return None
    try:
        login = read_login(text)
    except ValueError as error:
        raise Hopeless(
            AUTH_REFUSED, f"the credentials of the Secret cannot be read: {error}"
        ) from None
    SECRETS.extend(value for value in (login.secret, login.token) if value)
    return login


def connect(order: S3Order, login: Login | None, boto3: Any) -> Any:
    """Return a client with the key of the Secret, the service account of the pod, or no login."""
    named = {}
    if login:
        named = {
            "aws_access_key_id": login.key_id,
            "aws_secret_access_key": login.secret,
            "aws_session_token": login.token or None,
        }
    session = boto3.session.Session(**named)
    anonymous = session.get_credentials() is None
    config = importlib.import_module("botocore.config").Config(
        s3={"addressing_style": order.addressing},
        retries={"mode": "standard", "max_attempts": 5},
        max_pool_connections=FILES_AT_ONCE,
        # Servers other than AWS do not support these checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        signature_version=importlib.import_module("botocore").UNSIGNED
        if anonymous
        else None,
    )
    return session.client(
        "s3", endpoint_url=order.endpoint, region_name=order.region, config=config
    )


def stage(order: S3Order, s3: Any) -> None:
    """Download, check the files, and write the marker."""
    files = listing(order, s3)
    digest = listing_digest(files)
    if order.revision not in ("", digest):
        raise Hopeless(
            NOT_FOUND,
            f"the files of {order.origin} ({digest}) differ from the pinned files "
            f"({order.revision}): restore them, or set the "
            "cache's annotation for a refresh to another value to stage what is there",
        )
    work = order.target / WORK
    forget_other(order.target, work, digest)
    sizes = {file.name: file.size for file in files}
    check_space(order.target, sum(missing(order.target, work, file) for file in files))
    say(f"downloading {order.origin} at {digest}: {len(files)} files")
    pool = ThreadPoolExecutor(FILES_AT_ONCE)
    try:
        for _ in pool.map(lambda file: fetch(order, s3, work, file), files):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
    check_files(order.target, sizes)
    shutil.rmtree(order.target / HIDDEN, ignore_errors=True)
    write_marker(order.target, order.artefact_key, "S3", order.origin, digest)


def listing(order: S3Order, s3: Any) -> list[File]:
    """List the objects below the prefix."""
    files = []
    for page in s3.get_paginator("list_objects_v2").paginate(
        Bucket=order.bucket, Prefix=order.prefix
    ):
        for item in page.get("Contents") or ():
            try:
                name = file_name(item["Key"], order.prefix)
            except ValueError as error:
                raise Hopeless(NOT_FOUND, f"{order.origin}: {error}") from None
            if name:
                files.append(File(name, item["Size"], item["ETag"], item["Key"]))
    if not files:
        raise Hopeless(NOT_FOUND, f"no object is below {order.origin}")
    folders = {str(parent) for file in files for parent in Path(file.name).parents}
    if both := sorted(folders & {file.name for file in files}):
        raise Hopeless(
            NOT_FOUND,
            f"{order.origin}: {both[0]!r} is an object and the prefix of others; "
            "a file cannot be a folder too",
        )
    return files


def forget_other(target: Path, work: Path, digest: str) -> None:
    """Empty a volume with the files of another listing.

    A file with equal name and size would pass for the new one.
    """
    stamp = work / "listing"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return
    for path in target.iterdir():
        if path.name in KEPT:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    work.mkdir(parents=True)
    stamp.write_text(digest, encoding="utf-8")


def part_of(work: Path, file: File) -> Path:
    """Return the path of a file while it is incomplete."""
    return work / hashlib.sha256(file.name.encode()).hexdigest()


def missing(target: Path, work: Path, file: File) -> int:
    """Return the number of missing bytes of a file."""
    part = part_of(work, file)
    if arrived(target / file.name, file.size):
        return 0
    return file.size - min(file.size, part.stat().st_size if part.is_file() else 0)


def fetch(order: S3Order, s3: Any, work: Path, file: File) -> None:
    """Download one file as listed, from the byte where an earlier attempt stopped."""
    target, part = order.target / file.name, part_of(work, file)
    if arrived(target, file.size):
        return
    broken = importlib.import_module("botocore.exceptions").BotoCoreError
    part.touch()
    while (have := part.stat().st_size) < file.size:
        try:
            receive(order, s3, file, part, have)
        except broken:
            # Long connections break now and then.
            if part.stat().st_size <= have:
                raise
    if have > file.size:
        part.unlink()
        raise OSError(errno.EIO, f"{file.name} has more bytes than were listed")
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)


def receive(order: S3Order, s3: Any, file: File, part: Path, have: int) -> None:
    """Append the bytes of a response to the file."""
    wanted = {"Range": f"bytes={have}-"} if have else {}
    answer = s3.get_object(
        Bucket=order.bucket, Key=file.key, IfMatch=file.etag, **wanted
    )
    resumed = answer["ResponseMetadata"]["HTTPStatusCode"] == PARTIAL
    with part.open("ab" if resumed else "wb") as out:
        for chunk in answer["Body"].iter_chunks(CHUNK_BYTES):
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())


def verdict_of(response: dict[str, Any], order: S3Order) -> Exception:
    """Map an error of the server to an exit code."""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    found = response.get("Error", {})
    said = f"({status} {found.get('Code', '')}: {found.get('Message', '')})"
    if found.get("Code") in ELSEWHERE:
        return Hopeless(
            NOT_FOUND,
            f"{order.origin} is not in region {order.region} of {order.endpoint} {said}",
        )
    if found.get("Code") == ARCHIVED:
        return Hopeless(
            NOT_FOUND, f"an object of {order.origin} is archived: restore it {said}"
        )
    if status in UNAUTHORIZED:
        return Hopeless(
            AUTH_REFUSED,
            f"{order.endpoint} refused the credentials for {order.origin} {said}",
        )
    if status == MISSING:
        return Hopeless(NOT_FOUND, f"{order.origin} does not exist {said}")
    if status == CHANGED:
        return OSError(errno.EIO, f"{order.origin} changed during the download {said}")
    return OSError(errno.EIO, f"{order.endpoint} answered for {order.origin} {said}")


if __name__ == "__main__":
    sys.exit(main())
