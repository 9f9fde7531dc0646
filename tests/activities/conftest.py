"""One cluster of the testbed for all tests of activities.

Each test works in namespaces of its own, which end with it.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed.running import Running
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
)

CLUSTER = "prod-eu"


@pytest_asyncio.fixture(scope="session")
async def connected(
    testbed: Running, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClusterUnderTest]:
    """The cluster `prod-eu`, connected once."""
    made = await cluster_from(
        CLUSTER,
        testbed.clusters[CLUSTER].kubeconfig.read_text(),
        tmp_path_factory.mktemp("secrets"),
    )
    made.facts = (await made.connect()).model_copy(update={"routing": "service"})
    yield made
    await made.pool.close()


@pytest_asyncio.fixture
async def cluster(connected: ClusterUnderTest) -> AsyncIterator[ClusterUnderTest]:
    """The cluster `prod-eu`.

    Objects of a test are deleted after it, because its nodes are few.
    """
    connected.heartbeats.clear()
    yield connected
    await connected.clear()
