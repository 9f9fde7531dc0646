"""Pin a bucket: the control plane reads the same listing that a Job stages."""

import http.server
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from activities.clients.hubs import s3 as hub
from activities.clients.hubs.s3 import S3Buckets
from activities.render.cache.artifact import Artifact, read_artifact
from activities.render.cache.hydration import S3, S3_REQUIREMENTS
from activities.render.inputs.facts import CacheInput
from api_types.errors import (
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    ServerError,
    Unsupported,
)
from tests.environment.http_server import serving
from tests.environment.local_s3 import REGION, LocalS3, local_s3

LOOPBACK = (ip_network("127.0.0.0/8"),)
ADMINISTRATOR = "[default]\naws_access_key_id = admin\naws_secret_access_key = admin\n"
# Characters that servers and signatures encode in more than one way.
NAMES = ["config.json", "a b+c=d&e.bin", "weights/\u00e4%20.bin", "weights/"]


@pytest.fixture(scope="module")
def s3() -> Iterator[LocalS3]:
    with local_s3() as server:
        server.put(
            "models",
            {f"qwen (1)/{name}": name.encode() * 3 for name in NAMES}
            | {"qwen-2/x": b"x"},
        )
        yield server


def an_artifact(
    address: str, bucket: str = "models", prefix: str = "qwen (1)", **fields: Any
) -> Artifact:
    block = {
        "endpoint": address,
        "bucket": bucket,
        "prefix": prefix,
        "pathStyle": True,
        "sizeGiB": 1,
        **fields,
    }
    return read_artifact(
        CacheInput("ml-team", "qwen", "", 0, "", {"source": "S3", "s3": block})
    )


async def resolved(artifact: Artifact, credential: str = ADMINISTRATOR) -> str:
    return await S3Buckets(LOOPBACK, allow_plain_http=True).resolve(
        artifact, credential
    )


async def raised(
    artifact: Artifact, credential: str = ADMINISTRATOR
) -> ModelplaneError:
    with pytest.raises(ModelplaneError) as caught:
        await resolved(artifact, credential)
    assert credential == "" or credential not in str(caught.value)
    return caught.value


@pytest.mark.slow
async def test_the_pin_is_the_digest_that_a_job_stages(
    s3: LocalS3, tmp_path: Path
) -> None:
    artifact = an_artifact(s3.address)
    pin = await resolved(artifact)
    variables = {
        "PATH": os.environ["PATH"],
        "MODELPLANE_S3_ENDPOINT": s3.address,
        "MODELPLANE_S3_REGION": REGION,
        "MODELPLANE_S3_BUCKET": "models",
        "MODELPLANE_S3_PREFIX": "qwen (1)/",
        "MODELPLANE_S3_ADDRESSING": "path",
        "MODELPLANE_S3_CREDENTIALS": ADMINISTRATOR,
        "MODELPLANE_REVISION": pin,
        "MODELPLANE_ARTEFACT_KEY": "key-1",
        "MODELPLANE_TARGET": str(tmp_path),
        "MODELPLANE_CLIENT_REQUIREMENTS": S3_REQUIREMENTS,
    }
    ended = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-c", S3],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / ".modelplane-hydrated").read_text())["commit"] == pin
    assert sorted(path.name for path in tmp_path.rglob("*.bin")) == [
        "a b+c=d&e.bin",
        "\u00e4%20.bin",
    ]


@pytest.mark.slow
async def test_the_request_is_signed_as_the_server_computes_it(s3: LocalS3) -> None:
    wanted = await resolved(an_artifact(s3.address))
    login, other = s3.login("models"), s3.login("another")
    wrong = login.replace("aws_secret_access_key = ", "aws_secret_access_key = x")
    with s3.guarded():
        assert await resolved(an_artifact(s3.address), login) == wanted
        for refused in (other, wrong):
            assert isinstance(
                await raised(an_artifact(s3.address), refused), CredentialsInvalid
            )


@pytest.mark.slow
async def test_a_listing_of_several_pages_is_read_to_its_end(
    s3: LocalS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"f{number}": b"x" for number in range(7)}
    s3.put("paged", files)
    whole = await resolved(an_artifact(s3.address, "paged", ""))
    url = hub._url

    monkeypatch.setattr(
        hub, "_url", lambda folder, token: f"{url(folder, token)}&max-keys=2"
    )
    s3.requests.clear()
    assert await resolved(an_artifact(s3.address, "paged", ""), "") == whole
    assert len(s3.requests) == 4
    monkeypatch.setattr(hub, "PAGES_MAX", 3)
    error = await raised(an_artifact(s3.address, "paged", ""), "")
    assert isinstance(error, InvalidInput)
    assert "name the folder of the model as prefix" in error.message


@pytest.mark.slow
async def test_an_artifact_that_cannot_be_pinned_has_an_error_by_kind(
    s3: LocalS3,
) -> None:
    s3.put("evil", {"../x": b"x"})
    for artifact, kind, said in (
        (an_artifact(s3.address, "none"), InvalidInput, "does not exist"),
        (
            an_artifact(s3.address, "models", "absent"),
            InvalidInput,
            "no object is below",
        ),
        (
            an_artifact(s3.address, "evil", ""),
            InvalidInput,
            "cannot be the name of a file",
        ),
        (
            an_artifact("http://127.0.0.1:9"),
            ServerError,
            "no usable answer from 127.0.0.1:9",
        ),
        (
            an_artifact("http://169.254.169.254"),
            Unsupported,
            "the worker does not connect to 169.254.169.254",
        ),
    ):
        error = await raised(artifact)
        assert (type(error), said in error.message) == (kind, True), error.message
    assert isinstance(
        await raised(an_artifact(s3.address), "just a password"), CredentialsInvalid
    )


async def test_without_tls_only_with_the_word_of_the_operator(s3: LocalS3) -> None:
    with pytest.raises(Unsupported, match=r"s3\.allowPlainHttp"):
        await S3Buckets(LOOPBACK).resolve(an_artifact(s3.address), "")
    with pytest.raises(Unsupported, match="the worker does not connect"):
        await S3Buckets(allow_plain_http=True).resolve(an_artifact(s3.address), "")


ANSWERS = {
    "no XML": b"<html>",
    "a document type": b'<!DOCTYPE x [<!ENTITY a "aaaa">]>'
    b"<ListBucketResult><Name>&a;</Name></ListBucketResult>",
    "an object without a size": b"<ListBucketResult><Contents><Key>qwen/a</Key>"
    b"<ETag>e</ETag></Contents></ListBucketResult>",
    # Small, but each element takes hundreds of bytes of the worker's memory.
    "more elements than a page has": b"<a>" * 40_000 + b"</a>" * 40_000,
    "more objects than a page has": b"<L>"
    + 1001 * b"<Contents><Key>qwen (1)/a</Key><Size>1</Size><ETag>e</ETag></Contents>"
    + b"</L>",
    "a key that no bucket has": b"<L><Contents><Key>"
    + b"x" * 2000
    + b"</Key><Size>1</Size><ETag>e</ETag></Contents></L>",
    "no way on": b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
}


# Another encoding of the same characters hides it from a search in bytes.
ANSWERS["a document type in UTF-16"] = (
    ANSWERS["a document type"].decode().encode("utf-16")
)


def answering(
    body: bytes, requests: list[dict[str, str]] | None = None
) -> type[http.server.BaseHTTPRequestHandler]:
    """A server with one response for all requests, which records their headers."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if requests is not None:
                requests.append(
                    {name.lower(): value for name, value in self.headers.items()}
                )
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
async def test_an_invalid_listing_is_a_server_error(
    body: bytes,
) -> None:
    with serving(answering(body)) as host:
        assert isinstance(
            await raised(an_artifact(f"http://{host}", prefix="")), ServerError
        )


OF_A_SESSION = "FwoGZXIvYXdzEBYaDKsessiontokenofatenant"
TEMPORARY = f"{ADMINISTRATOR}\naws_session_token = {OF_A_SESSION}\n"
QUOTING = {
    "in a key": b"<L><Contents><Key>../"
    + OF_A_SESSION.encode()
    + b"</Key><Size>1</Size><ETag>e</ETag></Contents></L>",
    "in a redirect": b"ftp://x/" + OF_A_SESSION.encode(),
}


@pytest.mark.parametrize("where", QUOTING)
async def test_a_server_that_quotes_the_token_of_a_session(where: str) -> None:
    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", QUOTING[where].decode())
            self.end_headers()

    sent: list[dict[str, str]] = []
    with (
        capture_logs() as logged,
        serving(
            answering(QUOTING[where], sent) if where == "in a key" else Redirecting
        ) as host,
    ):
        error = await raised(an_artifact(f"http://{host}", prefix=""), TEMPORARY)
    assert all(request["x-amz-security-token"] == OF_A_SESSION for request in sent)
    assert OF_A_SESSION not in f"{error} {logged}"
    assert "[redacted]" in f"{error} {logged}"


async def test_another_server_gets_no_credential_by_a_redirect() -> None:
    sent: list[dict[str, str]] = []
    with serving(answering(b"<html>", sent)) as other:

        class Redirecting(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(307)
                self.send_header("Location", f"http://{other}/x")
                self.end_headers()

        with serving(Redirecting) as host:
            assert isinstance(
                await raised(an_artifact(f"http://{host}"), TEMPORARY), ServerError
            )
    assert [
        sorted({"authorization", "x-amz-security-token"} & set(request))
        for request in sent
    ] == [[]]
