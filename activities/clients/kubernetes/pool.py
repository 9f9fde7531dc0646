"""One client per cluster and credential, for the whole worker.

Each activity resolves the reference again, so that it uses a rotated kubeconfig without
a restart. Clients are cached by the digest of the kubeconfig, so equal content has the
same client and connections. A cluster at a cloud has no kubeconfig: the cloud provides
its endpoint, and tokens are created when needed.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.kubeconfig import (
    ApiServerAccess,
    TokenSource,
    parse_kubeconfig,
)
from activities.clients.kubernetes.session import (
    APPLIES_AT_ONCE,
    REQUESTS_AT_ONCE,
    Session,
)
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool
from activities.secrets.store import SecretMissing, SecretReader
from api_types import names
from api_types.errors import CredentialsInvalid, PermissionDenied, Unsupported
from api_types.labels import SYSTEM_NAMESPACE
from api_types.messages.clouds import CloudAccount
from api_types.messages.cluster_work import Connection
from api_types.sections.clusters import KubeconfigSettings

# Requests that started with the old credential may still complete.
_CLOSE_AFTER_SECONDS = 60.0


class CloudClusters(Protocol):
    """The connections of clusters at clouds.

    All methods raise CredentialsInvalid and the errors of clouds.
    """

    async def endpoint(self, account: CloudAccount) -> tuple[str, str]:
        """Return base URL and certificate authority."""

    def doubt(self, account: CloudAccount) -> None:
        """Read the endpoint again before its next use."""

    async def token(
        self, account: CloudAccount, seconds: float, *, refused: str = ""
    ) -> tuple[str, float]:
        """Return a token, as `TokenSource` does."""


class ClusterIdentities(Protocol):
    """Tokens for clusters at a cloud, created from a credential of the cloud."""

    async def reach(
        self, kind: str, credential: str, name: str, server: str
    ) -> tuple[TokenSource, str, str]:
        """Return tokens for a cluster, its server and its certificate authority.

        `kind` is the kind of the identity, and `name` the name of the cluster in its
        kubeconfig. Raises CredentialsInvalid, also for a server that does not belong to
        the cluster, and the errors of clouds.
        """


class KubernetesPool(ClusterPool):
    """The clients of a worker, by cluster.

    `clouds` provides connections without a kubeconfig, and `identities` provides tokens
    for kubeconfigs with an identity.
    """

    def __init__(  # noqa: PLR0917 - all parameters but two have a default
        self,
        store: SecretReader,
        settings: KubeconfigSettings,
        requests_at_once: int = REQUESTS_AT_ONCE,
        applies_at_once: int = APPLIES_AT_ONCE,
        clouds: CloudClusters | None = None,
        identities: ClusterIdentities | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self.requests_at_once = requests_at_once
        self.applies_at_once = applies_at_once
        self._clouds = clouds
        self._identities = identities
        self._open: dict[tuple[str, ...], tuple[str, KubernetesCluster]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def at(self, connection: Connection) -> ClusterApi:
        """Resolve kubeconfig and identity again, and return a client for them.

        Raises CredentialsInvalid, or PermissionDenied where a tenant could have written
        the kubeconfig.
        """
        content = await self._content(connection)
        identity = await self._identity(connection)
        digest = (
            hashlib.sha256(content).hexdigest() + hashlib.sha256(identity).hexdigest()
        )
        reference = (
            connection.cluster,
            connection.namespace,
            connection.name,
            connection.key,
            _uid(connection),
        )
        known = self._open.get(reference)
        if known and known[0] == digest:
            return known[1]
        access = await self._access(connection, content, identity)
        # Another task may have created the client in the meantime. No await follows
        # this check.
        known = self._open.get(reference)
        if known and known[0] == digest:
            return known[1]
        client = KubernetesCluster(
            Session(
                connection.cluster, access, self.requests_at_once, self.applies_at_once
            )
        )
        self._open[reference] = (digest, client)
        if known:
            self._close_later(known[1])
        return client

    async def access(self, connection: Connection) -> ApiServerAccess:
        """Resolve the reference again, and return the content of the kubeconfig.

        It is meant for another client of the cluster. Raises the errors of `at`.
        """
        return await self._access(
            connection,
            await self._content(connection),
            await self._identity(connection),
        )

    async def close(self) -> None:
        """Close all connections."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for _, client in self._open.values():
            await client.close()
        self._open.clear()

    async def _content(self, connection: Connection) -> bytes:
        where = f"cluster {connection.cluster}"
        if connection.cloud is not None:
            clouds = self._cloud(connection, connection.cloud)
            endpoint = await clouds.endpoint(connection.cloud)
            return json.dumps(endpoint).encode()
        if connection.namespace != SYSTEM_NAMESPACE:
            raise PermissionDenied(
                f"{where}: a kubeconfig is read from namespace {SYSTEM_NAMESPACE}, not "
                f"from {connection.namespace}/{connection.name}; put the Secret there"
            )
        return await self._stored(
            connection, connection.name, connection.key, "the kubeconfig"
        )

    async def _identity(self, connection: Connection) -> bytes:
        """Return the credential of the identity, or b"" if there is none."""
        identity = connection.identity
        if identity is None:
            return b""
        if names.creates_clusters(identity.name, identity.key):
            raise PermissionDenied(
                f"cluster {connection.cluster}: Secret {SYSTEM_NAMESPACE}/{identity.name} "
                f"key {identity.key!r} is the credential by which clusters are created, "
                "and cannot be an identity; store another credential for this cluster "
                "under another name"
            )
        return await self._stored(
            connection, identity.name, identity.key, f"the credential ({identity.type})"
        )

    async def _stored(
        self, connection: Connection, name: str, key: str, what: str
    ) -> bytes:
        try:
            return await self._store.get(SYSTEM_NAMESPACE, name, key)
        except SecretMissing as error:
            text = (
                f"cluster {connection.cluster}: {error}; put {what} there, "
                "for instance with `modelplane apply -f` of a v1 Secret"
            )
            raise CredentialsInvalid(text) from None

    def _cloud(self, connection: Connection, account: CloudAccount) -> CloudClusters:
        if account.cluster != connection.cluster:
            raise PermissionDenied(
                f"cluster {connection.cluster}: the account belongs to {account.cluster}"
            )
        if self._clouds is None:
            raise Unsupported(
                f"cluster {connection.cluster}: this worker does not support clusters "
                f"at {account.provider}"
            )
        return self._clouds

    async def _access(
        self, connection: Connection, content: bytes, credential: bytes
    ) -> ApiServerAccess:
        if (account := connection.cloud) is not None:
            clouds = self._cloud(connection, account)
            server, authority = json.loads(content)
            return ApiServerAccess(
                server=server.rstrip("/"),
                authority=authority,
                allow_loopback=self._settings.allow_loopback,
                tokens=partial(clouds.token, account),
                identity=f"the identity in Secret {SYSTEM_NAMESPACE}/{account.secret}",
                doubted=partial(clouds.doubt, account),
            )
        subject = (
            f"cluster {connection.cluster}: "
            f"Secret {connection.namespace}/{connection.name} key {connection.key!r}"
        )
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise CredentialsInvalid(
                f"{subject} is not text; a kubeconfig in YAML or JSON is expected"
            ) from None
        identity = connection.identity
        # Parse in a thread: a kubeconfig may be as slow to read as its size allows.
        access = await asyncio.to_thread(
            parse_kubeconfig,
            text,
            self._settings,
            subject,
            without_user=identity is not None,
        )
        if identity is None:
            return access
        if self._identities is None:
            raise Unsupported(
                f"cluster {connection.cluster}: this worker does not support identities "
                f"of type {identity.type}"
            )
        where = f"Secret {SYSTEM_NAMESPACE}/{identity.name}"
        subject = f"cluster {connection.cluster}: {where} key {identity.key!r}"
        try:
            tokens, server, authority = await self._identities.reach(
                identity.type, credential.decode(), access.name, access.server
            )
        except UnicodeDecodeError:
            raise CredentialsInvalid(f"{subject} is not text") from None
        except CredentialsInvalid as error:
            raise CredentialsInvalid(f"{subject}: {error.message}") from None
        return replace(
            access,
            tokens=tokens,
            server=server,
            authority=authority,
            server_name="",
            identity=f"the identity in {where}",
        )

    def _close_later(self, client: KubernetesCluster) -> None:
        task = asyncio.get_running_loop().create_task(
            _after(_CLOSE_AFTER_SECONDS, client.close)
        )
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _uid(connection: Connection) -> str:
    return connection.cloud.cluster_uid if connection.cloud else ""


async def _after(seconds: float, close: Callable[[], Awaitable[None]]) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        await close()
