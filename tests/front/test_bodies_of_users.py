"""Limits of request bodies, and where and in which order they are parsed."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from front.serving import access_reviews, bodies
from front.serving.formats import protobuf
from tests.front.fleet_of_tenants import Fleet, a_fleet
from tests.workflows.environment.harness import eventually

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/{}/modeldeployments"
MINE = PATH.format("a") + "/mine"
MERGE = "application/merge-patch+json"
JSON = "application/json"
REVIEW = json.dumps(
    {
        "spec": {
            "resourceAttributes": {
                "verb": "get",
                "resource": "modeldeployments",
                "namespace": "a",
            }
        }
    }
).encode()
SCALE = b'{"metadata":{},"spec":{"replicas":5}}'
PATCH = b'{"spec":{"replicas":5}}'
SMALL = {
    "PUT scale": (f"{MINE}/scale", JSON, SCALE, 200),
    "PATCH scale": (f"{MINE}/scale", MERGE, PATCH, 200),
    "POST review": (access_reviews.PATH, JSON, REVIEW, 201),
    "POST review of rules": (
        access_reviews.RULES_PATH,
        JSON,
        b'{"spec":{"namespace":"a"}}',
        201,
    ),
    "POST review of the user": (access_reviews.USER_PATH, JSON, b"{}", 201),
}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1024):
        yield body[start : start + 1024]


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
@pytest.mark.parametrize("what", SMALL)
async def test_scales_and_access_reviews_have_small_bodies(
    fleet: Fleet, what: str, *, chunked: bool
) -> None:
    method, (path, kind, body, code) = what.split(maxsplit=1)[0], SMALL[what]
    headers = {"Content-Type": kind, "Authorization": "Bearer token-of-ann"}
    most = body + b" " * (bodies.SMALL_BYTES_MAX - len(body))
    for sent, expected in ((most, code), (most + b" ", 413)):
        data: Any = in_parts(sent) if chunked else sent
        async with fleet.client.request(
            method, path, data=data, headers=headers
        ) as answer:
            told = await answer.json()
            assert answer.status == expected, told
    assert (told["reason"], str(bodies.SMALL_BYTES_MAX) in told["message"]) == (
        "RequestEntityTooLarge",
        True,
    )


async def test_an_access_review_in_protobuf_is_as_small(fleet: Fleet) -> None:
    for pad, code in ((0, 201), (bodies.SMALL_BYTES_MAX, 413)):
        assert (
            await fleet.ask(
                "POST", access_reviews.PATH, body=protobuf.MAGIC + b"\x08\x00" * pad
            )
        )[0] == code


async def test_large_bodies_are_limited_too(fleet: Fleet) -> None:
    headers = {"Content-Type": JSON, "Authorization": "Bearer token-of-ann"}
    data: Any = in_parts(b" " * (bodies.BYTES_MAX + 1))
    async with fleet.client.post(
        PATH.format("a"), data=data, headers=headers
    ) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (
            413,
            "RequestEntityTooLarge",
        )


async def test_a_body_with_a_large_content_length_is_rejected_before_it_arrives(
    fleet: Fleet,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", fleet.client.port)
    length = bodies.SMALL_BYTES_MAX + 1
    writer.write(
        (
            f"PUT {MINE}/scale HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            f"token-of-ann\r\nContent-Length: {length}\r\n\r\n"
        ).encode()
    )
    async with asyncio.timeout(20):
        assert (await reader.readline()).split()[1] == b"413"
    writer.close()


@pytest.mark.parametrize(
    ("method", "kind", "body"), [("PUT", JSON, SCALE), ("PATCH", MERGE, PATCH)]
)
async def test_a_scale_is_parsed_and_patched_outside_the_event_loop(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, method: str, kind: str, body: bytes
) -> None:
    threads = []
    for name in ("parse", "patched"):
        work = getattr(bodies, name)

        def noted(*arguments: Any, name: str = name, work: Any = work) -> Any:
            threads.append(
                (name, threading.current_thread() is threading.main_thread())
            )
            return work(*arguments)

        monkeypatch.setattr(bodies, name, noted)
    assert (
        await fleet.ask(method, f"{MINE}/scale", body=body, **{"Content-Type": kind})
    )[0] == 200
    assert threads == [("parse", False), ("patched", False)][: 1 + (method == "PATCH")]


@pytest.mark.slow
async def test_bodies_of_one_user_are_parsed_one_at_a_time_between_those_of_others(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed, goes_on = [], threading.Event()
    parse = bodies.parse_object

    def slow(body: bytes) -> Any:
        found = parse(body)
        parsed.append(found["spec"]["resourceAttributes"]["name"])
        assert goes_on.wait(20)
        return found

    def asks(user: str) -> "asyncio.Task[tuple[int, bytes]]":
        body = json.dumps(
            {
                "spec": {
                    "resourceAttributes": {
                        "verb": "get",
                        "resource": "x",
                        "namespace": "a",
                        "name": user,
                    }
                }
            }
        ).encode()
        return asyncio.create_task(fleet.ask("POST", access_reviews.PATH, user, body))

    async def waiting() -> tuple[int, int, int]:
        requests = fleet.front.authorization.limits._requests
        return requests["ann"], requests["root"], bodies._THREAD._work_queue.qsize()

    monkeypatch.setattr(bodies, "parse_object", slow)
    flood = [asks("ann") for _ in range(5)]
    try:
        await eventually(
            waiting,
            lambda counts: counts[0] == 5 and bool(parsed),
            what="the requests of one user",
        )
        other = asks("root")
        await eventually(
            waiting,
            lambda counts: counts[1] == 1 and counts[2] >= 1,
            what="the request of another",
        )
    finally:
        goes_on.set()
    assert {status for status, _ in await asyncio.gather(*flood, other)} == {201}
    assert parsed == ["ann", "root", "ann", "ann", "ann", "ann"]
    assert not bodies._TURNS
