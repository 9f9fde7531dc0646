"""An ending pod keeps its engine until its requests or its grace period end, whatever
the watch missed.

No cluster is needed.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any, cast

import httpx
import pytest

from testbed.cluster.kube import KubeClient
from testbed.dataplane.engine import PORT
from testbed.dataplane.pods import SERVED, ServedPods

pytestmark = pytest.mark.slow

# The default time after which an engine's server closes an idle connection.
SERVER_IDLE_SECONDS = 5

Document = dict[str, Any]
Event = tuple[str, list[Document]]

ADDRESS = "127.7.7.7"
TOKENS, MIDDLE = 20, 2
ASK = {"stream": True, "max_tokens": TOKENS, "seconds_per_token": 0.05}


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Elsewhere an engine is its own process, and sets the levels of its server's
    loggers.
    """
    loggers = [
        logging.getLogger(name)
        for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
    ]
    before = [
        (logger.level, logger.propagate, logger.handlers[:]) for logger in loggers
    ]
    yield
    for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers


class Annotations:
    """An API server that accepts only annotations of pods."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def patch(self, _pod: Document, change: Mapping[str, Any]) -> None:
        self.written.append(change["metadata"]["annotations"][SERVED])


def a_pod(**metadata: Any) -> Document:
    spec = {"containers": [{"name": "engine", "ports": [{"containerPort": PORT}]}]}
    return {
        "metadata": {"uid": "one", **metadata},
        "spec": spec,
        "status": {"phase": "Running", "podIP": ADDRESS},
    }


def ending(grace_seconds: int) -> Document:
    return a_pod(
        deletionTimestamp="2026-01-01T00:00:00Z",
        deletionGracePeriodSeconds=grace_seconds,
    )


async def words_of_a_stream(*events: Event) -> tuple[int, list[str]]:
    """Run these events in the middle of an answer.

    Return the number of received words, and the writes to the pod until its engine is
    gone.
    """
    server = Annotations()
    pods = ServedPods(cast("KubeClient", server))
    await pods.received("LISTED", [a_pod()])
    words, left = 0, list(events)
    client = httpx.AsyncClient(timeout=60, trust_env=False)
    try:
        async with (
            client,
            client.stream(
                "POST", f"http://{ADDRESS}:{PORT}/v1/completions", json=ASK
            ) as answer,
        ):
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
        pytest.param(
            [("LISTED", [ending(60)])], id="the watch ended, and it is listed again"
        ),
        pytest.param([("LISTED", [])], id="the watch ended, and it is not listed"),
        pytest.param([("DELETED", [ending(60)])], id="it was deleted by force"),
    ],
)
async def test_an_answer_of_a_pod_that_ends_is_whole(missed: list[Event]) -> None:
    assert await words_of_a_stream(("MODIFIED", [ending(60)]), *missed) == (
        TOKENS,
        ["true", "ended"],
    )


async def test_the_end_of_the_grace_period_cuts_remaining_requests() -> None:
    words, _ = await words_of_a_stream(("MODIFIED", [ending(0)]), ("LISTED", []))
    assert words < TOKENS


async def test_a_pod_that_vanishes_without_a_grace_period_is_cut() -> None:
    words, written = await words_of_a_stream(("DELETED", [a_pod()]))
    assert words < TOKENS
    assert written == ["true"]


async def test_an_idle_connection_is_closed_by_the_gateway_and_not_by_the_engine() -> (
    None
):
    """Otherwise a request that is sent just then gets a 502."""
    pods = ServedPods(cast("KubeClient", Annotations()))
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


async def test_the_end_of_a_real_pod_is_left_to_its_node() -> None:
    """A picker without an engine sleeps before it stops, so its end is not reported."""
    server = Annotations()
    pods = ServedPods(cast("KubeClient", server))
    pod = ending(grace_seconds=135)
    pod["metadata"]["annotations"] = {SERVED: "true"}
    image = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
    pod["spec"]["containers"] = [{"name": "epp", "image": image}]
    await pods.received("LISTED", [pod])
    await asyncio.sleep(0.1)
    assert server.written == []
