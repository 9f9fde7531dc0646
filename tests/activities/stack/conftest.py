"""One bare cluster for all tests of stack activities, with our own charts and real
helm.

Each test restores its initial state.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import pytest_asyncio

from activities.clients.helm.pool import HelmClients
from activities.stack.activities import StackActivities
from api_types.sections.stacks import StackSettings
from tests.activities.environment.cluster_under_test import cluster_from, eventually
from tests.activities.stack.stack_under_test import StackUnderTest
from tests.environment.cached_programs import with_cached_helm
from tests.environment.envoy_stand_in import Behaviour
from tests.environment.stack_testbed import CLUSTER, StackCluster, stack_cluster
from tests.environment.summary import Summary


@pytest.fixture(scope="session")
def world(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[StackCluster]:
    """The bare cluster, with charts and the stand-in for Envoy."""
    with stack_cluster(
        tmp_path_factory.mktemp("stack"), Summary.of(pytestconfig)
    ) as world:
        yield world


@pytest_asyncio.fixture(scope="session")
async def bare(
    world: StackCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[StackUnderTest]:
    """The connected activities."""
    cluster = await cluster_from(
        CLUSTER,
        world.cluster.kubeconfig.read_text(),
        tmp_path_factory.mktemp("secrets"),
    )
    settings = StackSettings(chart_mirror=world.charts.url)
    helm = HelmClients(cluster.pool, with_cached_helm(settings))
    yield StackUnderTest(
        world, cluster, StackActivities(cluster.pool, helm, settings), uid=""
    )
    helm.close()
    await cluster.pool.close()


@pytest_asyncio.fixture
async def stack(bare: StackUnderTest) -> AsyncIterator[StackUnderTest]:
    """The bare cluster for one InferenceCluster.

    Its leftovers are removed afterwards.
    """
    bare.cluster.heartbeats.clear()
    yield replace(bare, uid=uuid.uuid4().hex, ensured={}, groups=[])
    bare.world.envoy.behaviour = Behaviour()
    await eventually(lambda: asyncio.to_thread(_is_clear, bare.world))
    await (await bare.api()).resources(refresh=True)


def _is_clear(world: StackCluster) -> bool:
    world.clear()
    return world.is_clear()
