"""One authenticated HTTP session with one API server.

Only this module uses the Kubernetes SDK. The SDK's REST layer provides TLS and pooling.
Its loaders and models are not used: they would run plugins, write keys to files that
exist as long as the process, and convert JSON into classes that know fewer fields than
the server.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from activities.clients.kubernetes.api_failures import unreachable
from activities.clients.kubernetes.credential import BearerCredential
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from activities.clients.kubernetes.throttle import (
    RequestLimit,
    ServerUnresponsive,
    TokenBucket,
)
from activities.clients.outward.addresses import AddressRules, api_server_rules
from activities.clients.outward.answers import (
    REDIRECTS,
    TooLarge,
    read_body,
    read_lines,
)
from activities.clients.outward.connections import connector, proxy_for
from activities.clients.outward.redaction import without_credential
from api_types.errors import AnswerTooLarge, ClusterUnreachable

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
# The time that an API server itself allows for a request other than a watch.
REQUEST_SECONDS = 60.0
# Longer than a watch may last, so that a timeout means a dead connection and not a
# quiet cluster.
WATCH_SECONDS = 330.0
# After decompression. A page of 500 pods takes 5 MiB, and a page of 500 nodes with many
# images 15 MiB. A larger page is read in smaller pages.
ANSWER_BYTES_MAX = 16 << 20
# The size of one object. etcd accepts 1.5 MiB, which is less than 4 MiB in JSON.
LINE_BYTES_MAX = 8 << 20
# Connections for the watches of a worker, a few per kind, in addition to those for
# short requests.
_WATCHES_MAX = 40
# Well below the limit of a default API server for one client, and far above the needs
# of a busy rollout.
_REQUESTS_PER_SECOND = 200.0
_REQUESTS_AT_ONCE = 400
# A busy server responds to a few requests soon and to many requests late. A request
# that waits in this queue cannot time out at the server.
REQUESTS_AT_ONCE = 24
# Each apply writes its objects one after the other. A rollout of hundreds of replicas
# takes no longer with this limit, and it bounds the memory of the workers.
APPLIES_AT_ONCE = 32
# Far longer than a busy server needs, and short enough for tasks of other clusters,
# which wait for a slot in the meantime.
SILENT_SECONDS = 5.0
_BUFFER_BYTES = 1 << 16


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Session:
    """Requests to one API server with one credential, within a rate limit."""

    def __init__(
        self,
        cluster: str,
        access: ApiServerAccess,
        requests_at_once: int = REQUESTS_AT_ONCE,
        applies_at_once: int = APPLIES_AT_ONCE,
    ) -> None:
        self.cluster = cluster
        self.server = access.server
        self.identity = access.identity
        self._credential = BearerCredential(cluster, access)
        self._doubted = access.doubted
        self._throttle = TokenBucket(_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE)
        self._limit = RequestLimit(requests_at_once, SILENT_SECONDS)
        self._applies = asyncio.Semaphore(applies_at_once)
        self._rest = _rest(access, requests_at_once + _WATCHES_MAX)

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for a request slot of this server, and hold it.

        Raises ClusterUnreachable at once while the server responds to no request.
        """
        return self._answering(self._limit.turn())

    def apply_turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for an apply slot of this server, and hold it.

        Raises ClusterUnreachable if the server stops responding to all requests during
        the wait.
        """
        return self._answering(self._limit.waiting_for(self._applies))

    @contextlib.asynccontextmanager
    async def _answering(
        self, turn: AbstractAsyncContextManager[None]
    ) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(turn)
            except ServerUnresponsive:
                raise ClusterUnreachable(
                    f"cluster {self.cluster}: {self.server} has not responded to any "
                    f"request for more than {SILENT_SECONDS:.0f} s; "
                    "no further requests are sent until it responds"
                ) from None
            yield

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Wait for a slot, send one request, and return the whole response.

        Raises ClusterUnreachable or AnswerTooLarge, but no error for the status.
        """
        async with self.turn():
            return await self.request_in_turn(
                method, path, body=body, content_type=content_type, headers=headers
            )

    async def request_in_turn(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send one request for a caller that holds a slot.

        Raises ClusterUnreachable or AnswerTooLarge.
        """
        sent = {"Content-Type": content_type, **(headers or {})}
        limits = aiohttp.ClientTimeout(
            total=REQUEST_SECONDS,
            connect=CONNECT_SECONDS,
            sock_connect=CONNECT_SECONDS,
            sock_read=READ_SECONDS,
        )
        async with self._open(method, path, body, sent, limits) as answer:
            return await self._whole(answer, f"{method} {path}")

    async def lines(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Response | bytes]:
        """Yield the lines of a response.

        If the request is refused, the only item is that response. Raises
        ClusterUnreachable or AnswerTooLarge.
        """
        limits = aiohttp.ClientTimeout(
            total=WATCH_SECONDS, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS
        )
        async with self._open("GET", path, None, headers or {}, limits) as answer:
            if answer.status != HTTPStatus.OK:
                yield await self._whole(answer, f"GET {path}")
                return
            with self._failures(f"a line of GET {path}"):
                async for line in read_lines(answer, LINE_BYTES_MAX):
                    yield line

    async def chunks(self, path: str) -> AsyncIterator[Response | bytes]:
        """Yield the parts of a response as they arrive, without a limit of its length.

        If the request is refused, the only item is that response. Raises
        ClusterUnreachable.
        """
        limits = aiohttp.ClientTimeout(
            total=None, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS
        )
        headers = {"Accept": "*/*"}
        async with self._open("GET", path, None, headers, limits) as answer:
            if answer.status != HTTPStatus.OK:
                yield await self._whole(answer, f"GET {path}")
                return
            with self._failures(f"GET {path}"):
                async for chunk in answer.content.iter_any():
                    yield chunk

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse | Response]:
        """Open a WebSocket with the first of `protocols` that the server knows.

        If the server refuses it, the result is the refusal. Raises ClusterUnreachable.
        """
        headers = await self._headers({})
        status = 0
        with self._failures(f"GET {path}"):
            opening = self._rest.websocket(f"{self.server}{path}", headers, protocols)
            try:
                socket = await asyncio.wait_for(opening, READ_SECONDS)
            except aiohttp.WSServerHandshakeError as refused:
                status = refused.status
        if status:
            # The SDK drops the body of the refusal. A request without an upgrade is
            # refused for the same reason, and starts nothing.
            answer = await self.request("GET", path)
            yield answer._replace(status=status)
            return
        try:
            yield socket
        finally:
            await socket.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()

    async def _whole(self, answer: aiohttp.ClientResponse, request: str) -> Response:
        with self._failures(request):
            body = await read_body(answer, ANSWER_BYTES_MAX)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            # Histories keep errors of servers, which may quote the request.
            body = without_credential(
                body.decode(errors="replace"), f"Bearer {self._credential.last()}"
            ).encode()
        return Response(answer.status, answer.headers, body)

    @contextlib.contextmanager
    def _failures(self, request: str) -> Iterator[None]:
        try:
            yield
        except TooLarge as error:
            where = f"cluster {self.cluster}: {request.partition('?')[0]}"
            raise AnswerTooLarge(
                f"{where}: the response is {error} and was not read; "
                f"check which server responds at {self.server}"
            ) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if self._doubted is not None:
                self._doubted()
            raise unreachable(error, self.cluster, self.server) from error

    @contextlib.asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        answer = await self._send(method, path, body, headers, limits)
        last = self._credential.last()
        refused = answer.status == HTTPStatus.UNAUTHORIZED
        if refused and await self._credential.replace(last):
            answer.response.close()
            answer = await self._send(method, path, body, headers, limits)
        self._limit.record_response()
        response: aiohttp.ClientResponse = answer.response
        try:
            yield response
        finally:
            # After the last byte the connection is already back in the pool. Before
            # that, it must not be reused.
            response.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
    ) -> Any:
        await self._throttle.acquire()
        sent = await self._headers(headers)
        with self._failures(f"{method} {path}"):
            return await self._rest.request(
                method,
                f"{self.server}{path}",
                headers=sent,
                body=body,
                _request_timeout=limits,
            )

    async def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        sent = {"Accept": "application/json", "User-Agent": "modelplane", **headers}
        if token := await self._credential.token():
            sent["Authorization"] = f"Bearer {token}"
        return sent


class _Rest(RESTClientObject):  # type: ignore[misc] # the SDK has no types
    """The SDK's REST layer with this project's rules for connections and cookies."""

    def __init__(self, configuration: Configuration, rules: AddressRules) -> None:
        super().__init__(configuration)
        self.pool_manager: aiohttp.ClientSession | None = None
        self._rules = rules

    async def websocket(
        self, url: str, headers: Mapping[str, str], protocols: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket. Raises the errors of aiohttp."""
        if self.pool_manager is None:
            self.pool_manager = self._create_pool_manager()
        return await self.pool_manager.ws_connect(
            url,
            headers=headers,
            protocols=protocols,
            proxy=self.proxy or None,
            server_hostname=self.configuration.tls_server_name or None,
        )

    def _create_connector(self) -> aiohttp.TCPConnector:
        return connector(
            self._rules, self.proxy or "", ssl=self.ssl_context, limit=self.maxsize
        )

    def _create_pool_manager(self) -> aiohttp.ClientSession:
        self.configuration.client_session_kwargs = {
            "middlewares": (_refuse_redirects,),
            # The SDK's default would send passwords from the netrc file of the worker's
            # user.
            "trust_env": False,
            "cookie_jar": aiohttp.DummyCookieJar(),
            "read_bufsize": _BUFFER_BYTES,
        }
        session: aiohttp.ClientSession = super()._create_pool_manager()
        return session


async def _refuse_redirects(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Reject redirects.

    An API server does not redirect, and somebody else would choose the target.
    """
    response = await handler(request)
    if response.status in REDIRECTS:
        response.close()
        raise aiohttp.ClientConnectionError(
            "the server responded with a redirect, "
            "which a Kubernetes API server never does"
        )
    return response


def _rest(access: ApiServerAccess, connections: int) -> _Rest:
    # The TLS library reads keys only from files. They exist during this call, in a
    # folder with mode 0700.
    with tempfile.TemporaryDirectory(prefix="modelplane-") as folder:
        configuration = Configuration(host=access.server)
        configuration.retries = None
        configuration.connection_pool_maxsize = connections
        configuration.ca_cert_data = access.authority or None
        configuration.tls_server_name = access.server_name or None
        configuration.proxy = proxy_for(access.server) or None
        if access.certificate:
            configuration.cert_file = _file(folder, "certificate", access.certificate)
            configuration.key_file = _file(folder, "key", access.key)
        rest = _Rest(
            configuration, api_server_rules(allow_loopback=access.allow_loopback)
        )
        # The files are deleted after this call, so a reconnect must not open them.
        configuration.cert_file = configuration.key_file = None
    return rest


def _file(folder: str, name: str, content: str) -> str:
    place = Path(folder) / name
    place.touch(mode=0o600)
    place.write_text(content)
    return str(place)
