"""A server with metrics in the Prometheus text format."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

WAITING, RUNNING = "vllm:num_requests_waiting", "vllm:num_requests_running"
PAGE = f"""# HELP {WAITING} Requests that wait.
# TYPE {WAITING} gauge
{WAITING}{{engine="0",model_name="qwen"}} 3.0
{WAITING}{{engine="1",model_name="qwen"}} 2
{WAITING}{{engine="0",model_name="o{{t\\"h,er"}} 100
{WAITING}_total 1000
# TYPE {RUNNING} gauge
{RUNNING} 1.5e1
"""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """A metrics server with a configurable response."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.answer: Handler = self.page
        self.text = PAGE

    async def page(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text=self.text)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return await self.answer(request)

    @asynccontextmanager
    async def served(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        server = TestServer(app, scheme="https" if tls else "http")
        await server.start_server(ssl=tls)
        try:
            yield str(server.make_url("/metrics"))
        finally:
            await server.close()
