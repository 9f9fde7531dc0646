"""One Temporal server for the tests of a CloudCluster."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import Client

from tests.workflows.cloud_cluster.control_plane import (
    CloudPlane,
    cloud_plane,
    workflow_worker,
)
from tests.workflows.environment.short_runs import server_with_short_runs
from workflows.cloud_cluster import teardown

# Far more than any of these tests needs.
_EVENTS = 20_000


@pytest_asyncio.fixture(scope="package")
async def server() -> AsyncIterator[Client]:
    """Start a server and a worker of the workflow; yield a client of the server."""
    async with server_with_short_runs(_EVENTS) as client, workflow_worker(client):
        yield client


@pytest.fixture(autouse=True)
def _short_create_call(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let deletions at the server search soon after they stopped a creation."""
    if "server" in request.fixturenames:
        monkeypatch.setattr(teardown, "_CREATE_CALL", timedelta(seconds=1))


@pytest_asyncio.fixture
async def gke(server: Client) -> AsyncIterator[CloudPlane]:
    async with cloud_plane(server, "GKE") as plane:
        yield plane


@pytest_asyncio.fixture
async def eks(server: Client) -> AsyncIterator[CloudPlane]:
    async with cloud_plane(server, "EKS") as plane:
        yield plane
