"""Malformed requests are rejected without an internal error or a traceback in the log."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from multidict import CIMultiDict

from front.serving import receiving
from front.serving.errors import RejectedRequest
from tests.front.fleet_of_tenants import Fleet, a_fleet

PATH = b"/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


async def answered(fleet: Fleet, sent: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", fleet.client.port)
    writer.write(sent)
    async with asyncio.timeout(30):
        told = await reader.read()
    writer.close()
    return told


@pytest.mark.parametrize("user", ["", "ann"])
async def test_a_request_without_a_path_is_rejected_like_others(
    fleet: Fleet, user: str
) -> None:
    who = b"Authorization: Bearer token-of-ann\r\n" if user else b""
    told = await answered(
        fleet,
        b"CONNECT evil.example:80 HTTP/1.1\r\nHost: x\r\n"
        + who
        + b"Connection: close\r\n\r\n",
    )
    assert told.startswith(b"HTTP/1.1 404 " if user else b"HTTP/1.1 401 "), told
    assert b'"kind":"Status"' in told


@pytest.mark.parametrize(
    "sent",
    [
        b"GET " + PATH + b"/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET " + PATH + b"/%0d%0aX: y HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET " + b"/a" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: \x1b[31m\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    ],
)
async def test_malformed_requests_are_rejected_without_an_error_in_the_log(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    caplog.set_level(logging.DEBUG)
    told = await answered(fleet, sent)
    assert b" 400 " in told.partition(b"\r\n")[0], told
    assert [
        (record.name, record.levelname, record.exc_info)
        for record in caplog.records
        if "handling request" in record.msg
    ] == [(receiving._SERVER_LOG.name, "DEBUG", None)]


class Ending:
    """A body whose connection ends before the body does."""

    async def readany(self) -> bytes:
        raise ConnectionResetError("Connection lost")


async def test_a_client_that_ends_within_a_body_causes_no_internal_error() -> None:
    request = SimpleNamespace(headers=CIMultiDict(), content_length=9, content=Ending())
    with pytest.raises(RejectedRequest) as rejected:
        await receiving.read(cast("web.Request", request))
    assert rejected.value.code == 400
