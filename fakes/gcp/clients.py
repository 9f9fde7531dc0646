"""The official clients, pointed at a fake, with or without a credential.

The compute library takes seconds to import, so only a caller that has imported it names
its clients.
"""

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import google.auth.transport.requests
import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud import (
    container_v1,
    filestore_v1,
    iam_admin_v1,
    resourcemanager_v3,
    service_usage_v1,
)
from google.cloud.container_v1.services.cluster_manager.transports import (
    ClusterManagerGrpcTransport,
)
from google.cloud.filestore_v1.services.cloud_filestore_manager.transports import (
    CloudFilestoreManagerGrpcTransport,
)
from google.cloud.iam_admin_v1.services.iam.transports import IAMGrpcTransport
from google.cloud.resourcemanager_v3.services.projects.transports import (
    ProjectsGrpcTransport,
)
from google.cloud.service_usage_v1.services.service_usage.transports import (
    ServiceUsageGrpcTransport,
)
from google.oauth2 import service_account

SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class _Bearer(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # the library has no types
    """Adds a token to each call. gRPC's own call credentials need TLS."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        """Add the token."""
        metadata = [
            *(client_call_details.metadata or ()),
            ("authorization", f"Bearer {self._token()}"),
        ]
        return continuation(client_call_details._replace(metadata=metadata), request)


def credentials(key: str) -> service_account.Credentials:
    """Return google-auth's credentials for a JSON key."""
    return service_account.Credentials.from_service_account_info(
        json.loads(key), scopes=[SCOPE]
    )


def token_of(held: Any) -> str:
    """Return a fresh access token. Raise RefreshError of google-auth."""
    if not held.valid:
        session = google.auth.transport.requests.requests.Session()
        with session:
            held.refresh(google.auth.transport.requests.Request(session))
    return str(held.token)


class Clients:
    """One of each gRPC client.

    `key` is a JSON key, `held` are other credentials; without both, calls carry no
    token.
    """

    def __init__(
        self, grpc_target: str, key: str | None = None, held: Any = None
    ) -> None:
        self._channel = grpc.insecure_channel(grpc_target)
        channel = self._channel
        if key is not None:
            held = credentials(key)
        if held is not None:
            channel = grpc.intercept_channel(channel, _Bearer(lambda: token_of(held)))
        self.container = container_v1.ClusterManagerClient(
            transport=ClusterManagerGrpcTransport(channel=channel)
        )
        self.service_usage = service_usage_v1.ServiceUsageClient(
            transport=ServiceUsageGrpcTransport(channel=channel)
        )
        self.iam = iam_admin_v1.IAMClient(transport=IAMGrpcTransport(channel=channel))
        self.projects = resourcemanager_v3.ProjectsClient(
            transport=ProjectsGrpcTransport(channel=channel)
        )
        self.filestore = filestore_v1.CloudFilestoreManagerClient(
            transport=CloudFilestoreManagerGrpcTransport(channel=channel)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()


def compute_client(client: type[Any], compute_url: str, key: str | None = None) -> Any:
    """Return a client such as `compute_v1.NetworksClient`.

    `key` is a JSON key; without it calls carry no token. Use only its `*_unary`
    methods: the others return an object that sends requests to Google.
    """
    scheme, _, host = compute_url.partition("://")
    held = credentials(key) if key is not None else AnonymousCredentials()
    return client(
        transport=client.get_transport_class("rest")(
            host=host, url_scheme=scheme, credentials=held
        )
    )
