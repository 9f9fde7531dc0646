"""The cluster of the workload tests: in memory, or in the testbed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.activities.environment.cluster_in_memory import cluster_in_memory
from tests.activities.environment.cluster_under_test import ClusterUnderTest


@pytest_asyncio.fixture
async def in_memory(tmp_path: Path) -> AsyncIterator[ClusterUnderTest]:
    async with cluster_in_memory(tmp_path) as cluster:
        yield cluster
