"""Clients of Google Cloud for the fake on this machine: without TLS, with the tokens of its credential."""

import threading
from typing import Any, Protocol

from google.auth.credentials import Credentials
from google.auth.transport.requests import AuthorizedSession

from activities.clouds.gke.clients import LEGACY_HEALTH_CHECKS, LegacyHealthChecks, compute_client_class, fetch_token
from activities.clouds.gke.credential import read_key
from activities.clouds.provider import BearerToken
from testbed.clouds.gcp.clients import Clients, credentials, token_of
from testbed.clouds.gcp.servers.http_server import TOKEN_PATH


class Addresses(Protocol):
    """Where a fake listens, in this process or another one."""

    @property
    def grpc_target(self) -> str:
        """Host and port of all gRPC services."""
        ...

    @property
    def compute_url(self) -> str:
        """The compute API, without a path."""
        ...


class _Held(Credentials):  # type: ignore[misc]  # the library has no types
    """The token of the credential, and nothing else: google-auth's own credentials ask Google for the locations of an account too."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self._held = held

    def refresh(self, request: Any) -> None:
        """Fetch the token; the library calls this."""
        del request
        self.token = token_of(self._held)


class FakeClients:
    """The official clients, pointed at the fake. Raises CredentialsInvalid for a text that is no key."""

    def __init__(self, google: Addresses, credential_text: str) -> None:
        self._key = read_key(credential_text, token_uri=f"{google.compute_url}{TOKEN_PATH}")
        self._google, self._text = google, credential_text
        self._held = credentials(credential_text)
        shared = Clients(google.grpc_target, credential_text)
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
        return self._key.project

    @property
    def account(self) -> str:
        """The email of the credential."""
        return self._key.email

    def client(self, service: str) -> Any:
        """Give the client of a service; each thread has its own of Compute Engine."""
        if service in self._shared:
            return self._shared[service]
        made: dict[str, Any] = self._of_thread.__dict__
        if service not in made:
            made[service] = self._compute_client(service)
        return made[service]

    def _compute_client(self, service: str) -> Any:
        if service == LEGACY_HEALTH_CHECKS:
            return LegacyHealthChecks(AuthorizedSession(_Held(self._held)), f"{self._google.compute_url}/compute/v1")
        scheme, _, host = self._google.compute_url.partition("://")
        client = compute_client_class(service)
        return client(transport=client.get_transport_class("rest")(host=host, url_scheme=scheme, credentials=_Held(self._held)))

    def token(self) -> BearerToken:
        """Fetch an access token from the fake."""
        return fetch_token(credentials(self._text))
