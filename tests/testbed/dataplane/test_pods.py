"""A pod that ends keeps its engine until its requests or its grace period end, whatever the watch has missed; no cluster is needed."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any, cast

import httpx
import pytest

from testbed.cluster.kube import Watcher
from testbed.dataplane.engine import PORT
from testbed.dataplane.pods import SERVED, ServedPods

pytestmark = pytest.mark.slow

# After which the server of an engine closes a connection that no request uses, unless it is told otherwise.
SERVER_IDLE_SECONDS = 5

Document = dict[str, Any]
Event = tuple[str, list[Document]]

ADDRESS = "127.7.7.7"
TOKENS, MIDDLE = 20, 2
ASK = {"stream": True, "max_tokens": TOKENS, "seconds_per_token": 0.05}


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """An engine is a process of its own elsewhere, and sets the levels of its server's loggers."""
    loggers = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")]
    before = [(logger.level, logger.propagate, logger.handlers[:]) for logger in loggers]
    yield
    for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers


class Annotations:
    """An API server that takes annotations of pods, and nothing else."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def patch(self, _pod: Document, change: Mapping[str, Any]) -> None:
        self.written.append(change["metadata"]["annotations"][SERVED])


def a_pod(**metadata: Any) -> Document:
    spec = {"containers": [{"name": "engine", "ports": [{"containerPort": PORT}]}]}
    return {"metadata": {"uid": "one", **metadata}, "spec": spec, "status": {"phase": "Running", "podIP": ADDRESS}}


def ending(grace_seconds: int) -> Document:
    return a_pod(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace_seconds)


async def words_of_a_stream(*events: Event) -> tuple[int, list[str]]:
    """Let these happen in the middle of an answer; gives how many words arrive, and what is written to the pod until its engine is gone."""
    server = Annotations()
    pods = ServedPods(cast("Watcher", server))
    await pods.received("LISTED", [a_pod()])
    words, left = 0, list(events)
    client = httpx.AsyncClient(timeout=60, trust_env=False)
    try:
        async with client, client.stream("POST", f"http://{ADDRESS}:{PORT}/v1/completions", json=ASK) as answer:
            async for line in answer.aiter_lines():
                words += "text" in line
                while words == MIDDLE and left:
                    await pods.received(*left.pop(0))
    except httpx.RemoteProtocolError:
        pass  # it was cut
    finally:
        await pods.received("LISTED", [])
        if pods._without_pod:
            await asyncio.wait(pods._without_pod)
    return words, server.written


@pytest.mark.parametrize(
    "missed",
    [
        pytest.param([("LISTED", [ending(60)])], id="the watch ended, and it is listed again"),
        pytest.param([("LISTED", [])], id="the watch ended, and it is not listed"),
        pytest.param([("DELETED", [ending(60)])], id="it was deleted by force"),
    ],
)
async def test_an_answer_of_a_pod_that_ends_is_whole(missed: list[Event]) -> None:
    assert await words_of_a_stream(("MODIFIED", [ending(60)]), *missed) == (TOKENS, ["true", "ended"])


async def test_the_end_of_the_grace_period_cuts_what_is_left() -> None:
    words, _ = await words_of_a_stream(("MODIFIED", [ending(0)]), ("LISTED", []))
    assert words < TOKENS


async def test_a_pod_that_vanishes_without_a_grace_period_is_cut() -> None:
    words, written = await words_of_a_stream(("DELETED", [a_pod()]))
    assert words < TOKENS
    assert written == ["true"]


async def test_an_idle_connection_is_closed_by_the_gateway_and_not_by_the_engine() -> None:
    """Otherwise a request that is sent just then is answered with 502."""
    pods = ServedPods(cast("Watcher", Annotations()))
    await pods.received("LISTED", [a_pod()])
    reader, writer = await asyncio.open_connection(ADDRESS, PORT)
    try:
        writer.write(b"GET /health HTTP/1.1\r\nhost: engine\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SERVER_IDLE_SECONDS + 2):
                await reader.read()
    finally:
        writer.close()
        await pods.received("LISTED", [])
