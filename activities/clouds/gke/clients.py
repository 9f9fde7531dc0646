"""Clients of Google Cloud, made in one place: production makes them from a key, tests point them at their fake.

Clients over gRPC may be shared by threads; those of Compute Engine hold an HTTP session, so each thread has its own.
"""

import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from google.api_core import exceptions
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud import container_v1, filestore_v1, iam_admin_v1, resourcemanager_v3, service_usage_v1
from google.oauth2 import service_account

from activities.clouds.gke.credential import ServiceAccountKey, read_key
from activities.clouds.gke.failures import translated
from activities.clouds.provider import BearerToken
from api_types.errors import CredentialsInvalid

if TYPE_CHECKING:
    from google.cloud import compute_v1

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT_SECONDS = 30.0

COMPUTE_PREFIX = "compute."
COMPUTE_CLIENTS: Mapping[str, str] = {
    "addresses": "AddressesClient",
    "backend_services": "RegionBackendServicesClient",
    "disks": "DisksClient",
    "firewalls": "FirewallsClient",
    "forwarding_rules": "ForwardingRulesClient",
    "global_operations": "GlobalOperationsClient",
    "health_checks": "HealthChecksClient",
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
"""Names of the clients of Compute Engine by the second part of a service such as `compute.networks`: see `compute_client_class`."""

GRPC_CLIENTS: Mapping[str, Any] = {
    "container": container_v1.ClusterManagerClient,
    "filestore": filestore_v1.CloudFilestoreManagerClient,
    "iam": iam_admin_v1.IAMClient,
    "resourcemanager.projects": resourcemanager_v3.ProjectsClient,
    "serviceusage": service_usage_v1.ServiceUsageClient,
}

LEGACY_HEALTH_CHECKS = "compute.http_health_checks"
"""Of these the library has no client: `LegacyHealthChecks`."""


def compute_client_class(service: str) -> Any:
    """Return the client class of a service such as `compute.networks`."""
    from google.cloud import compute_v1  # noqa: PLC0415 - its hundred services take seconds to load, which a fleet without GKE does not pay

    return getattr(compute_v1, COMPUTE_CLIENTS[service.removeprefix(COMPUTE_PREFIX)])


class GoogleClients(Protocol):
    """Clients by the service that desired calls name. What they raise is translated by `failures.translated`."""

    @property
    def project(self) -> str:
        """The project of the credential."""
        ...

    @property
    def account(self) -> str:
        """The email of the credential."""
        ...

    def client(self, service: str) -> Any:
        """Give the client of a service."""
        ...

    def token(self) -> BearerToken:
        """Fetch an access token. Raises CredentialsInvalid or ServerError."""
        ...


class LegacyHealthChecks:
    """Health checks of target pools: the part of a client for `httpHealthChecks` that is needed. `base` is the URL of the API."""

    def __init__(self, session: Any, base: str) -> None:
        self._session = session
        self._base = base

    def delete_unary(self, request: Mapping[str, str], *, timeout: float, retry: None = None) -> "compute_v1.Operation":
        """Begin to delete one. Raises what the clients of Compute Engine raise."""
        del retry
        path = f"{self._base}/projects/{request['project']}/global/httpHealthChecks/{request['http_health_check']}"
        answer = self._checked(self._session.delete(path, timeout=timeout))
        from google.cloud import compute_v1  # noqa: PLC0415 - see `compute_client_class`

        operation: compute_v1.Operation = compute_v1.Operation.from_json(answer.text, ignore_unknown_fields=True)
        return operation

    def list(self, request: Mapping[str, Any], *, timeout: float) -> Iterator[Mapping[str, Any]]:
        """Give all, page by page. Raises what the clients of Compute Engine raise."""
        path = f"{self._base}/projects/{request['project']}/global/httpHealthChecks"
        token = ""
        while True:
            found = self._checked(self._session.get(path, params={"pageToken": token} if token else {}, timeout=timeout)).json()
            yield from found.get("items", [])
            token = found.get("nextPageToken", "")
            if not token:
                return

    def _checked(self, answer: Any) -> Any:
        if not answer.ok:
            raise exceptions.from_http_response(answer)
        return answer


class KeyClients:
    """The clients of production, from the JSON key of a service account. Raises CredentialsInvalid for what is none."""

    def __init__(self, credential_text: str) -> None:
        self._key: ServiceAccountKey = read_key(credential_text)
        self._credentials = _credentials(self._key)
        self._lock = threading.Lock()
        self._shared: dict[str, Any] = {}
        self._of_thread = threading.local()

    @property
    def project(self) -> str:
        """The project of the credential."""
        return self._key.project

    @property
    def account(self) -> str:
        """The email of the credential."""
        return self._key.email

    def client(self, service: str) -> Any:
        """Give the client of a service; it is made once."""
        if service.startswith(COMPUTE_PREFIX):
            return self._compute_client(service)
        with self._lock:
            if service not in self._shared:
                self._shared[service] = GRPC_CLIENTS[service](credentials=self._credentials)
            return self._shared[service]

    def _compute_client(self, service: str) -> Any:
        made: dict[str, Any] = self._of_thread.__dict__
        if service not in made:
            made[service] = self._new_compute_client(service)
        return made[service]

    def _new_compute_client(self, service: str) -> Any:
        if service == LEGACY_HEALTH_CHECKS:
            return LegacyHealthChecks(AuthorizedSession(self._credentials), "https://compute.googleapis.com/compute/v1")
        return compute_client_class(service)(credentials=self._credentials)

    def token(self) -> BearerToken:
        """Fetch an access token from Google."""
        return fetch_token(_credentials(self._key))


def fetch_token(credentials: Any) -> BearerToken:
    """Let credentials fetch an access token. Raises CredentialsInvalid where they are refused, ServerError without an answer."""
    with translated("fetch an access token"):
        credentials.refresh(partial(Request(), timeout=TIMEOUT_SECONDS))
    expiry: datetime | None = credentials.expiry
    if not credentials.token or expiry is None:
        raise CredentialsInvalid("Google gave no access token for the credential")
    # google-auth gives the time without its zone, which is UTC.
    return BearerToken(str(credentials.token), expiry.replace(tzinfo=UTC).timestamp())


def _credentials(key: ServiceAccountKey) -> Any:
    try:
        return service_account.Credentials.from_service_account_info(key.info, scopes=[SCOPE])
    except (ValueError, TypeError):
        # The text of the library may quote the key.
        raise CredentialsInvalid("private_key of the credential is no key: store the key file as it was downloaded") from None
