"""A connection to one testbed cluster, for tests that need a real API server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from activities.cluster_objects.cluster_api import Selection
from activities.cluster_objects.kinds import LEADER_WORKER_SET
from api_types.errors import Throttled
from testbed.running import Running
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
    eventually,
)

CLUSTER = "prod-eu"


@pytest_asyncio.fixture
async def cluster(
    testbed: Running, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClusterUnderTest]:
    """Connect to the cluster; delete the objects of the test afterwards."""
    made = await cluster_from(
        CLUSTER,
        testbed.clusters[CLUSTER].kubeconfig.read_text(),
        tmp_path_factory.mktemp("secrets"),
    )
    await eventually(lambda: _serves_all(made))
    made.facts = (await made.connect()).model_copy(update={"routing": "service"})
    yield made
    await made.clear()
    await made.pool.close()


async def _serves_all(cluster: ClusterUnderTest) -> bool:
    """Return whether the cluster serves all kinds.

    A cluster that has just started rejects lists of recently added kinds; a worker
    would retry.
    """
    try:
        await (await cluster.api()).list(
            Selection(LEADER_WORKER_SET, metadata_only=True)
        )
    except Throttled:
        return False
    return True
