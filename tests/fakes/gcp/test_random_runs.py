"""A client that only retries gets through any faults and leaves nothing, because every
fault ends.

The client is as simple as possible, and has none of the product's rules about time and
errors.
"""

from collections.abc import Callable, Mapping
from random import Random

import httpx
import pytest
from google.api_core.exceptions import GoogleAPICallError, NotFound, Unknown

from fakes.gcp.calls.ledger import FAILED
from fakes.gcp.calls.random_faults import random_faults
from fakes.gcp.clients import Clients
from fakes.gcp.fake import FakeGoogle
from tests.fakes.gcp.objects import REGION, a_cluster, a_pool
from tests.random_cases import SEED, cases

ATTEMPTS = 300


class Refused(Exception):
    """The answers of compute without an effect."""


class Client:
    """The steps of creating and deleting, one by one. Each raises its error."""

    def __init__(
        self, google: FakeGoogle, clients: Clients, http: httpx.Client
    ) -> None:
        self.google, self.clients, self.http = google, clients, http
        self.root = f"projects/{google.project}"
        self.cluster = f"{self.root}/locations/{REGION}/clusters/prod"
        self.pool = f"{self.cluster}/nodePools/gpu-l4"

    def again_and_again(self, step: Callable[[], bool]) -> None:
        for _ in range(ATTEMPTS):
            try:
                if step():
                    return
            except Unknown:
                raise
            except (GoogleAPICallError, httpx.TransportError, Refused):
                continue
        raise AssertionError(f"no end of {step}: {self.google.ledger().calls()[-5:]}")

    def compute(
        self, verb: str, path: str, body: Mapping[str, object] | None = None
    ) -> httpx.Response:
        answer = self.http.request(
            verb, f"{self.google.compute_url}/compute/v1/{self.root}/{path}", json=body
        )
        if answer.status_code >= 400 and answer.status_code != 404:
            raise Refused(answer.text)
        return answer

    def network(self) -> bool:
        if self.compute("GET", "global/networks/prod").status_code == 200:
            return True
        self.compute(
            "POST", "global/networks", {"name": "prod", "autoCreateSubnetworks": False}
        )
        return False

    def subnet(self) -> bool:
        # A visible network vanishes again if its creating operation fails.
        if not self.network():
            return False
        answer = self.compute("GET", f"regions/{REGION}/subnetworks/prod-nodes")
        if answer.status_code == 200:
            return bool(answer.json().get("state") == "READY")
        ranges = [
            {"rangeName": "pods", "ipCidrRange": "10.1.0.0/16"},
            {"rangeName": "services", "ipCidrRange": "10.2.0.0/16"},
        ]
        body = {
            "name": "prod-nodes",
            "network": "global/networks/prod",
            "ipCidrRange": "10.0.0.0/24",
            "secondaryIpRanges": ranges,
        }
        self.compute("POST", f"regions/{REGION}/subnetworks", body)
        return False

    def ready_cluster(self) -> bool:
        try:
            status = self.clients.container.get_cluster(name=self.cluster).status.name
        except NotFound:
            self.clients.container.create_cluster(
                parent=f"{self.root}/locations/{REGION}", cluster=a_cluster()
            )
            return False
        if status == "ERROR":
            self.clients.container.delete_cluster(name=self.cluster)
        return bool(status == "RUNNING")

    def ready_pool(self) -> bool:
        try:
            status = self.clients.container.get_node_pool(name=self.pool).status.name
        except NotFound:
            self.clients.container.create_node_pool(
                parent=self.cluster, node_pool=a_pool()
            )
            return False
        if status == "ERROR":
            self.clients.container.delete_node_pool(name=self.pool)
        return bool(status == "RUNNING")

    def no_cluster(self) -> bool:
        try:
            self.clients.container.delete_cluster(name=self.cluster)
        except NotFound:
            return self.cluster not in self.google.objects()
        return False

    def nothing(self) -> bool:
        """Delete the rest in any order. An object in use is refused, and retried."""
        for name in self.google.remains():
            try:
                if "/instances/" in name:
                    self.clients.filestore.delete_instance(name=name)
                else:
                    self.compute("DELETE", name.removeprefix(f"{self.root}/"))
            except (GoogleAPICallError, httpx.TransportError, Refused):
                continue
        return not self.google.remains()

    def enabled(self) -> bool:
        self.clients.service_usage.enable_service(
            request={"name": f"{self.root}/services/file.googleapis.com"}
        )
        self.google.finish()
        return self.google.enabled("file.googleapis.com")


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("number", range(cases(60)))
def test_trying_again_comes_through_any_faults(
    google: FakeGoogle, clients: Clients, number: int
) -> None:
    draw = Random(SEED + number)  # noqa: S311  (repeatable on purpose)
    google.fault(*random_faults(draw, draw.randint(1, 8)))
    with httpx.Client(timeout=60) as http:
        client = Client(google, clients, http)
        for step in (
            client.enabled,
            client.network,
            client.subnet,
            client.ready_cluster,
            client.ready_pool,
        ):
            client.again_and_again(step)
        google.finish()
        for step in (client.no_cluster, client.nothing):
            client.again_and_again(step)
    assert google.remains() == []
    assert not [call for call in google.ledger().calls() if call.outcome == FAILED]
