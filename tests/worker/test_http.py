"""The health of a worker:

`/healthz` and `modelplane_worker_up` agree for every queue.

`/readyz` reports more.
"""

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


def health(
    workers: dict[str, Worker], path: str = "/healthz", problem: str = ""
) -> httpx.Response:
    async def unready() -> str:
        return problem

    async def get() -> httpx.Response:
        app = http_app(workers, "", unready)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://worker"
        ) as client:
            return await client.get(path)

    return asyncio.run(get())


def test_a_stopped_worker_is_reported_for_its_queue_only() -> None:
    first, second = FakeWorker(), FakeWorker()
    workers = {"first": cast("Worker", first), "second": cast("Worker", second)}
    for queue, worker in workers.items():
        show_up(queue, worker)
    assert (up("first"), up("second"), health(workers).status_code) == (1, 1, 200)
    assert health(workers).text == "ok\n"
    first.is_running = False
    assert (up("first"), up("second"), health(workers).status_code) == (0, 1, 503)
    assert health(workers).text == "not serving: first\n"


def test_a_healthy_worker_that_is_not_ready_reports_the_reason() -> None:
    healthy, stopped = (
        cast("Worker", FakeWorker()),
        cast("Worker", FakeWorker(is_running=False)),
    )
    problem = "build b is not current"
    answers = [
        health({"first": healthy}, "/healthz", problem),
        health({"first": healthy}, "/readyz"),
        health({"first": healthy}, "/readyz", problem),
        health({"first": stopped}, "/readyz", problem),
    ]
    assert [(answer.status_code, answer.text) for answer in answers] == [
        (200, "ok\n"),
        (200, "ok\n"),
        (503, "build b is not current\n"),
        (503, "not serving: first\n"),
    ]
