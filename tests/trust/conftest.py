"""One cluster of the testbed, for what only a real API server can say."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed.running import Running
from tests.activities.environment.cluster_under_test import ClusterUnderTest, cluster_from

CLUSTER = "prod-eu"


@pytest_asyncio.fixture
async def cluster(testbed: Running, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterUnderTest]:
    """The cluster, connected; what a test applies is taken away after it."""
    made = await cluster_from(CLUSTER, testbed.clusters[CLUSTER].kubeconfig.read_text(), tmp_path_factory.mktemp("secrets"))
    made.facts = (await made.connect()).model_copy(update={"routing": "service"})
    yield made
    await made.clear()
    await made.pool.close()
