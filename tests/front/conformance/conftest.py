"""Fixtures: a front and a kube-apiserver with the same kinds."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.front.conformance.servers import Server, a_front, an_api_server


@pytest_asyncio.fixture(scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """An empty front."""
    async with a_front(tmp_path_factory.mktemp("front")) as server:
        yield server


@pytest_asyncio.fixture(scope="module")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A kube-apiserver."""
    async with an_api_server(tmp_path_factory.mktemp("real")) as server:
        yield server
