"""One fake for all tests of a process, emptied before each, with gRPC clients and
common objects.
"""

from collections.abc import Iterator

import pytest
from google.cloud import container_v1

from fakes.gcp.clients import Clients
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.world import NO_ENDPOINT
from tests.fakes.gcp.objects import REGION, a_cluster, plant_network
from tests.testbed.conftest import eventually

__all__ = ["eventually"]


@pytest.fixture(scope="session")
def running_google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as google:
        yield google


@pytest.fixture
def google(running_google: FakeGoogle) -> FakeGoogle:
    running_google.reset()
    running_google.connect(lambda _: NO_ENDPOINT)
    return running_google


@pytest.fixture(scope="session")
def session_clients(running_google: FakeGoogle) -> Iterator[Clients]:
    with Clients(running_google.grpc_target) as clients:
        yield clients


@pytest.fixture
def clients(google: FakeGoogle, session_clients: Clients) -> Clients:  # noqa: ARG001
    return session_clients


@pytest.fixture
def container(clients: Clients) -> container_v1.ClusterManagerClient:
    return clients.container


@pytest.fixture
def parent(google: FakeGoogle) -> str:
    return f"projects/{google.project}/locations/{REGION}"


@pytest.fixture
def cluster(
    google: FakeGoogle, container: container_v1.ClusterManagerClient, parent: str
) -> str:
    """The full name of a ready cluster."""
    plant_network(google)
    container.create_cluster(parent=parent, cluster=a_cluster())
    google.finish()
    return f"{parent}/clusters/prod"
