"""One fake Google Cloud for all tests of a process, emptied before each test."""

from collections.abc import Iterator

import pytest

from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import Cloud, a_cloud, run


@pytest.fixture(scope="session")
def running_google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as google:
        yield google


@pytest.fixture
def google(running_google: FakeGoogle) -> FakeGoogle:
    running_google.reset()
    return running_google


@pytest.fixture
def ready(google: FakeGoogle) -> Cloud:
    """Return a cluster with a pool that scales from 0 to 4."""
    cloud = a_cloud(google, a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=4))
    run(cloud.create_all())
    google.ledger().clear()
    return cloud
