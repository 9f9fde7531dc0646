"""Requests of every kind through Envoy and an endpoint picker, compared at the engine."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from activities.render.objects.edge import SESSION_HEADER, STEERING_HEADERS
from testbed.dataplane.engine import POD_HEADER, RECEIVED_HEADER
from testbed.dataplane.interfaces import (
    ADMINISTRATION_PATHS,
    BINARY,
    CLIENT_PATHS,
    FORM,
    GET,
    EnginePath,
)
from tests.testbed.request_path.request_path import (
    CHAT,
    Model,
    RequestPath,
    chat,
    client,
    eventually,
)

pytestmark = [pytest.mark.testbed, pytest.mark.soak]

MIB = 1 << 20
WORD = "word "


@pytest.fixture(scope="module")
def model(path: RequestPath) -> Iterator[Model]:
    with path.model("requests") as running:
        yield running


def test_a_chat_request_arrives_at_a_pod_of_the_replica(
    path: RequestPath, model: Model
) -> None:
    answer = httpx.post(f"{model.url}{CHAT}", json=chat(), timeout=60)
    assert answer.status_code == httpx.codes.OK, answer.text
    pod = answer.headers[POD_HEADER]
    content = answer.json()["choices"][0]["message"]["content"]
    addresses = [each["status"]["podIP"] for each in path.pods(model)]
    assert (content, pod in addresses) == (f"pod {pod} was asked at {CHAT}", True)


async def test_events_of_a_stream_arrive_one_by_one(model: Model) -> None:
    body = chat(stream=True, max_tokens=5, seconds_per_token=0.5)
    loop = asyncio.get_running_loop()
    times, events = [], []
    async with (
        client() as http,
        http.stream("POST", f"{model.url}{CHAT}", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            if line:
                times.append(loop.time())
                events.append(line)
    assert len(events) == 6
    assert events[-1] == "data: [DONE]"
    # Half of the pauses, because the first event may be late and the others are not.
    assert times[4] - times[0] > 1.0


@pytest.mark.parametrize("mebibytes", [2, 24])
def test_a_long_prompt_arrives_complete(model: Model, mebibytes: int) -> None:
    words = mebibytes * MIB // len(WORD)
    answer = httpx.post(f"{model.url}{CHAT}", json=chat(WORD * words), timeout=300)
    assert answer.status_code == httpx.codes.OK, answer.text
    assert answer.json()["usage"]["prompt_tokens"] == words


async def test_the_engine_stops_when_the_client_leaves(
    path: RequestPath, model: Model
) -> None:
    body = chat(stream=True, max_tokens=10_000, seconds_per_token=0.1)
    async with (
        client() as http,
        http.stream("POST", f"{model.url}{CHAT}", json=body) as answer,
    ):
        await anext(answer.aiter_lines())
        pod = answer.headers[POD_HEADER]
        assert running_at(path, pod) == 1
    await asyncio.to_thread(
        eventually, lambda: running_at(path, pod) == 0, "the end of the request"
    )


def running_at(path: RequestPath, address: str) -> int:
    """Return the number of running requests of an engine."""
    text = path.metrics({"status": {"podIP": address}})
    (line,) = [
        each
        for each in text.splitlines()
        if each.startswith("vllm:num_requests_running")
    ]
    return int(line.rsplit(" ", 1)[1])


@pytest.mark.parametrize(
    "each", CLIENT_PATHS, ids=lambda each: f"{each.method} {each.path} {each.kind}"
)
def test_every_path_of_a_client_arrives_unchanged(
    model: Model, each: EnginePath
) -> None:
    answer = send(model, each)
    assert answer.status_code == httpx.codes.OK, answer.text
    found = answer.json()
    sent = answer.request.content
    assert (found["method"], found["path"]) == (each.method, each.path)
    assert found["type"] == answer.request.headers.get("content-type", "")
    if each.kind in (FORM, BINARY):
        assert (found["bytes"], found["sha256"]) == (
            len(sent),
            hashlib.sha256(sent).hexdigest(),
        )


def send(model: Model, each: EnginePath) -> httpx.Response:
    """Send the request of a client to a path."""
    with httpx.Client(timeout=60) as http:
        request = http.build_request(
            each.method, f"{model.url}{each.path}", **body_of(each)
        )
        request.read()  # a form is a stream, and the test compares its bytes
        return http.send(request)


def body_of(each: EnginePath) -> dict[str, Any]:
    """Return the arguments of the body that a client sends."""
    if each.kind == GET:
        return {}
    if each.kind == FORM:
        file = ("a.wav", b"\0\1\2" * 9999)
        return {"files": {"file": file}, "data": {"model": "simulated"}}
    if each.kind == BINARY:
        # The binary protocol of KServe: a JSON header, then raw tensors.
        header = json.dumps({"inputs": []}).encode()
        return {
            "content": header + bytes(range(256)),
            "headers": {
                "content-type": "application/octet-stream",
                "inference-header-content-length": str(len(header)),
            },
        }
    body = chat(input=["hello"], prompt="hello", query="q", documents=["d"])
    return {"json": body}


@pytest.mark.parametrize(
    "each", ADMINISTRATION_PATHS, ids=lambda each: f"{each.method} {each.path}"
)
def test_no_caller_reaches_the_administration_of_an_engine(
    model: Model, each: EnginePath
) -> None:
    answer = send(model, each)
    assert POD_HEADER not in answer.headers, answer.text
    assert answer.is_error


def test_headers_that_steer_requests_do_not_reach_the_engine(
    path: RequestPath, model: Model
) -> None:
    with path.listener() as other:
        headers = dict.fromkeys((*STEERING_HEADERS, SESSION_HEADER), other.address)
        answer = httpx.post(
            f"{model.url}{CHAT}", json=chat(), headers=headers, timeout=60
        )
        assert answer.status_code == httpx.codes.OK, answer.text
        received = set(answer.headers[RECEIVED_HEADER].split(","))
        pod = f"{answer.headers[POD_HEADER]}:8000"
        # The picker sets one of them again.
        assert received & headers.keys() <= {"x-gateway-destination-endpoint"}
        assert pod != other.address
    assert other.connections() == 0
