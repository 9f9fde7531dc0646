"""The HTTP endpoints of a worker process: `/healthz`, `/readyz` and `/metrics`."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from temporalio.worker import Worker

UP = Gauge(
    "modelplane_worker_up",
    "1 while this worker serves the queue, 0 after it stopped",
    ["queue"],
)


def show_up(queue: str, worker: Worker) -> None:
    """Set `modelplane_worker_up` of a queue from the state of its worker.

    A worker may stop while the other workers and the process continue.
    """
    UP.labels(queue=queue).set_function(lambda: float(worker.is_running))


def http_app(
    workers: dict[str, Worker], sdk_metrics: str, unready: Callable[[], Awaitable[str]]
) -> Starlette:
    """Serve `/healthz`, `/readyz` and `/metrics`.

    `unready` returns the reason for which a healthy process is not ready, or "".
    """

    def stopped() -> str:
        names = [queue for queue, worker in workers.items() if not worker.is_running]
        return f"not serving: {', '.join(names)}" if names else ""

    def answer(problem: str) -> Response:
        return PlainTextResponse(
            f"{problem or 'ok'}\n", status_code=503 if problem else 200
        )

    async def healthz(_: Request) -> Response:
        return answer(stopped())

    async def readyz(_: Request) -> Response:
        return answer(stopped() or await unready())

    async def metrics(_: Request) -> Response:
        async with httpx.AsyncClient() as http:
            sdk = await http.get(f"http://{sdk_metrics}/metrics")
        return Response(generate_latest() + sdk.content, media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
        ]
    )


@contextlib.asynccontextmanager
async def serving_http(app: Starlette, listen: str) -> AsyncIterator[None]:
    """Run the HTTP server while the body runs."""
    host, _, port = listen.rpartition(":")
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=int(port),
            log_config=None,
            access_log=False,
            lifespan="off",
        )
    )
    # `main` handles signals, not the HTTP server.
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    # `serve` would install its own signal handlers.
    task = asyncio.create_task(server._serve())  # noqa: SLF001
    try:
        yield
    finally:
        server.should_exit = True
        await task


def free_port() -> int:
    """Return a local port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
