"""Responses that a client does not read count as requests of their user, and end."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from api_types.resources.kinds import BY_KIND
from front.access.limits import Allowance, Limits
from front.serving import sending
from front.serving.reads import watching
from front.serving.reads.reading import Form
from front.serving.reads.watching import Watch
from front.serving.requests import resource_of
from front.store import projection as projection_module
from front.store.projection import ObjectKey, StoredObject
from tests.front.fleet_of_tenants import START, Fleet, a_fleet, an_object
from tests.workflows.environment.harness import eventually

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LARGE = 40
"""Objects of 300 kB exceed the buffers of a connection."""


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    limits = Limits(Allowance(per_second=1000, burst=1000, requests=2, watches=2))
    async with a_fleet(tmp_path, limits=limits) as fleet:
        yield fleet


def fill(fleet: Fleet, count: int, size: int = 300_000) -> None:
    for number in range(count):
        key = ObjectKey("ModelDeployment", "a", f"n{number}")
        tree = an_object(BY_KIND["ModelDeployment"], "a", key.name, START + number)
        tree["metadata"]["annotations"] = {"pad": "x" * size}
        fleet.plane.trees[key] = tree
        fleet.projection.put(key, tree)


@contextmanager
def unread(
    fleet: Fleet, request: str, buffer: int = 4096, accept: str = "*/*"
) -> Iterator[socket.socket]:
    """Send a request without reading the response.

    `buffer` is the number of response bytes that the system accepts anyway.
    """
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.connect(("127.0.0.1", fleet.client.port or 0))
        connection.sendall(
            (
                f"{request} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nAuthorization: "
                "Bearer token-of-ann\r\n\r\n"
            ).encode()
        )
        yield connection


async def test_unread_responses_count_as_requests_of_their_user(
    fleet: Fleet,
) -> None:
    fill(fleet, LARGE)

    async def counted() -> int:
        return fleet.front.authorization.limits._requests["ann"]

    async def status() -> int:
        return (await fleet.ask("GET", f"{PATH}/mine"))[0]

    with unread(fleet, f"GET {PATH}"), unread(fleet, f"GET {PATH}"):
        await eventually(status, lambda code: code == 429, what="the limit")
        assert await counted() == 2
        assert (await fleet.ask("GET", f"{PATH}/mine", user="root"))[0] == 200
    await eventually(status, lambda code: code == 200, what="room for a request")


@pytest.mark.slow
async def test_the_response_to_a_write_counts_but_is_never_rejected(
    fleet: Fleet,
) -> None:
    fill(fleet, LARGE)

    async def counted() -> int:
        return fleet.front.authorization.limits._requests["ann"]

    async def deleting() -> int:
        return sum(
            "deletionTimestamp" in tree["metadata"]
            for tree in fleet.plane.trees.values()
        )

    with unread(fleet, f"DELETE {PATH}"):
        await eventually(
            deleting, lambda count: count == LARGE + 1, what="the deletion"
        )
        await eventually(counted, lambda count: count == 1, what="the answer")
    await eventually(counted, lambda count: not count, what="the end of the answer")


@pytest.mark.slow
@pytest.mark.parametrize("size", [300_000, 10_000], ids=["in parts", "at once"])
async def test_the_connection_of_a_client_that_does_not_read_is_closed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    if size < sending.PART_BYTES:
        monkeypatch.setattr(sending, "PART_BYTES", 1 << 30)
    # Longer than the interval between checks.
    monkeypatch.setattr(sending, "WRITE_SECONDS", 2.0)
    fill(fleet, LARGE * 300_000 // size, size)

    async def counted() -> int:
        return fleet.front.authorization.limits._requests["ann"]

    with unread(fleet, f"GET {PATH}"):
        await eventually(counted, lambda count: count == 1, what="the answer")
        await eventually(counted, lambda count: not count, what="the end of the answer")


async def test_a_large_response_is_complete_with_length_and_headers(
    fleet: Fleet,
) -> None:
    fill(fleet, LARGE)
    status, body, headers = await fleet.answer("GET", PATH)
    assert (status, int(headers["Content-Length"]), headers["Content-Type"]) == (
        200,
        len(body),
        "application/json",
    )
    assert len(json.loads(body)["items"]) == LARGE + 1
    status, nothing, of_head = await fleet.answer("HEAD", PATH)
    assert (status, nothing, of_head["Content-Length"]) == (
        200,
        b"",
        headers["Content-Length"],
    )


async def test_a_large_table_is_complete_without_a_length_header(
    fleet: Fleet,
) -> None:
    fill(fleet, LARGE)
    status, body, headers = await fleet.answer(
        "GET", f"{PATH}?includeObject=Object", Accept=TABLE
    )
    assert (status, headers["Transfer-Encoding"], "Content-Length" in headers) == (
        200,
        "chunked",
        False,
    )
    assert len(json.loads(body)["rows"]) == LARGE + 1
    assert (await fleet.answer("HEAD", PATH, Accept=TABLE))[:2] == (200, b"")


@pytest.mark.slow
@pytest.mark.parametrize("accept", ["application/json", TABLE], ids=["objects", "rows"])
async def test_a_large_response_that_is_read_slowly_is_aborted(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(sending, "WRITE_SECONDS", 3.0)
    monkeypatch.setattr(sending, "BYTES_PER_SECOND", 1 << 40)
    fill(fleet, LARGE * 2)

    async def counted() -> int:
        return fleet.front.authorization.limits._requests["ann"]

    with unread(fleet, f"GET {PATH}", 256 * 1024, accept) as connection:
        connection.settimeout(0)
        await eventually(counted, lambda count: count == 1, what="the answer")
        loop = asyncio.get_running_loop()
        read = 0
        with suppress(ConnectionError):
            while await counted():
                # Each part is read in time, because the system accepts several at once.
                read += len(await loop.sock_recv(connection, 64 * 1024))
                await asyncio.sleep(0.03)
    await eventually(counted, lambda count: not count, what="the end of the answer")
    assert read < LARGE * 300_000


async def test_a_large_response_has_more_time_than_a_small_one(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fleet, 2)
    seconds: list[float | None] = []
    timeout = asyncio.timeout

    def noted(delay: float | None) -> asyncio.Timeout:
        seconds.append(delay)
        return timeout(delay)

    monkeypatch.setattr(asyncio, "timeout", noted)
    _, body = await fleet.ask("GET", PATH)
    assert sending.WRITE_SECONDS + len(body) / sending.BYTES_PER_SECOND in seconds
    assert len(body) > 600_000


# Watches


def a_watch(fleet: Fleet, **parameters: str) -> Watch:
    resource = resource_of(PATH)
    assert resource
    return Watch(fleet.projection, resource, parameters, Form())


async def always() -> bool:
    return True


async def test_watch_lines_are_made_one_by_one_and_other_requests_run_in_between(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fleet, 5, 10)
    made: list[str] = []
    others: list[str] = []
    line = watching._whole

    def noted(event: str, stored: StoredObject) -> bytes:
        made.append(stored.tree["metadata"]["name"])
        return line(event, stored)

    monkeypatch.setattr(watching, "_whole", noted)
    for query in ({}, {"resourceVersion": "1"}):
        made.clear()
        others.clear()
        lines = a_watch(fleet, **query).lines(always)
        await anext(lines)
        assert len(made) == 1
        asyncio.get_running_loop().call_soon(others.append, "other")
        await anext(lines)
        assert (len(made), others) == (2, ["other"])
        await lines.aclose()


async def test_a_watch_ends_between_two_lines_when_its_user_loses_the_right(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.0)
    fill(fleet, 5, 10)
    may = [True]

    async def still() -> bool:
        return may[0]

    lines = a_watch(fleet).lines(still)
    assert await anext(lines)
    may[0] = False
    assert [each async for each in lines] == []

    monkeypatch.setattr(watching, "CHECK_SECONDS", 10.0)
    monkeypatch.setattr(watching, "PART_BYTES", 1)
    may[0] = True
    lines = a_watch(fleet, resourceVersion=str(fleet.projection.high)).lines(still)
    first = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    for number in range(3):
        key = ObjectKey("ModelDeployment", "a", f"new{number}")
        fleet.projection.put(
            key,
            an_object(BY_KIND["ModelDeployment"], "a", key.name, START + 100 + number),
        )
    assert b"new0" in await first
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.0)
    may[0] = False
    assert [each async for each in lines] == []


@pytest.mark.slow
async def test_a_failed_watch_gets_no_second_response(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fleet, 2, 10)
    line = watching._whole
    lines: list[str] = []

    def failing(event: str, stored: StoredObject) -> bytes:
        lines.append(event)
        if len(lines) > 1:
            raise ZeroDivisionError
        return line(event, stored)

    monkeypatch.setattr(watching, "_whole", failing)
    with socket.socket() as connection:
        connection.settimeout(0)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, ("127.0.0.1", fleet.client.port or 0))
        await loop.sock_sendall(
            connection,
            (
                f"GET {PATH}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                "token-of-ann\r\n\r\n"
            ).encode(),
        )
        told = b""
        async with asyncio.timeout(30):
            with suppress(ConnectionError):
                while part := await loop.sock_recv(connection, 64 * 1024):
                    told += part
    assert (told.count(b"HTTP/1.1"), told.count(b'"type":"ADDED"')) == (1, 1)
    # There is no regular end, which the client would take for a completed watch.
    assert not told.endswith(b"0\r\n\r\n")


@pytest.mark.slow
async def test_the_end_of_a_watch_does_not_wait_for_the_client(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(watching, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(web.StreamResponse, "write_eof", never)
    headers = {"Authorization": "Bearer token-of-ann"}
    async with (
        asyncio.timeout(30),
        fleet.client.get(
            f"{PATH}?watch=true&timeoutSeconds=1", headers=headers
        ) as answer,
    ):
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_change_is_encoded_once_for_all_watches(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(fleet, 5, 10)
    made: list[str] = []

    class Counting:
        @staticmethod
        def dumps(tree: Any, **more: Any) -> str:
            made.append(tree["metadata"]["name"])
            return json.dumps(tree, **more)

    monkeypatch.setattr(projection_module, "json", Counting)
    watches = [
        a_watch(fleet, resourceVersion=str(fleet.projection.high)).lines(always)
        for _ in range(5)
    ]
    told = [asyncio.ensure_future(anext(lines)) for lines in watches]
    await asyncio.sleep(0)
    key = ObjectKey("ModelDeployment", "a", "new")
    fleet.projection.put(
        key, an_object(BY_KIND["ModelDeployment"], "a", "new", START + 100)
    )
    (line,) = set(await asyncio.gather(*told))
    fleet.projection.remove(key, START + 101)
    (gone,) = set(await asyncio.gather(*(anext(lines) for lines in watches)))
    assert made == ["new", "new"]
    events = [json.loads(each) for each in (line, gone)]
    assert [
        (each["type"], each["object"]["metadata"]["resourceVersion"]) for each in events
    ] == [
        ("ADDED", str(START + 100)),
        ("DELETED", str(START + 101)),
    ]
    for lines in watches:
        await lines.aclose()


async def test_simultaneous_changes_are_written_together_in_bounded_parts(
    fleet: Fleet,
) -> None:
    fill(fleet, 5, 10)
    lines = a_watch(fleet, resourceVersion=str(fleet.projection.high)).lines(always)
    first = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    for number in range(200):
        key = ObjectKey("ModelDeployment", "a", f"new{number}")
        fleet.projection.put(
            key,
            an_object(BY_KIND["ModelDeployment"], "a", key.name, START + 100 + number),
        )
    parts = [await first]
    while sum(part.count(b"\n") for part in parts) < 200:
        parts.append(await anext(lines))
    assert [
        json.loads(line)["object"]["metadata"]["name"]
        for line in b"".join(parts).splitlines()
    ] == [f"new{n}" for n in range(200)]
    assert 1 < len(parts) < 10
    assert max(map(len, parts)) < 2 * sending.PART_BYTES
    await lines.aclose()
