"""A cluster that cannot be connected waits without history, and goes on when it can; on a real server with simulated clusters."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.workflows.environment.harness import ControlPlane, condition, eventually, reason
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
    activities_scheduled,
    connects_once,
    simulated_plane,
)
from workflows.entity import periods

pytestmark = pytest.mark.testbed("shared")

# Far less than the backoff of a workflow's own attempts.
WITHIN_SECONDS = 30
CONNECT, WAIT = "connect_cluster", "await_connection"


@pytest.fixture
def clusters() -> SimulatedClusters:
    return SimulatedClusters()


@pytest.fixture
async def plane(clusters: SimulatedClusters, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlPlane]:
    """A control plane of each test's own, in which nothing is checked periodically."""
    monkeypatch.setattr(periods, "RESYNC", timedelta(days=1))
    connects_once(monkeypatch)
    async with simulated_plane(clusters) as plane:
        await plane.apply(a_class())
        yield plane


async def not_ready(plane: ControlPlane, why: str) -> None:
    await plane.until("InferenceCluster", "eu", lambda seen: reason(seen, "ClusterReady") == why, within=WITHIN_SECONDS)


async def until_scheduled(plane: ControlPlane, *wanted: str) -> None:
    """Wait until exactly these were scheduled on the cluster, of the two that connect."""

    async def scheduled() -> list[str]:
        names = await activities_scheduled(plane, "InferenceCluster", "eu")
        return [name for name in names if name in (CONNECT, WAIT)]

    await eventually(scheduled, lambda found: found == list(wanted), within=WITHIN_SECONDS, what="the activities on eu")


async def test_a_secret_that_arrives_connects_the_cluster(plane: ControlPlane, clusters: SimulatedClusters) -> None:
    clusters.missing.add("eu")
    await plane.apply(a_cluster("eu"))
    await not_ready(plane, "CredentialsInvalid")
    await until_scheduled(plane, CONNECT, WAIT)
    clusters.missing.clear()
    await plane.ready("InferenceCluster", "eu", within=WITHIN_SECONDS)


async def test_an_api_server_that_answers_connects_the_cluster(plane: ControlPlane, clusters: SimulatedClusters) -> None:
    clusters.unreachable.add("eu")
    await plane.apply(a_cluster("eu"))
    await not_ready(plane, "Unreachable")
    await until_scheduled(plane, CONNECT, WAIT)
    clusters.unreachable.clear()
    await plane.ready("InferenceCluster", "eu", within=WITHIN_SECONDS)


async def test_another_failure_is_shown(plane: ControlPlane, clusters: SimulatedClusters) -> None:
    clusters.missing.add("eu")
    clusters.unreachable.add("eu")
    await plane.apply(a_cluster("eu"))
    await not_ready(plane, "CredentialsInvalid")
    clusters.missing.clear()
    await not_ready(plane, "Unreachable")
    await until_scheduled(plane, *[CONNECT, WAIT] * 2)


async def test_retry_connects_and_a_deletion_ends_the_wait(plane: ControlPlane, clusters: SimulatedClusters) -> None:
    clusters.missing.add("eu")
    await plane.apply(a_cluster("eu"))
    await until_scheduled(plane, CONNECT, WAIT)
    await plane.handle("InferenceCluster", "eu").signal("retry_now", {"requestId": "r1", "by": "test"})
    await until_scheduled(plane, *[CONNECT, WAIT] * 2)
    assert condition(await plane.describe("InferenceCluster", "eu"), "ClusterReady") == "False"
    await plane.delete("InferenceCluster", "eu")
    await plane.gone("InferenceCluster", "eu")
