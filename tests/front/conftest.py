"""Fixtures: one control plane with simulated clusters and one front for all tests of
the front.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.front.browser import Browser, a_browser
from tests.front.front_under_test import FrontUnderTest, a_front
from tests.front.token_issuer import TokenIssuer, an_issuer
from tests.workflows.environment.harness import ControlPlane
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
    simulated_plane,
)


@pytest_asyncio.fixture(scope="session")
async def plane() -> AsyncIterator[ControlPlane]:
    """A control plane with one cluster of 100 nodes.

    Its replicas end without a drain.
    """
    async with simulated_plane(
        SimulatedClusters(settings={"drain_seconds": 0})
    ) as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu", nodes=100))
        await plane.ready("InferenceCluster", "eu")
        yield plane


@pytest_asyncio.fixture(scope="session")
async def front(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[FrontUnderTest]:
    """The front with TLS, access file and real Temporal."""
    async with a_front(plane, tmp_path_factory.mktemp("front")) as front:
        yield front


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    """A token issuer with its own keys."""
    async with an_issuer() as found:
        yield found


@pytest_asyncio.fixture(scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """A browser; each test opens its own tabs."""
    async with a_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser
