"""The product's clients of Google Cloud, pointed at the fake on this machine.

They do not use TLS, and authenticate with tokens of the fake's credential.
"""

import threading
from typing import Any, Protocol

from google.auth.credentials import Credentials
from google.auth.transport.requests import AuthorizedSession

from activities.clouds.gke.clients import (
    LEGACY_HEALTH_CHECKS,
    LegacyHealthChecks,
    compute_client_class,
)
from activities.clouds.gke.credential import GoogleAddresses, read_google_credential
from activities.clouds.gke.tokens import (
    credentials_of,
    fetch_token,
    measured_offset,
    permit,
)
from activities.clouds.permitted import PermittedSources
from activities.clouds.provider import BearerToken
from fakes.gcp.clients import Clients, token_of
from fakes.gcp.servers.http_server import CREDENTIALS_PATH, STS_PATH, TOKEN_PATH


class Addresses(Protocol):
    """The addresses of a fake, in this process or another one."""

    @property
    def grpc_target(self) -> str:
        """Host and port of all gRPC services."""
        ...

    @property
    def compute_url(self) -> str:
        """The compute API, without a path."""
        ...


class _Held(Credentials):  # type: ignore[misc]  # the library has no types
    """Credentials that only fetch a token.

    The credentials of google-auth would also request the locations of the account from
    Google.
    """

    def __init__(self, held: Any) -> None:
        super().__init__()
        self._held = held

    def refresh(self, request: Any) -> None:
        """Fetch the token. The library calls this method."""
        del request
        self.token = token_of(self._held)


class FakeClients:
    """The official clients, pointed at the fake.

    Raise CredentialsInvalid for an invalid credential.
    """

    def __init__(
        self,
        google: Addresses,
        credential_text: str,
        permitted: PermittedSources | None = None,
    ) -> None:
        url = google.compute_url
        addresses = GoogleAddresses(
            f"{url}{STS_PATH}", f"{url}{CREDENTIALS_PATH}", f"{url}{TOKEN_PATH}"
        )
        self._permitted = permitted or PermittedSources()
        self._credential = read_google_credential(
            credential_text, self._permitted, addresses
        )
        self._google = google
        self._held = credentials_of(self._credential)
        shared = Clients(google.grpc_target, held=self._held)
        self._shared = {
            "container": shared.container,
            "filestore": shared.filestore,
            "iam": shared.iam,
            "resourcemanager.projects": shared.projects,
            "serviceusage": shared.service_usage,
        }
        self._of_thread = threading.local()

    @property
    def project(self) -> str:
        """The project of the credential."""
        return self._credential.project

    @property
    def account(self) -> str:
        """The email of the credential."""
        return self._credential.email

    def client(self, service: str) -> Any:
        """Return the client of a service.

        Each thread has its own client of Compute Engine.
        """
        if service in self._shared:
            return self._shared[service]
        made: dict[str, Any] = self._of_thread.__dict__
        if service not in made:
            made[service] = self._compute_client(service)
        return made[service]

    def _compute_client(self, service: str) -> Any:
        if service == LEGACY_HEALTH_CHECKS:
            return LegacyHealthChecks(
                AuthorizedSession(_Held(self._held)),
                f"{self._google.compute_url}/compute/v1",
            )
        scheme, _, host = self._google.compute_url.partition("://")
        client = compute_client_class(service)
        return client(
            transport=client.get_transport_class("rest")(
                host=host, url_scheme=scheme, credentials=_Held(self._held)
            )
        )

    def permit(self, project: str) -> None:
        """Raise CredentialsInvalid if the credential may not be used in a project."""
        permit(self._credential, self._permitted, project)

    def clock_offset(self) -> float | None:
        """Return the seconds by which the clock is ahead of the fake's."""
        return measured_offset(self._google.compute_url)

    def token(self) -> BearerToken:
        """Fetch an access token from the fake."""
        return fetch_token(credentials_of(self._credential), self.clock_offset)
