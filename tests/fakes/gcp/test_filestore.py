"""Filestore and the list of APIs of the fake."""

import pytest
from google.api_core import exceptions
from google.cloud import filestore_v1

from fakes.gcp.calls.faults import OperationFails
from fakes.gcp.clients import Clients
from fakes.gcp.fake import FakeGoogle
from tests.fakes.gcp.objects import REGION

pytestmark = pytest.mark.slow

FILE = "file.googleapis.com"


@pytest.fixture
def zone(google: FakeGoogle, clients: Clients) -> str:
    """A location for instances, with the API enabled."""
    clients.service_usage.enable_service(
        request={"name": f"projects/{google.project}/services/{FILE}"}
    )
    google.finish()
    return f"projects/{google.project}/locations/{REGION}-a"


def an_instance(google: FakeGoogle) -> filestore_v1.Instance:
    network = filestore_v1.NetworkConfig(
        network=f"projects/{google.project}/global/networks/default"
    )
    return filestore_v1.Instance(
        tier="ENTERPRISE",
        networks=[network],
        labels={"kubernetes_io_created-for_pvc_name": "cache"},
    )


def test_an_instance_is_created_and_deleted(
    google: FakeGoogle, clients: Clients, zone: str
) -> None:
    request = {"parent": zone, "instance_id": "cache", "instance": an_instance(google)}
    operation = clients.filestore.create_instance(request=request)
    assert (
        clients.filestore.get_instance(name=f"{zone}/instances/cache").state.name
        == "CREATING"
    )
    assert operation.result(timeout=30).state.name == "READY"
    with pytest.raises(exceptions.AlreadyExists):
        clients.filestore.create_instance(request=request)
    deletion = clients.filestore.delete_instance(name=f"{zone}/instances/cache")
    with pytest.raises(exceptions.FailedPrecondition, match="busy"):
        clients.filestore.delete_instance(name=f"{zone}/instances/cache")
    deletion.result(timeout=30)
    with pytest.raises(exceptions.NotFound):
        clients.filestore.get_instance(name=f"{zone}/instances/cache")
    assert google.remains() == []


def test_a_deletion_that_fails_leaves_the_instance(
    google: FakeGoogle, clients: Clients, zone: str
) -> None:
    name = google.plant_message(f"{zone}/instances/cache", an_instance(google))
    google.fault(OperationFails(call="filestore.delete_instance"))
    with pytest.raises(exceptions.GoogleAPICallError, match="internal error"):
        clients.filestore.delete_instance(name=name).result(timeout=30)
    assert clients.filestore.get_instance(name=name).state.name == "ERROR"
    clients.filestore.delete_instance(name=name).result(timeout=30)


def test_instances_are_listed_in_pages_of_a_place_or_of_all(
    google: FakeGoogle, clients: Clients, zone: str
) -> None:
    for place in ("a", "b"):
        name = f"projects/{google.project}/locations/{REGION}-{place}/instances/i"
        instance = an_instance(google)
        instance.name = name
        google.plant_message(name, instance)
    assert [each.name for each in clients.filestore.list_instances(parent=zone)] == [
        f"{zone}/instances/i"
    ]
    request = {"parent": f"projects/{google.project}/locations/-", "page_size": 1}
    assert [
        len(page.instances)
        for page in clients.filestore.list_instances(request=request).pages
    ] == [1, 1]


def test_an_api_is_disabled_again(
    google: FakeGoogle, clients: Clients, zone: str
) -> None:
    clients.service_usage.disable_service(
        request={"name": f"projects/{google.project}/services/{FILE}"}
    ).result(timeout=30)
    with pytest.raises(exceptions.PermissionDenied):
        clients.filestore.get_instance(name=f"{zone}/instances/cache")


def test_an_api_that_could_not_be_enabled_is_not(
    google: FakeGoogle, clients: Clients
) -> None:
    google.fault(OperationFails(call="serviceusage.enable_service"))
    operation = clients.service_usage.enable_service(
        request={"name": f"projects/{google.project}/services/{FILE}"}
    )
    with pytest.raises(exceptions.GoogleAPICallError, match="internal error"):
        operation.result(timeout=30)
    assert not google.enabled(FILE)


def test_an_api_that_google_does_not_have_is_refused(
    google: FakeGoogle, clients: Clients
) -> None:
    with pytest.raises(
        exceptions.PermissionDenied, match="not found or permission denied"
    ):
        clients.service_usage.get_service(
            request={"name": f"projects/{google.project}/services/file.example.com"}
        )


def test_the_project_is_active(google: FakeGoogle, clients: Clients) -> None:
    assert (
        clients.projects.get_project(name=f"projects/{google.project}").state.name
        == "ACTIVE"
    )
