"""Troubles of the fake last until they are ended."""

from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.auth import exceptions as auth

from fakes.gcp.clients import Clients, credentials, token_of
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.troubles import LASTING, TROUBLES, begin
from tests.fakes.gcp.objects import REGION, a_pool

pytestmark = pytest.mark.slow


def status_of(google: FakeGoogle, clients: Clients, cluster: str) -> str:
    """Return the status of a new pool."""
    name = f"{cluster}/nodePools/gpu-l4"
    if name not in google.objects():
        clients.container.create_node_pool(parent=cluster, node_pool=a_pool())
        google.finish()
    return str(clients.container.get_node_pool(name=name).status.name)


def readable(google: FakeGoogle, clients: Clients, cluster: str) -> str:
    del google
    try:
        found = clients.container.get_cluster(name=cluster, retry=None)
        return str(found.status.name)
    except exceptions.GoogleAPICallError as error:
        return type(error).__name__


def token(google: FakeGoogle, clients: Clients, cluster: str) -> str:
    del clients, cluster
    try:
        return "token" if token_of(credentials(google.credential)) else ""
    except auth.RefreshError as error:
        return "skew" if "clock with skew" in str(error) else str(error)


PASSING: list[tuple[str, Callable[..., str], str, str]] = [
    ("no machines", status_of, "ERROR", "RUNNING"),
    ("a zone out", status_of, "ERROR", "RUNNING"),
    ("a role changed", readable, "PermissionDenied", "RUNNING"),
    ("outage", readable, "ServiceUnavailable", "RUNNING"),
    ("throttling", readable, "ResourceExhausted", "RUNNING"),
    ("clock skew", token, "skew", "token"),
]


@pytest.mark.parametrize(("name", "seen", "during", "after"), PASSING)
def test_a_trouble_lasts_until_it_is_ended(
    google: FakeGoogle,
    clients: Clients,
    cluster: str,
    *,
    name: str,
    seen: Callable[..., str],
    during: str,
    after: str,
) -> None:
    end = begin(name, google)
    first = seen(google, clients, cluster)
    end()
    assert (first, seen(google, clients, cluster)) == (during, after)


STATUSES = [("pools in ERROR", "ERROR"), ("pools with errors", "RUNNING_WITH_ERROR")]


@pytest.mark.parametrize(("name", "status"), STATUSES)
def test_a_running_pool_gets_a_status_and_recovers(
    google: FakeGoogle, clients: Clients, cluster: str, name: str, status: str
) -> None:
    status_of(google, clients, cluster)
    end = begin(name, google)
    first = status_of(google, clients, cluster)
    end()
    assert (first, status_of(google, clients, cluster)) == (status, "RUNNING")


def test_a_zone_that_is_out_takes_the_machines_of_running_pools(
    google: FakeGoogle, clients: Clients, cluster: str
) -> None:
    status_of(google, clients, cluster)
    end = begin("a zone out", google)
    first = status_of(google, clients, cluster)
    end()
    assert (first, status_of(google, clients, cluster)) == (
        "RUNNING_WITH_ERROR",
        "RUNNING",
    )


def test_labels_are_stripped_and_only_unused_subnets_are_deleted(
    google: FakeGoogle, cluster: str
) -> None:
    root = f"projects/{google.project}/regions/{REGION}/subnetworks"
    unused = google.plant(f"{root}/unused", network="x")
    found: Any = google.object_of(cluster)
    begin("labels stripped", google)()
    begin("subnets deleted", google)()
    left = [name for name in google.objects() if "/subnetworks/" in name]
    assert (dict(found.resource_labels), left) == ({}, [f"{root}/prod-nodes"])
    assert unused not in left


@pytest.mark.parametrize("name", sorted(LASTING))
def test_objects_of_others_are_removed_by_a_person(
    google: FakeGoogle, cluster: str, name: str
) -> None:
    before = google.objects()
    end = begin(name, google)
    assert len(google.objects()) > len(before)
    assert cluster in before
    end()
    assert google.objects() == before


def test_every_trouble_has_a_name_of_its_own() -> None:
    assert TROUBLES.keys().isdisjoint(LASTING)
