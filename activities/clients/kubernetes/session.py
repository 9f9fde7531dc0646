"""One authenticated HTTP session with one API server.

These are the only lines that know the Kubernetes SDK. Its REST layer brings TLS and pooling; its loaders and models are not used: they
would write keys to files that stay while the process runs, run plugins, and turn JSON into classes that know fewer fields than the server.
"""

import asyncio
import contextlib
import errno
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode

from activities.clients.kubernetes.api_failures import unreachable
from activities.clients.kubernetes.kubeconfig import Access, ExecPlugin
from activities.clients.kubernetes.throttle import NoAnswer, RequestLimit, Throttle
from activities.clients.outward.addresses import refused_address
from api_types.errors import ClusterUnreachable, CredentialsInvalid

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
# Longer than a watch may last, so that a timeout means a dead connection and not a quiet cluster.
WATCH_SILENCE_SECONDS = 330.0
# Connections for the watches of a worker, a few per kind, beside those for short requests.
_WATCHES_MAX = 40
# Well below what a default API server gives one client, and far above what a busy rollout needs.
_REQUESTS_PER_SECOND = 200.0
_REQUESTS_AT_ONCE = 400
# A busy server responds to a few requests soon and to many late; a request that waits here cannot time out there.
REQUESTS_AT_ONCE = 24
# Far longer than a server takes that is only busy, and short for the other clusters, whose tasks wait for a slot meanwhile.
SILENT_SECONDS = 5.0
_PLUGIN_SECONDS = 30.0
# A token is renewed this long before it expires.
_TOKEN_MARGIN_SECONDS = 60.0
_REDIRECTS = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)


class Response(NamedTuple):
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Session:
    """Requests to one API server under one credential, within a rate."""

    def __init__(self, cluster: str, access: Access, requests_at_once: int = REQUESTS_AT_ONCE) -> None:
        self.cluster = cluster
        self.server = access.server
        self._credential = _Credential(cluster, access)
        self._throttle = Throttle(_REQUESTS_PER_SECOND, _REQUESTS_AT_ONCE)
        self._limit = RequestLimit(requests_at_once, SILENT_SECONDS)
        self._rest = _rest(access, requests_at_once + _WATCHES_MAX)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one of the turns of this server, and hold it. Raises ClusterUnreachable at once while the server answers no request."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._limit.turn())
            except NoAnswer:
                raise ClusterUnreachable(
                    f"cluster {self.cluster}: {self.server} has answered no request for more than {SILENT_SECONDS:.0f} s; "
                    "further ones are not sent until it answers"
                ) from None
            yield

    async def request(
        self, method: str, path: str, *, body: Any = None, content_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send one request in its turn and read the whole response, whatever its status. Raises ClusterUnreachable."""
        async with self.turn():
            return await self.request_in_turn(method, path, body=body, content_type=content_type, headers=headers)

    async def request_in_turn(
        self, method: str, path: str, *, body: Any = None, content_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send one request for a caller that holds a turn. Raises ClusterUnreachable."""
        sent = {"Content-Type": content_type, **(headers or {})}
        async with self._open(method, path, body, sent, READ_SECONDS) as answer:
            try:
                content = await answer.read()
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise unreachable(error, self.cluster, self.server) from error
            return Response(answer.status, answer.headers, content)

    async def lines(self, path: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Response | bytes]:
        """Stream the lines of a response; if the request is refused, the only item is that response. Raises ClusterUnreachable."""
        async with self._open("GET", path, None, headers or {}, WATCH_SILENCE_SECONDS) as answer:
            try:
                if answer.status != HTTPStatus.OK:
                    yield Response(answer.status, answer.headers, await answer.read())
                    return
                async for line in answer.content:
                    yield line
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise unreachable(error, self.cluster, self.server) from error

    async def close(self) -> None:
        """End all connections."""
        await self._rest.close()

    @contextlib.asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], read_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        await self._throttle.acquire()
        sent = {"Accept": "application/json", "User-Agent": "modelplane", **headers}
        if token := await self._credential.token():
            sent["Authorization"] = f"Bearer {token}"
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=read_seconds)
        try:
            answer = await self._rest.request(method, f"{self.server}{path}", headers=sent, body=body, _request_timeout=timeout)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise unreachable(error, self.cluster, self.server) from error
        self._limit.record_response()
        response: aiohttp.ClientResponse = answer.response
        try:
            yield response
        finally:
            # After the last byte the connection is back in the pool already; before it, it must not be reused.
            response.close()


class _GuardedResolver(AbstractResolver):
    """Resolves names as usual, except to addresses that a kubeconfig must not point to."""

    def __init__(self, *, allow_loopback: bool) -> None:
        self._inner = aiohttp.ThreadedResolver()
        self._allow_loopback = allow_loopback

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        reasons = [refused_address(result["host"].partition("%")[0], allow_loopback=self._allow_loopback) for result in found]
        allowed = [result for result, reason in zip(found, reasons, strict=True) if not reason]
        if found and not allowed:
            raise OSError(errno.EACCES, f"{host} resolves to a refused address: {reasons[0]}")
        return allowed

    async def close(self) -> None:
        await self._inner.close()


class _Rest(RESTClientObject):  # type: ignore[misc] # the SDK is untyped
    """The SDK's REST layer with our resolver."""

    allow_loopback = False

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, resolver=_GuardedResolver(allow_loopback=self.allow_loopback), ttl_dns_cache=60
        )


async def _refuse_redirects(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Refuse redirects: an API server sends none, and the target would be the choice of another party."""
    response = await handler(request)
    if response.status in _REDIRECTS:
        response.close()
        raise aiohttp.ClientConnectionError("the server responded with a redirect, which a Kubernetes API server never does")
    return response


def _rest(access: Access, connections: int) -> _Rest:
    # The TLS library reads keys from files only; they exist during this call, in a folder of mode 0700.
    with tempfile.TemporaryDirectory(prefix="modelplane-") as folder:
        configuration = Configuration(host=access.server)
        configuration.retries = None
        configuration.connection_pool_maxsize = connections
        configuration.ca_cert_data = access.authority or None
        configuration.tls_server_name = access.server_name or None
        configuration.client_session_kwargs = {"middlewares": (_refuse_redirects,)}
        if access.certificate:
            configuration.cert_file = _file(folder, "certificate", access.certificate)
            configuration.key_file = _file(folder, "key", access.key)
        rest = _Rest(configuration)
        # The files are gone after this; no reconnect may open them.
        configuration.cert_file = configuration.key_file = None
    rest.allow_loopback = access.allow_loopback
    return rest


def _file(folder: str, name: str, content: str) -> str:
    place = Path(folder) / name
    place.touch(mode=0o600)
    place.write_text(content)
    return str(place)


class _Credential:
    """The bearer token of a session: a fixed one, or one that a plugin renews."""

    def __init__(self, cluster: str, access: Access) -> None:
        self._cluster = cluster
        self._plugin = access.plugin
        self._token = access.token
        self._expires_at = float("-inf") if access.plugin else float("inf")
        self._renewing = asyncio.Lock()

    async def token(self) -> str:
        """Give a token that has not expired. Raises CredentialsInvalid if the plugin gives none."""
        if self._plugin and time.time() > self._expires_at - _TOKEN_MARGIN_SECONDS:
            async with self._renewing:
                if time.time() > self._expires_at - _TOKEN_MARGIN_SECONDS:
                    await self._renew(self._plugin)
        return self._token

    async def _renew(self, plugin: ExecPlugin) -> None:
        block = ConfigNode(
            "exec",
            {
                "command": plugin.command,
                "args": list(plugin.args),
                "env": [{"name": name, "value": value} for name, value in plugin.env.items()],
                "apiVersion": plugin.api_version,
            },
        )
        subject = f"cluster {self._cluster}: the credential plugin {plugin.command!r}"
        try:
            async with asyncio.timeout(_PLUGIN_SECONDS):
                status = await ExecProvider(block).run()
        except (ConfigException, OSError) as error:
            # The text of the plugin may hold the token.
            raise CredentialsInvalid(f"{subject} failed ({type(error).__name__}); run it on the worker to see why") from None
        except TimeoutError:
            raise ClusterUnreachable(f"{subject} did not finish within {_PLUGIN_SECONDS:.0f} s") from None
        self._token = str(status.get("token") or "")
        if not self._token:
            raise CredentialsInvalid(f"{subject} gave no token; client certificates from plugins are not supported")
        expires = status.get("expirationTimestamp")
        self._expires_at = datetime.fromisoformat(str(expires)).timestamp() if expires else float("inf")
