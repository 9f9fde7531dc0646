"""Traffic of services from Prometheus, and the rights to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from api_types.names import service_route_name
from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.page_data import prometheus
from front.page_data.prometheus import (
    QUERIES,
    REST_SECONDS,
    Traffic,
    UnusableAnswer,
    values_of,
)
from front.page_data.traffic import TRAFFIC_PATH, TrafficData
from front.serving.app import Front
from tests.front.front_under_test import ACCESS, TOKENS
from tests.front.shown_fleet import a_fleet, an_object, put

CHAT = ("team-a", "chat")
Client = TestClient[web.Request, web.Application]


def cluster_of(namespace: str, name: str) -> str:
    return f"httproute/{namespace}/{service_route_name(namespace, name)}/rule/0"


def vector(**values: str) -> Any:
    """Return a response with a value for each Envoy cluster."""
    rows = [
        {"metric": {"envoy_cluster_name": name}, "value": [1.5, value]}
        for name, value in values.items()
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": rows}}


class FakePrometheus:
    """Answers each query with its place in `QUERIES`, for two services."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.answer: Any = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = request.query["query"]
        self.queries.append(query)
        if self.answer == "redirect":
            raise web.HTTPFound("/elsewhere")
        if self.answer == "slow":
            await asyncio.sleep(60)
        if self.answer is not None:
            return web.json_response(self.answer)
        place = str(list(QUERIES.values()).index(query))
        names = {cluster_of(*CHAT): place, cluster_of("team-b", "secret"): "7"}
        return web.json_response(vector(**names))

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/base/api/v1/query", self.handle)
        async with TestServer(app) as server:
            yield f"http://127.0.0.1:{server.port}/base/"


async def test_the_numbers_of_a_service_are_those_of_its_envoy_cluster() -> None:
    fake = FakePrometheus()
    async with fake.served() as url:
        traffic = Traffic(url)
        found = await traffic.of([CHAT, ("team-a", "quiet")])
        # The numbers are read once for many pages.
        again = await traffic.of([("team-b", "secret")])
    assert (found["configured"], found["problem"]) == (True, "")
    assert found["services"] == {
        "team-a/chat": {name: float(place) for place, name in enumerate(QUERIES)}
    }
    assert list(again["services"]) == ["team-b/secret"]
    assert sorted(fake.queries) == sorted(QUERIES.values())


async def test_without_an_address_there_is_no_traffic() -> None:
    assert await Traffic("").of([CHAT]) == {"configured": False}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"status": "error"}, "the response is not a vector of Prometheus"),
        ([], "the response is not a vector of Prometheus"),
        (vector(x="many"), "could not convert string to float"),
        ("redirect", "the HTTP status is 302"),
        ("slow", "no complete response within 0 s"),
        ("x" * 200, "the response has more than 100 bytes"),
    ],
)
async def test_numbers_that_cannot_be_read_again_stay_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, answer: Any, problem: str
) -> None:
    now = [0.0]
    fake = FakePrometheus()
    async with fake.served() as url:
        traffic = Traffic(url, clock=lambda: now[0])
        before = await traffic.of([CHAT])
        monkeypatch.setattr(prometheus, "ANSWER_SECONDS", 0.3)
        if answer == "x" * 200:
            monkeypatch.setattr(prometheus, "BODY_BYTES_MAX", 100)
        fake.answer, now[0] = answer, REST_SECONDS
        found = await traffic.of([CHAT])
    assert problem in found["problem"]
    assert (found["at"], found["services"]) == (before["at"], before["services"])


async def test_an_address_that_does_not_answer_is_a_problem_and_no_error() -> None:
    found = await Traffic("http://127.0.0.1:1").of([CHAT])
    assert "Cannot connect" in found["problem"]
    assert found["services"] == {}


def test_values_that_are_no_numbers_are_left_out() -> None:
    assert values_of(vector(a="NaN", b="+Inf", c="0.5")) == {"c": 0.5}
    with pytest.raises(UnusableAnswer):
        values_of({"status": "success", "data": {"resultType": "matrix"}})


@asynccontextmanager
async def front_with(url: str, folder: Path) -> AsyncIterator[Client]:
    file = folder / "access.yaml"
    digests = {
        name: sha256(token.encode()).hexdigest() for name, token in TOKENS.items()
    }
    file.write_text(ACCESS.format(**digests))
    fleet = a_fleet()
    put(fleet, an_object("ModelService", "secret", "team-b"))
    access = AccessControl(AccessRules(file))
    front = Front(cast("ControlPlane", None), fleet, access, {})
    routes = TrafficData(front, Traffic(url)).routes()
    async with TestClient(TestServer(front.app(routes))) as client:
        yield client


async def test_a_tenant_gets_the_traffic_of_the_own_services_only(
    tmp_path: Path,
) -> None:
    async def services(user: str, query: str = "") -> tuple[int, list[str]]:
        headers = {"Authorization": f"Bearer {TOKENS[user]}"} if user else {}
        async with client.get(TRAFFIC_PATH + query, headers=headers) as answer:
            return answer.status, sorted((await answer.json()).get("services", []))

    async with (
        FakePrometheus().served() as url,
        front_with(url, tmp_path) as client,
    ):
        own = ["team-a/chat"]
        assert await services("admin") == (200, [*own, "team-b/secret"])
        assert await services("alice", "?namespace=team-a") == (200, own)
        assert await services("alice") == (403, [])
        assert await services("alice", "?namespace=team-b") == (403, [])
        assert await services("") == (401, [])
