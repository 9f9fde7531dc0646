"""An unreachable cluster waits without adding history, and continues when it becomes reachable."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.workflows.environment.harness import condition, eventually, reason
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
    connects_once,
)
from workflows.entity import periods

# Far less than the backoff of a workflow's own attempts.
WITHIN_SECONDS = 30
CONNECT, WAIT = "connect_cluster", "await_connection"


@pytest.fixture(autouse=True)
def rare_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable periodic checks."""
    monkeypatch.setattr(periods, "RESYNC", timedelta(days=1))
    connects_once(monkeypatch)


@asynccontextmanager
async def a_plane(clusters: SimulatedClusters) -> AsyncIterator[VirtualPlane]:
    """Start a control plane with a class of nodes."""
    async with virtual_plane(clusters) as plane:
        await plane.apply(a_class())
        yield plane


async def not_ready(plane: VirtualPlane, why: str) -> None:
    await plane.until(
        "InferenceCluster",
        "eu",
        lambda seen: reason(seen, "ClusterReady") == why,
        within=WITHIN_SECONDS,
    )


async def until_scheduled(plane: VirtualPlane, *wanted: str) -> None:
    """Wait until exactly these of the two connecting activities were scheduled for the cluster."""

    async def scheduled() -> list[str]:
        names = await plane.activities_scheduled("InferenceCluster", "eu")
        return [name for name in names if name in (CONNECT, WAIT)]

    await eventually(
        scheduled,
        lambda found: found == list(wanted),
        within=WITHIN_SECONDS,
        what="the activities on eu",
    )


@pytest.mark.parametrize(
    ("fault", "why"),
    [("missing", "CredentialsInvalid"), ("unreachable", "Unreachable")],
)
@on_a_virtual_loop
async def test_a_cluster_connects_as_soon_as_its_secret_or_api_server_exists(
    fault: str, why: str
) -> None:
    clusters = SimulatedClusters()
    async with a_plane(clusters) as plane:
        faulty: set[str] = getattr(clusters, fault)
        faulty.add("eu")
        await plane.apply(a_cluster("eu"))
        await not_ready(plane, why)
        await until_scheduled(plane, CONNECT, WAIT)
        faulty.clear()
        await plane.ready("InferenceCluster", "eu", within=WITHIN_SECONDS)


@on_a_virtual_loop
async def test_a_different_failure_is_shown() -> None:
    clusters = SimulatedClusters()
    async with a_plane(clusters) as plane:
        clusters.missing.add("eu")
        clusters.unreachable.add("eu")
        await plane.apply(a_cluster("eu"))
        await not_ready(plane, "CredentialsInvalid")
        clusters.missing.clear()
        await not_ready(plane, "Unreachable")
        await until_scheduled(plane, *[CONNECT, WAIT] * 2)


@on_a_virtual_loop
async def test_retry_connects_and_a_deletion_ends_the_wait() -> None:
    clusters = SimulatedClusters()
    async with a_plane(clusters) as plane:
        clusters.missing.add("eu")
        await plane.apply(a_cluster("eu"))
        await until_scheduled(plane, CONNECT, WAIT)
        await plane.handle("InferenceCluster", "eu").signal(
            "retry_now", {"requestId": "r1", "by": "test"}
        )
        await until_scheduled(plane, *[CONNECT, WAIT] * 2)
        assert (
            condition(await plane.describe("InferenceCluster", "eu"), "ClusterReady")
            == "False"
        )
        await plane.delete("InferenceCluster", "eu")
        await plane.gone("InferenceCluster", "eu")
