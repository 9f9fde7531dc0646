"""Capacity, quotas and explanations for the page, and the rights to them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from api_types import labels
from api_types.clock import now_ms
from api_types.resources.kinds import BY_KIND
from fleet_client.errors import NoAnswer
from fleet_client.placement import live_fleet
from fleet_client.placement.explanation import explanation
from fleet_client.placement.live_fleet import LiveFleet, read_live
from fleet_client.placement.usage import pool_rows, quota_rows
from fleet_client.refs.targets import Target
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.page_data import placement
from front.page_data.live import REST_SECONDS
from front.page_data.placement import CAPACITY_PATH, PlacementData
from front.serving.app import Front
from tests.client.fleetfiles import Tree, a_class, a_deployment
from tests.client.planning.test_live_plan import published, stored
from tests.front.front_under_test import ACCESS, TOKENS
from tests.front.scheduled_fleet import ScheduledFleet, scheduled
from tests.front.shown_fleet import put

Client = TestClient[Request, Application]
POLICY = {
    "priorityClasses": {"high": 10},
    "quotas": [
        {"namespace": "team-a", "maxNodes": 2},
        {"namespace": "team-b", "maxNodes": 9},
    ],
}
QUEUE = {"name": "gpus", "nominal": 8, "used": 9, "borrowed": 1, "tenants": ["team-b"]}


def of(namespace: str, tree: Tree) -> Tree:
    return {**tree, "metadata": {**tree["metadata"], "namespace": namespace}}


def two_tenants() -> ScheduledFleet:
    """Both tenants have a replica on each node of a kind, and a third would preempt."""
    eu = published("eu", ("h200", 2))
    eu["metadata"]["annotations"] = {labels.CAPACITY_ADAPTER: "kueue"}
    urgent = {"priorityClassName": "high", "preemptionPolicy": "LowerPriority"}
    fleet = scheduled(
        a_class(),
        eu,
        of("team-b", stored(a_deployment("secret", 1))),
        of("team-a", stored(a_deployment("chat", 1))),
        policy=POLICY,
    )
    status = {**eu["status"], "capacity": {"queues": [QUEUE]}}
    fleet.plane.accounts["eu"] = {**eu, "status": status}
    return with_deployment(fleet, urgent)


def with_deployment(fleet: ScheduledFleet, scheduling: Tree) -> ScheduledFleet:
    """Add a deployment of team-a that was not decided yet."""
    tree = of("team-a", stored(a_deployment("urgent", 1)))
    tree["spec"]["scheduling"] = scheduling
    tree["metadata"]["resourceVersion"] = "1"
    put(fleet.projection, tree)
    fleet.plane.trees = (*fleet.plane.trees, tree)
    return fleet


@pytest.fixture
def rules(tmp_path: Path) -> AccessRules:
    file = tmp_path / "access.yaml"
    digests = {
        name: sha256(token.encode()).hexdigest() for name, token in TOKENS.items()
    }
    file.write_text(ACCESS.format(**digests))
    return AccessRules(file)


@asynccontextmanager
async def served(fleet: ScheduledFleet, rules: AccessRules) -> AsyncIterator[Client]:
    front = Front(fleet.control_plane, fleet.projection, AccessControl(rules), {})
    routes = PlacementData(front).routes()
    async with TestClient(TestServer(front.app(routes))) as client:
        yield client


async def get(client: Client, path: str, user: str = "admin") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {TOKENS[user]}"} if user else {}
    async with client.get(path, headers=headers) as answer:
        return answer.status, await answer.json()


def explained(name: str, namespace: str = "team-a") -> str:
    return f"/v1/namespaces/{namespace}/modeldeployments/{name}/explanation"


async def test_an_administrator_gets_what_the_command_line_prints(
    rules: AccessRules,
) -> None:
    fleet = two_tenants()
    live = await read_live(fleet.control_plane)
    async with served(fleet, rules) as client:
        status, capacity = await get(client, CAPACITY_PATH)
        _, explanation_ = await get(client, explained("urgent"))
        _, of_chat = await get(client, explained("chat"))
    assert status == HTTPStatus.OK
    assert capacity["pools"] == pool_rows(live, now_ms())
    assert capacity["quotas"] == quota_rows(live, now_ms())
    assert [row["namespace"] for row in capacity["namespaces"]] == ["team-a", "team-b"]
    (queue,) = capacity["queues"]
    assert (queue["guaranteed"], queue["borrowed"], queue["tenants"]) == (
        8,
        1,
        "team-b",
    )
    # Readiness comes from the objects: the ledger does not have it.
    assert [each["ready"] for each in of_chat["replicas"]] == [True]
    at = explanation_.pop("at")
    target = Target.of(BY_KIND["ModelDeployment"], "team-a", "urgent")
    assert explanation_ == explanation(live, target, now_ms())
    assert explanation_["evictions"] != []
    assert explanation_["clusters"] != {}
    assert abs(now_ms() - at) < 600_000


async def test_a_tenant_gets_the_capacity_and_quotas_of_the_own_namespace_only(
    rules: AccessRules,
) -> None:
    async with served(two_tenants(), rules) as client:
        _, everything = await get(client, CAPACITY_PATH, "alice")
        _, other = await get(client, f"{CAPACITY_PATH}?namespace=team-b", "alice")
        _, own = await get(client, f"{CAPACITY_PATH}?namespace=team-a", "alice")
        anonymous, _ = await get(client, CAPACITY_PATH, "")
        async with client.post(
            CAPACITY_PATH, headers={"Authorization": f"Bearer {TOKENS['admin']}"}
        ) as answer:
            posted = answer.status
    assert (sorted(everything), sorted(other)) == (["at"], ["at"])
    assert sorted(own) == ["at", "namespaces", "quotas"]
    rows = [*own["namespaces"], *own["quotas"]]
    assert {row["namespace"] for row in rows} == {"team-a"}
    assert (anonymous, posted) == (401, 405)


async def test_a_tenant_learns_nothing_about_other_tenants_from_an_explanation(
    rules: AccessRules,
) -> None:
    async with served(two_tenants(), rules) as client:
        status, own = await get(client, explained("urgent"), "alice")
        foreign, _ = await get(client, explained("secret", "team-b"), "alice")
        # A tenant cannot learn which names exist in another namespace.
        absent, _ = await get(client, explained("absent", "team-b"), "alice")
        missing, _ = await get(client, explained("absent"), "alice")
        anonymous, _ = await get(client, explained("urgent"), "")
    assert status == HTTPStatus.OK
    assert (own["clusters"], own["evictions"], own["suggestions"]) == ({}, [], [])
    assert "secret" not in str(own)
    assert "team-b" not in str(own)
    assert own["replicas"] != []
    assert (foreign, absent, missing, anonymous) == (403, 403, 404, 401)


async def test_a_queue_names_its_users_only_to_those_who_see_all_namespaces(
    tmp_path: Path,
) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(
        "users: [{name: op, groups: [ops], tokenSha256: ["
        f"{sha256(TOKENS['bob'].encode()).hexdigest()}]}}]\n"
        "rules: [{groups: [ops], clusterScoped: true, resources: [inferenceclusters], "
        "verbs: [list]}]\n"
    )
    async with served(two_tenants(), AccessRules(file)) as client:
        _, found = await get(client, CAPACITY_PATH, "bob")
    assert sorted(found) == ["at", "pools", "queues"]
    assert [row["tenants"] for row in found["queues"]] == [""]


async def test_many_pages_cost_as_much_as_one(
    rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = two_tenants()
    counted: list[LiveFleet] = []

    def count(live: LiveFleet) -> list[Tree]:
        counted.append(live)
        return []

    monkeypatch.setattr(placement, "queue_rows", count)
    async with served(fleet, rules) as client:
        for _ in range(3):
            await get(client, CAPACITY_PATH)
            await get(client, explained("chat"))
    assert REST_SECONDS > 1
    assert (fleet.plane.asked.count("policy"), len(counted)) == (1, 1)


async def test_without_a_worker_the_answer_is_503(
    rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> Any:
        raise NoAnswer("no worker", next_step="start one")

    monkeypatch.setattr(live_fleet, "_ledger", silent)
    fleet = two_tenants()
    async with served(fleet, rules) as client:
        status, told = await get(client, CAPACITY_PATH)
        assert (status, told["message"]) == (503, "no worker answers")
        fleet.projection.complete = False
        status, told = await get(client, CAPACITY_PATH)
        assert (status, told["message"]) == (503, "the objects are not loaded yet")


async def test_a_user_with_many_requests_does_not_delay_others(
    rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    fleet = two_tenants()
    free = asyncio.Event()

    def slow(live: LiveFleet, target: Target, *_: object) -> Tree:
        computed.append(target.name)
        if len(computed) == 1:
            loop.call_soon_threadsafe(free.set)
            time.sleep(0.5)
        return explanation(live, target, now_ms())

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(placement, "explanation", slow)
    async with served(fleet, rules) as client:
        many = [
            asyncio.create_task(get(client, explained("chat"), "alice"))
            for _ in range(10)
        ]
        await free.wait()
        await get(client, explained("secret", "team-b"), "bob")
        found = list(computed)
        await asyncio.gather(*many)
    # The requests of alice that were sent before wait behind the request of bob.
    assert found.index("secret") <= 2
    assert computed.count("chat") == 10
