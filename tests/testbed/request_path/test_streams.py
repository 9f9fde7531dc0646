"""Long streams, and many streams at once."""

import asyncio
from collections import Counter

import httpx
import pytest

from testbed.dataplane.engine import POD_HEADER
from tests.testbed.request_path.request_path import (
    CHAT,
    Model,
    RequestPath,
    chat,
    client,
)

pytestmark = [pytest.mark.testbed, pytest.mark.soak]

# Envoy closes connections on a changed listener after its drain time. Without the
# product's setting this time is 60 s.
STREAM_SECONDS = 90
CHANGES = 5
STREAMS = 1_100
# The limit of the product, and Envoy's own limit for streams to a picker.
LIMITS = range(1_000, 1_025)


async def test_changes_of_other_replicas_cut_no_stream(path: RequestPath) -> None:
    with path.model("stream", 1) as model:
        streaming = asyncio.create_task(stream(model, STREAM_SECONDS, 1.0))
        await asyncio.sleep(2)
        others = [
            await asyncio.to_thread(path.apply, f"other-{number}", 1)
            for number in range(CHANGES - 2)
        ]
        await asyncio.sleep(5)
        for other in others[:2]:
            await asyncio.to_thread(path.delete, other)
        assert await streaming == (httpx.codes.OK, STREAM_SECONDS, "data: [DONE]")
        await asyncio.to_thread(path.delete, others[2])


async def stream(model: Model, tokens: int, seconds: float) -> tuple[int, int, str]:
    """Receive a stream. Return its status, its events, and its last line."""
    body = chat(stream=True, max_tokens=tokens, seconds_per_token=seconds)
    events, last = 0, ""
    async with (
        client() as http,
        http.stream("POST", f"{model.url}{CHAT}", json=body) as answer,
    ):
        try:
            async for line in answer.aiter_lines():
                if line:
                    events, last = events + 1, line
        except httpx.TransportError as error:
            last = f"{type(error).__name__}: {error}"
    return answer.status_code, events - 1, last


async def test_each_replica_has_a_limit_of_streams_at_once(path: RequestPath) -> None:
    """Requests above the limit fail at once with 503 or 500 (docs/explanation/request-path.md)."""
    body = chat(stream=True, max_tokens=12, seconds_per_token=5)

    async def one(http: httpx.AsyncClient, url: str) -> str:
        async with http.stream("POST", f"{url}{CHAT}", json=body) as answer:
            lines = [line async for line in answer.aiter_lines() if line]
        if POD_HEADER not in answer.headers:
            return str(answer.status_code)
        return lines[-1]

    with path.model("many", 2, args=["--max-num-seqs=2048"]) as model:
        async with client() as http:
            found = Counter(
                await asyncio.gather(*(one(http, model.url) for _ in range(STREAMS)))
            )
    complete = found.pop("data: [DONE]")
    assert complete in LIMITS, found
    assert found.keys() <= {"500", "503"}, found
