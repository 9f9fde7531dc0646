"""One fake for all tests of a process, emptied before each; the clients of gRPC, and objects that most tests stand on."""

from collections.abc import Iterator

import pytest
from google.cloud import container_v1

from testbed.clouds.gcp.clients import Clients
from testbed.clouds.gcp.fake import FakeGoogle
from testbed.clouds.gcp.services.world import NO_ENDPOINT
from tests.testbed.clouds.gcp.objects import REGION, a_cluster, plant_network


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
def clients(google: FakeGoogle, session_clients: Clients) -> Clients:  # noqa: ARG001  (empties the fake first)
    return session_clients


@pytest.fixture
def container(clients: Clients) -> container_v1.ClusterManagerClient:
    return clients.container


@pytest.fixture
def parent(google: FakeGoogle) -> str:
    return f"projects/{google.project}/locations/{REGION}"


@pytest.fixture
def cluster(google: FakeGoogle, container: container_v1.ClusterManagerClient, parent: str) -> str:
    """A cluster that is ready, by its full name."""
    plant_network(google)
    container.create_cluster(parent=parent, cluster=a_cluster())
    google.finish()
    return f"{parent}/clusters/prod"
