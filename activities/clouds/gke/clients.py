"""Clients of Google Cloud.

Production creates them from a credential. Tests create them for a fake.

Threads may share gRPC clients. Compute Engine clients hold an HTTP session, so each
thread has its own.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from google.api_core import exceptions
from google.auth.transport.requests import AuthorizedSession
from google.cloud import (
    container_v1,
    filestore_v1,
    iam_admin_v1,
    resourcemanager_v3,
    service_usage_v1,
)

from activities.clouds.gke.credential import read_google_credential
from activities.clouds.gke.tokens import (
    credentials_of,
    fetch_token,
    measured_offset,
    permit,
)
from activities.clouds.permitted import PermittedSources
from activities.clouds.provider import BearerToken

if TYPE_CHECKING:
    from google.cloud import compute_v1

TIMEOUT_SECONDS = 30.0
_CLOCK_URL = "https://oauth2.googleapis.com/"

COMPUTE_PREFIX = "compute."
COMPUTE_CLIENTS: Mapping[str, str] = {
    "accelerator_types": "AcceleratorTypesClient",
    "addresses": "AddressesClient",
    "backend_services": "RegionBackendServicesClient",
    "disks": "DisksClient",
    "firewalls": "FirewallsClient",
    "forwarding_rules": "ForwardingRulesClient",
    "global_operations": "GlobalOperationsClient",
    "health_checks": "HealthChecksClient",
    "instance_groups": "InstanceGroupsClient",
    "instances": "InstancesClient",
    "machine_types": "MachineTypesClient",
    "network_endpoint_groups": "NetworkEndpointGroupsClient",
    "networks": "NetworksClient",
    "projects": "ProjectsClient",
    "region_health_checks": "RegionHealthChecksClient",
    "region_operations": "RegionOperationsClient",
    "routers": "RoutersClient",
    "routes": "RoutesClient",
    "regions": "RegionsClient",
    "subnetworks": "SubnetworksClient",
    "target_pools": "TargetPoolsClient",
    "zone_operations": "ZoneOperationsClient",
}
"""Client classes of Compute Engine, by the part after `compute.` in a service name."""

GRPC_CLIENTS: Mapping[str, Any] = {
    "container": container_v1.ClusterManagerClient,
    "filestore": filestore_v1.CloudFilestoreManagerClient,
    "iam": iam_admin_v1.IAMClient,
    "resourcemanager.projects": resourcemanager_v3.ProjectsClient,
    "serviceusage": service_usage_v1.ServiceUsageClient,
}

LEGACY_HEALTH_CHECKS = "compute.http_health_checks"
"""The library has no client for legacy health checks.

`LegacyHealthChecks` replaces it.
"""


def compute_client_class(service: str) -> Any:
    # The module takes seconds to load. Fleets without GKE should not wait for that.
    from google.cloud import compute_v1  # noqa: PLC0415 - see above

    return getattr(compute_v1, COMPUTE_CLIENTS[service.removeprefix(COMPUTE_PREFIX)])


class GoogleClients(Protocol):
    """Clients by the service name of desired calls.

    `failures` translates their errors.
    """

    @property
    def project(self) -> str:
        """The project of the credential."""
        ...

    @property
    def account(self) -> str:
        """The email of the credential."""
        ...

    def client(self, service: str) -> Any:
        """Return the client of a service."""
        ...

    def permit(self, project: str) -> None:
        """Raise CredentialsInvalid if the credential may not be used in a project."""
        ...

    def clock_offset(self) -> float | None:
        """Return the seconds by which the worker's clock is ahead of Google's.

        Return None if Google does not respond.
        """
        ...

    def token(self) -> BearerToken:
        """Fetch an access token. Raises CredentialsInvalid or ServerError."""
        ...


class LegacyHealthChecks:
    """A client for the `httpHealthChecks` of target pools.

    `base` is the URL of the API.
    """

    def __init__(self, session: Any, base: str) -> None:
        self._session = session
        self._base = base

    def delete_unary(
        self, request: Mapping[str, str], *, timeout: float, retry: None = None
    ) -> "compute_v1.Operation":
        """Start a deletion. Raises the errors of Compute Engine clients."""
        del retry
        checks = f"{self._base}/projects/{request['project']}/global/httpHealthChecks"
        path = f"{checks}/{request['http_health_check']}"
        answer = self._checked(self._session.delete(path, timeout=timeout))
        from google.cloud import compute_v1  # noqa: PLC0415 - see `compute_client_class`

        operation: compute_v1.Operation = compute_v1.Operation.from_json(
            answer.text, ignore_unknown_fields=True
        )
        return operation

    def list(
        self, request: Mapping[str, Any], *, timeout: float
    ) -> Iterator[Mapping[str, Any]]:
        """Yield all health checks. Raises the errors of Compute Engine clients."""
        path = f"{self._base}/projects/{request['project']}/global/httpHealthChecks"
        token = ""
        while True:
            params = {"pageToken": token} if token else {}
            answer = self._session.get(path, params=params, timeout=timeout)
            found = self._checked(answer).json()
            yield from found.get("items", [])
            token = found.get("nextPageToken", "")
            if not token:
                return

    def _checked(self, answer: Any) -> Any:
        if not answer.ok:
            raise exceptions.from_http_response(answer)
        return answer


class CredentialClients:
    """The clients of production, from the text of a credential.

    Raises CredentialsInvalid if the credential is malformed or not permitted.
    """

    def __init__(
        self, credential_text: str, permitted: PermittedSources | None = None
    ) -> None:
        self._permitted = permitted or PermittedSources()
        self._credential = read_google_credential(credential_text, self._permitted)
        self._credentials = credentials_of(self._credential)
        self._lock = threading.Lock()
        self._shared: dict[str, Any] = {}
        self._of_thread = threading.local()

    @property
    def project(self) -> str:
        """The project of the credential."""
        return self._credential.project

    @property
    def account(self) -> str:
        """The email of the credential, or "" if only Google knows it."""
        return self._credential.email

    def permit(self, project: str) -> None:
        """Raise CredentialsInvalid if the credential may not be used in a project."""
        permit(self._credential, self._permitted, project)

    def clock_offset(self) -> float | None:
        """Return the seconds by which the worker's clock is ahead of Google's."""
        return measured_offset(_CLOCK_URL)

    def client(self, service: str) -> Any:
        """Return the client of a service, which is created on first use."""
        if service.startswith(COMPUTE_PREFIX):
            return self._compute_client(service)
        with self._lock:
            if service not in self._shared:
                self._shared[service] = GRPC_CLIENTS[service](
                    credentials=self._credentials
                )
            return self._shared[service]

    def _compute_client(self, service: str) -> Any:
        made: dict[str, Any] = self._of_thread.__dict__
        if service not in made:
            made[service] = self._new_compute_client(service)
        return made[service]

    def _new_compute_client(self, service: str) -> Any:
        if service == LEGACY_HEALTH_CHECKS:
            return LegacyHealthChecks(
                AuthorizedSession(self._credentials),
                "https://compute.googleapis.com/compute/v1",
            )
        return compute_client_class(service)(credentials=self._credentials)

    def token(self) -> BearerToken:
        """Fetch an access token from Google."""
        return fetch_token(credentials_of(self._credential), self.clock_offset)
