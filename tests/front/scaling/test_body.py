"""Bodies are read only as far as necessary.

These tests never send the rest of a body, so an answer proves that the front does not
wait for it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from aiohttp import http_parser, web_protocol
from aiohttp.web import Request

from front.access.signing import SIGNATURE, TIMESTAMP, WINDOW_SECONDS
from front.scaling.routes import BODY_BYTES_MAX
from front.serving.receiving import read
from tests.front.scaling.scaling_under_test import (
    NOW,
    TOKEN,
    Client,
    Json,
    ScalingUnderTest,
    asked,
    path_of,
    signature,
)

PATH = path_of("chat", "scale")
BODY = b'{"replicas":5}'
SIGNED = signature(PATH, BODY, NOW)
CHUNKED = {"Transfer-Encoding": "chunked"}
SECONDS = 10


@pytest.fixture(
    params=[http_parser.HttpRequestParser, http_parser.HttpRequestParserPy],
    ids=["compiled", "python"],
)
async def client(
    served: ScalingUnderTest,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Client]:
    """A server with either parser of aiohttp."""
    monkeypatch.setattr(web_protocol, "HttpRequestParser", request.param)
    async with served.client() as client:
        yield client


def head_of(path: str, headers: Mapping[str, str]) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: front\r\n".encode()
        + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items())
        + b"\r\n"
    )


@asynccontextmanager
async def connected(
    client: Client,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(client.host, client.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, Json]:
    async with asyncio.timeout(SECONDS):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.partition(":")[2])
            for line in head.splitlines()
            if line.lower().startswith("content-length:")
        )
        return int(head.split()[1]), json.loads(await reader.readexactly(length))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**SIGNED, SIGNATURE: SIGNED[SIGNATURE].upper()},
        signature(PATH, BODY, NOW - timedelta(seconds=WINDOW_SECONDS + 1)),
        {**SIGNED, TIMESTAMP: ""},
    ],
    ids=["none", "another form", "another time", "no time"],
)
async def test_without_signature_headers_no_body_is_read(
    client: Client, headers: dict[str, str]
) -> None:
    async with connected(client) as (reader, writer):
        writer.write(head_of(PATH, {**headers, "Content-Length": str(len(BODY))}))
        assert (await answer(reader))[0] == 401


@pytest.mark.parametrize(
    ("path", "headers"),
    [(PATH, SIGNED), ("/v1/events", {"Authorization": f"Bearer {TOKEN}"})],
    ids=["signed", "with a token"],
)
async def test_the_rest_of_a_large_body_is_not_read(
    client: Client, path: str, headers: dict[str, str]
) -> None:
    async with connected(client) as (reader, writer):
        writer.write(head_of(path, {**headers, **CHUNKED}))
        writer.write(b"%x\r\n%b\r\n" % (BODY_BYTES_MAX, b" " * BODY_BYTES_MAX))
        await writer.drain()
        writer.write(b"1\r\n \r\n")
        status, told = await answer(reader)
        assert (status, told["message"]) == (
            413,
            f"the request is larger than {BODY_BYTES_MAX} bytes",
        )


async def test_a_slow_body_whose_signature_expires_is_rejected(
    served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a repeat could start while its first answer is remembered, and be
    carried out after it was forgotten.
    """

    async def slow(request: Request, bytes_max: int) -> bytes:
        served.now += timedelta(seconds=WINDOW_SECONDS + 1)
        return await read(request, bytes_max)

    monkeypatch.setattr("front.scaling.routes.read", slow)
    status, told = await asked(client, "POST", PATH, BODY, **SIGNED)
    assert (status, TIMESTAMP in told["message"]) == (401, True)
    assert served.plane.sent == []


async def test_a_malformed_chunked_body_is_rejected_with_a_message(
    served: ScalingUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled parser rejects the request itself."""
    reading = asyncio.Event()

    async def noted(request: Request, bytes_max: int) -> bytes:
        reading.set()
        return await read(request, bytes_max)

    monkeypatch.setattr(
        web_protocol, "HttpRequestParser", http_parser.HttpRequestParserPy
    )
    monkeypatch.setattr("front.scaling.routes.read", noted)
    async with served.client() as client, connected(client) as (reader, writer):
        writer.write(head_of(PATH, {**SIGNED, **CHUNKED}) + b"3\r\nabc\r\n")
        await reading.wait()
        writer.write(b"ZZ\r\n")
        status, told = await answer(reader)
        assert (status, told["reason"]) == (400, "BadRequest")
        assert "the body of the request is malformed" in told["message"]


async def test_a_body_that_does_not_arrive_ends_its_request(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("front.serving.receiving._BODY_SECONDS", 0.05)
    async with connected(client) as (reader, writer):
        head = head_of(PATH, {**SIGNED, "Content-Length": str(len(BODY))})
        writer.write(head + BODY[:5])
        status, told = await answer(reader)
        assert (status, told["reason"]) == (408, "Timeout")
