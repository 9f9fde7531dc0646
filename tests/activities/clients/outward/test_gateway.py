"""Whether a gateway answers, asked through real sockets."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from activities.clients.outward import gateway
from activities.clients.outward.addresses import AddressRules
from activities.clients.outward.gateway import gateway_answers


@pytest.fixture
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the test server, which listens on a loopback address."""

    def rules(*, allow_loopback: bool) -> AddressRules:
        del allow_loopback
        return AddressRules(loopback=True)

    monkeypatch.setattr(gateway, "api_server_rules", rules)


def a_gateway(status: int) -> TestServer:
    """Return a server that answers each request with a status."""

    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/", answer)
    return TestServer(app)


@pytest.mark.usefixtures("_loopback")
@pytest.mark.parametrize(
    ("status", "answers"),
    [(200, True), (302, True), (404, True), (502, False), (503, False)],
)
async def test_an_answer_counts_unless_it_is_the_error_of_a_load_balancer(
    status: int, *, answers: bool
) -> None:
    async with a_gateway(status) as server:
        assert await gateway_answers(str(server.make_url("/"))) == answers


@pytest.mark.usefixtures("_loopback")
async def test_a_closed_port_is_no_answer() -> None:
    async with a_gateway(200) as server:
        url = str(server.make_url("/"))
    assert not await gateway_answers(url)


async def test_a_cluster_cannot_direct_the_probe_to_the_worker_itself() -> None:
    async with a_gateway(200) as server:
        assert not await gateway_answers(str(server.make_url("/")))
