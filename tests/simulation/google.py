"""The official clients of Google Cloud, answered by the fake without sockets and threads."""

import io
import json
from collections.abc import Callable
from typing import Any, Self

import grpc
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
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
from google.cloud.resourcemanager_v3.services.projects.transports import ProjectsGrpcTransport
from google.cloud.service_usage_v1.services.service_usage.transports import (
    ServiceUsageGrpcTransport,
)
from requests.adapters import BaseAdapter

from activities.clouds.gke.clients import (
    LEGACY_HEALTH_CHECKS,
    LegacyHealthChecks,
    compute_client_class,
)
from activities.clouds.provider import BearerToken
from fakes.gcp.calls.errors import CloudError, ConnectionCut
from fakes.gcp.fake import FakeProject
from fakes.gcp.servers.grpc_server import method_handlers
from fakes.gcp.servers.http_server import compute_answer

_HOST = "compute.fake"
_TOKEN_SECONDS = 3600.0


class CallFailed(grpc.RpcError, grpc.Call):  # type: ignore[misc]  # the library has no types
    """A call that the fake rejected, in the form of a gRPC error."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self._code, self._details, self._trailing = code, details, trailing

    def code(self) -> grpc.StatusCode:
        """Return the code."""
        return self._code

    def details(self) -> str:
        """Return the text."""
        return self._details

    def trailing_metadata(self) -> tuple[Any, ...]:
        """Return the metadata that says more."""
        return self._trailing

    def initial_metadata(self) -> tuple[Any, ...]:
        """Return no metadata."""
        return ()

    def result(self) -> Any:
        """Raise the error."""
        raise self

    def is_active(self) -> bool:
        """Return that it ended."""
        return False

    def time_remaining(self) -> float | None:
        """Return no time."""
        return None

    def cancel(self) -> bool:
        """Do nothing: it ended."""
        return False

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call nothing: it ended."""
        del callback
        return False


class _Context:
    """The side of a call that a handler uses."""

    def __init__(self) -> None:
        self._trailing: tuple[Any, ...] = ()

    def invocation_metadata(self) -> tuple[Any, ...]:
        """Return no metadata: calls carry no token."""
        return ()

    def set_trailing_metadata(self, metadata: tuple[Any, ...]) -> None:
        """Keep the details of an error."""
        self._trailing = metadata

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with an error."""
        raise CallFailed(code, details, self._trailing)


class _Method(grpc.UnaryUnaryMultiCallable):  # type: ignore[misc]  # the library has no types
    """One method of one service."""

    def __init__(self, handler: Any, serialize: Any, deserialize: Any) -> None:
        self._handler, self._serialize, self._deserialize = handler, serialize, deserialize

    def __call__(self, request: Any, *_: Any, **__: Any) -> Any:
        """Answer a call."""
        message = self._handler.request_deserializer(self._serialize(request))
        return self._deserialize(self._handler.unary_unary(message, _Context()))

    def with_call(self, request: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Answer a call, with the call object of the library."""
        return self(request), CallFailed(grpc.StatusCode.OK, "")

    def future(self, request: Any, *_: Any, **__: Any) -> Any:
        """Refuse: no client of the product calls so."""
        raise NotImplementedError(request)


class DirectChannel(grpc.Channel):  # type: ignore[misc]  # the library has no types
    """A channel to the fake in this process."""

    def __init__(self, project: FakeProject) -> None:
        self._methods = {
            f"/{service}/{name}": handler
            for service, handlers in method_handlers(project.dispatcher).items()
            for name, handler in handlers.items()
        }

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool = False,
    ) -> Any:
        """Return a method. The fake refuses calls of unknown methods."""
        handler = self._methods.get(method)
        if handler is None:
            return _unknown(method)
        return _Method(handler, request_serializer, response_deserializer)

    def unary_stream(self, *_: Any, **__: Any) -> Any:
        """Return a method that refuses every call."""
        return _unknown("a stream")

    stream_unary = stream_stream = unary_stream

    def subscribe(self, *_: Any, **__: Any) -> None:
        """Report nothing: the fake is always connected."""

    def unsubscribe(self, *_: Any, **__: Any) -> None:
        """Report nothing: the fake is always connected."""

    def close(self) -> None:
        """Close nothing."""

    def __enter__(self) -> Self:
        """Open nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""


class _Adapter(BaseAdapter):
    """Answers the requests of a session."""

    def __init__(self, project: FakeProject) -> None:
        super().__init__()
        self._project = project

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Answer a request."""
        body: Any = request.body or b""
        content = body.encode() if isinstance(body, str) else bytes(body)
        try:
            verb, url = str(request.method), str(request.url)
            status, document = 200, compute_answer(self._project.dispatcher, verb, url, content)
        except CloudError as error:
            status, document = error.http_status, error.body()
        except ConnectionCut:
            raise requests.ConnectionError("the connection was closed") from None
        response = requests.Response()
        response.status_code, response.request, response.url = status, request, url
        response.headers["Content-Type"] = "application/json; charset=UTF-8"
        response.raw = io.BytesIO(json.dumps(document).encode())
        return response

    def close(self) -> None:
        """Close nothing."""


class DirectClients:
    """The clients of one credential. `clock` gives the seconds since 1970."""

    def __init__(self, project: FakeProject, clock: Callable[[], float]) -> None:
        self.project = project.project
        self.account = project.email
        self._fake, self._clock = project, clock
        channel = DirectChannel(project)
        self._made: dict[str, Any] = {
            "container": container_v1.ClusterManagerClient(
                transport=ClusterManagerGrpcTransport(channel=channel)
            ),
            "filestore": filestore_v1.CloudFilestoreManagerClient(
                transport=CloudFilestoreManagerGrpcTransport(channel=channel)
            ),
            "iam": iam_admin_v1.IAMClient(transport=IAMGrpcTransport(channel=channel)),
            "resourcemanager.projects": resourcemanager_v3.ProjectsClient(
                transport=ProjectsGrpcTransport(channel=channel)
            ),
            "serviceusage": service_usage_v1.ServiceUsageClient(
                transport=ServiceUsageGrpcTransport(channel=channel)
            ),
        }

    def client(self, service: str) -> Any:
        """Return the client of a service. Raises KeyError."""
        if service not in self._made:
            self._made[service] = self._compute_client(service)
        return self._made[service]

    def permit(self, project: str) -> None:
        """Permit every project."""

    def clock_offset(self) -> float:
        """Return no difference."""
        return 0.0

    def token(self) -> BearerToken:
        """Return a token, which no simulated API server reads."""
        return BearerToken("simulated", self._clock() + _TOKEN_SECONDS)

    def _compute_client(self, service: str) -> Any:
        if service == LEGACY_HEALTH_CHECKS:
            session = AuthorizedSession(AnonymousCredentials())
            session.mount("https://", _Adapter(self._fake))
            return LegacyHealthChecks(session, f"https://{_HOST}/compute/v1")
        client = compute_client_class(service)
        transport = client.get_transport_class("rest")(
            host=_HOST, credentials=AnonymousCredentials()
        )
        transport._session.mount("https://", _Adapter(self._fake))
        return client(transport=transport)


def _unknown(method: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise CallFailed(grpc.StatusCode.UNIMPLEMENTED, f"the fake has no method {method}")

    return refuse
