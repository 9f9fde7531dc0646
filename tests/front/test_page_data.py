"""The state for the page: the ring of samples, health, and the rights to them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from fleet_client.temporal.control_plane import ControlPlane
from fleet_client.temporal.worker_versions import POLLED_LATELY
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.page_data import health, history
from front.page_data.health import SILENT_SECONDS, ControlPlaneHealth
from front.page_data.history import NAMESPACES_MAX, SAMPLES, History, Ring, sample_of
from front.page_data.routes import PATH, PageData
from front.serving.app import Front
from front.store.feed import Feed
from front.store.projection import Projection
from tests.front.front_under_test import ACCESS, TOKENS
from tests.front.page_states import ShownState
from tests.front.shown_fleet import a_deployment, a_fleet, an_object, condition, put
from tests.front.shown_page import ShownHealth

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
Client = TestClient[Request, Application]


def test_a_ring_keeps_the_newest_samples_in_bounded_memory() -> None:
    ring = Ring(2)
    for number in range(SAMPLES + 5):
        ring.add([number, -1])
    samples = ring.samples()
    assert (len(samples), samples[0], samples[-1]) == (
        SAMPLES,
        [5, 0],
        [SAMPLES + 4, 0],
    )
    ring.add([2**40, 0])
    assert ring.samples()[-1] == [2**32 - 1, 0]


def test_the_history_counts_nodes_and_replicas_per_namespace() -> None:
    fleet = a_fleet()
    put(fleet, an_object("ModelDeployment", "b", "team-b", spec={"replicas": 2}))
    found = History(fleet)
    found.sample()
    assert found.capacity() == [[304, 6, 1]]
    assert found.workloads("team-b")[0][:3] == [2, 0, 0]
    assert found.workloads("team-a")[0][:3] == [4, 4, 2]
    assert found.workloads("")[0][:3] == [6, 4, 2]
    assert found.workloads("team-c") == []


def test_namespaces_without_deployments_are_forgotten_and_their_number_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "NAMESPACES_MAX", 2)
    assert NAMESPACES_MAX > 2
    fleet = Projection()
    for name in ("a", "b", "c"):
        put(fleet, an_object("ModelDeployment", "x", name, spec={"replicas": 1}))
    found = History(fleet)
    found.sample()
    assert [len(found.workloads(name)) for name in ("a", "b", "c", "")] == [1, 1, 0, 1]
    for key in list(fleet.of_kind("ModelDeployment"))[:2]:
        fleet.remove(key, 2**50)
    found.sample()
    assert [len(found.workloads(name)) for name in ("a", "b", "c", "")] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("placed", "since", "wait"),
    [(0, "2026-01-01T00:00:00Z", 60), (1, "2026-01-01T00:00:00Z", 0), (0, "soon", 0)],
)
def test_a_deployment_waits_since_its_condition(
    placed: int, since: str, wait: int
) -> None:
    scheduled = condition("False", kind="ReplicasScheduled") | {
        "lastTransitionTime": since
    }
    tree = a_deployment(
        "x", conditions=(scheduled,), replicas={"total": placed, "ready": 0}
    )
    assert sample_of(tree, NOW) == [1, placed, 0, wait]


@pytest.mark.parametrize(
    ("answered", "polled", "silent"),
    [
        (0, 0, (False, False)),
        # Temporal restarted, and forgot the workers: they may poll in a moment.
        (0, "not yet", (False, False)),
        (SILENT_SECONDS + 1, 0, (True, False)),
        (0, POLLED_LATELY + 1, (False, True)),
        (0, None, (False, True)),
    ],
)
async def test_temporal_and_workers_are_silent_after_a_time_without_answers(
    monkeypatch: pytest.MonkeyPatch,
    answered: float,
    polled: float | str | None,
    silent: tuple[bool, bool],
) -> None:
    now = 10_000
    times = [now if polled == "not yet" else now - POLLED_LATELY - 1]

    async def last_poll(*_: object) -> float | None:
        return now - polled if isinstance(polled, int | float) else None

    monkeypatch.setattr(health, "last_poll", last_poll)
    feed = Feed(cast("ControlPlane", None), Projection())
    feed.answered = now - answered
    found = ControlPlaneHealth(
        cast("TemporalClient", None), feed, lambda: times[-1] * 1000
    )
    times.append(now)
    await found.observe()
    tree = found.tree()
    assert (tree["temporal"]["silent"], tree["workers"]["silent"]) == silent


async def test_a_silent_temporal_says_nothing_about_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def last_poll(*_: object) -> float | None:
        raise RPCError("timeout", RPCStatusCode.DEADLINE_EXCEEDED, b"")

    monkeypatch.setattr(health, "last_poll", last_poll)
    feed = Feed(cast("ControlPlane", None), Projection())
    found = ControlPlaneHealth(cast("TemporalClient", None), feed, lambda: 10_000_000)
    await found.observe()
    workers = found.tree()["workers"]
    assert (workers["known"], workers["silent"]) == (False, False)


@pytest.fixture
def rules(tmp_path: Path) -> AccessRules:
    file = tmp_path / "access.yaml"
    digests = {
        name: sha256(token.encode()).hexdigest() for name, token in TOKENS.items()
    }
    file.write_text(ACCESS.format(**digests))
    return AccessRules(file)


@asynccontextmanager
async def served(rules: AccessRules) -> AsyncIterator[Client]:
    fleet = a_fleet()
    front = Front(cast("ControlPlane", None), fleet, AccessControl(rules), {})
    data = PageData(front, cast("ControlPlaneHealth", ShownHealth(ShownState(fleet))))
    data.history.sample()
    async with TestClient(TestServer(front.app(data.routes()))) as client:
        yield client


async def test_a_tenant_gets_the_history_of_the_own_namespace_only(
    rules: AccessRules,
) -> None:
    async def history_for(user: str, query: str = "") -> Any:
        headers = {"Authorization": f"Bearer {TOKENS[user]}"}
        async with client.get(PATH + query, headers=headers) as answer:
            assert answer.status == 200
            return sorted((await answer.json())["history"])

    async with served(rules) as client:
        assert await history_for("admin") == ["capacity", "workloads"]
        assert await history_for("alice") == []
        assert await history_for("alice", "?namespace=team-a") == ["workloads"]
        assert await history_for("alice", "?namespace=team-b") == []
        async with client.get(PATH) as answer:
            assert answer.status == 401


async def test_the_state_is_only_read(rules: AccessRules) -> None:
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    async with served(rules) as client, client.post(PATH, headers=headers) as answer:
        assert answer.status == 405
