"""What the worker shows of itself: `/healthz` and `modelplane_worker_up` say the same of every queue."""

import asyncio
from dataclasses import dataclass
from typing import cast

import httpx
from prometheus_client import REGISTRY
from temporalio.worker import Worker

from activities.probes import http_app, show_up


@dataclass
class FakeWorker:
    is_running: bool = True


def up(queue: str) -> float | None:
    return REGISTRY.get_sample_value("modelplane_worker_up", {"queue": queue})


def health(workers: dict[str, Worker]) -> httpx.Response:
    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(http_app(workers, "")), base_url="http://worker") as client:
            return await client.get("/healthz")

    return asyncio.run(get())


def test_a_worker_that_stopped_is_shown_for_its_queue_alone() -> None:
    first, second = FakeWorker(), FakeWorker()
    workers = {"first": cast("Worker", first), "second": cast("Worker", second)}
    for queue, worker in workers.items():
        show_up(queue, worker)
    assert (up("first"), up("second"), health(workers).status_code) == (1, 1, 200)
    assert health(workers).text == "ok\n"
    first.is_running = False
    assert (up("first"), up("second"), health(workers).status_code) == (0, 1, 503)
    assert health(workers).text == "not serving: first\n"
