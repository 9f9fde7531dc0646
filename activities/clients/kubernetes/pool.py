"""One client per cluster and credential, for the whole worker.

The reference is resolved for every activity, so that a rotated kubeconfig is used from the next one on without a restart. Open connections
are kept by the digest of the content: equal content, same client. A cluster at a cloud has no kubeconfig: its endpoint is asked for, and
tokens are made as they are needed.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.kubeconfig import Access, TokenSource, parse_kubeconfig
from activities.clients.kubernetes.session import APPLIES_AT_ONCE, REQUESTS_AT_ONCE, Session
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool
from activities.secrets.store import SecretMissing, SecretReader
from api_types import names
from api_types.errors import CredentialsInvalid, PermissionDenied, Unsupported
from api_types.labels import SYSTEM_NAMESPACE
from api_types.messages.clouds import CloudAccount
from api_types.messages.cluster_work import Connection
from api_types.settings import KubeconfigSettings

# Requests that began with the old credential may still complete.
_CLOSE_AFTER_SECONDS = 60.0


class CloudClusters(Protocol):
    """How clusters at clouds are reached. All raise CredentialsInvalid, and what clouds say."""

    async def endpoint(self, account: CloudAccount) -> tuple[str, str]:
        """Give base URL and certificate authority."""

    def doubt(self, account: CloudAccount) -> None:
        """Ask for the endpoint again before it is used the next time."""

    async def token(self, account: CloudAccount, seconds: float, *, refused: str = "") -> tuple[str, float]:
        """Give a token, as `TokenSource` does."""


class Identities(Protocol):
    """Tokens for clusters that exist at a cloud, made from a credential of that."""

    async def reach(self, kind: str, credential: str, name: str, server: str) -> tuple[TokenSource, str, str]:
        """Give tokens of an identity of a kind for the cluster that its kubeconfig calls so, with its server and certificate authority.

        Raises CredentialsInvalid, also for a server that is not that of the cluster, and what clouds say.
        """


class KubernetesPool(ClusterPool):
    """The clients of a worker, by cluster. `clouds` are for those whose connection names no kubeconfig, `identities` for those with one."""

    def __init__(  # noqa: PLR0917 - each has a default but the first two
        self,
        store: SecretReader,
        settings: KubeconfigSettings,
        requests_at_once: int = REQUESTS_AT_ONCE,
        applies_at_once: int = APPLIES_AT_ONCE,
        clouds: CloudClusters | None = None,
        identities: Identities | None = None,
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
        """Resolve the references to kubeconfig and identity again and give a client for them.

        Raises CredentialsInvalid, or PermissionDenied where a tenant could have put the kubeconfig.
        """
        content, identity = await self._content(connection), await self._identity(connection)
        digest = hashlib.sha256(content).hexdigest() + hashlib.sha256(identity).hexdigest()
        reference = (connection.cluster, connection.namespace, connection.name, connection.key, _uid(connection))
        known = self._open.get(reference)
        if known and known[0] == digest:
            return known[1]
        access = await self._access(connection, content, identity)
        # Another task may have made the client meanwhile; after this look there is no await.
        known = self._open.get(reference)
        if known and known[0] == digest:
            return known[1]
        client = KubernetesCluster(Session(connection.cluster, access, self.requests_at_once, self.applies_at_once))
        self._open[reference] = (digest, client)
        if known:
            self._close_later(known[1])
        return client

    async def access(self, connection: Connection) -> Access:
        """Resolve the reference again and give what is in the kubeconfig, for another client of the cluster. Raises as `at` does."""
        return await self._access(connection, await self._content(connection), await self._identity(connection))

    async def close(self) -> None:
        """End all connections."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for _, client in self._open.values():
            await client.close()
        self._open.clear()

    async def _content(self, connection: Connection) -> bytes:
        where = f"cluster {connection.cluster}"
        if connection.cloud is not None:
            return json.dumps(await self._cloud(connection, connection.cloud).endpoint(connection.cloud)).encode()
        if connection.namespace != SYSTEM_NAMESPACE:
            raise PermissionDenied(
                f"{where}: a kubeconfig is read from namespace {SYSTEM_NAMESPACE}, not from {connection.namespace}/{connection.name}; "
                "put the Secret there"
            )
        return await self._stored(connection, connection.name, connection.key, "the kubeconfig")

    async def _identity(self, connection: Connection) -> bytes:
        """Give the credential of the identity; empty where there is none."""
        identity = connection.identity
        if identity is None:
            return b""
        if names.creates_clusters(identity.name, identity.key):
            raise PermissionDenied(
                f"cluster {connection.cluster}: Secret {SYSTEM_NAMESPACE}/{identity.name} key {identity.key!r} is the credential by which "
                "clusters are created, and no identity of one: store one for this cluster under another name"
            )
        return await self._stored(connection, identity.name, identity.key, f"the credential ({identity.type})")

    async def _stored(self, connection: Connection, name: str, key: str, what: str) -> bytes:
        try:
            return await self._store.get(SYSTEM_NAMESPACE, name, key)
        except SecretMissing as error:
            text = f"cluster {connection.cluster}: {error}; put {what} there, for instance with `modelplane apply -f` of a v1 Secret"
            raise CredentialsInvalid(text) from None

    def _cloud(self, connection: Connection, account: CloudAccount) -> CloudClusters:
        if account.cluster != connection.cluster:
            raise PermissionDenied(f"cluster {connection.cluster}: the account is that of {account.cluster}")
        if self._clouds is None:
            raise Unsupported(f"cluster {connection.cluster}: this worker reaches no clusters at {account.provider}")
        return self._clouds

    async def _access(self, connection: Connection, content: bytes, credential: bytes) -> Access:
        if (account := connection.cloud) is not None:
            clouds = self._cloud(connection, account)
            server, authority = json.loads(content)
            return Access(
                server=server.rstrip("/"),
                authority=authority,
                allow_loopback=self._settings.allow_loopback,
                tokens=partial(clouds.token, account),
                identity=f"the identity in Secret {SYSTEM_NAMESPACE}/{account.secret}",
                doubted=partial(clouds.doubt, account),
            )
        subject = f"cluster {connection.cluster}: Secret {connection.namespace}/{connection.name} key {connection.key!r}"
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise CredentialsInvalid(f"{subject} is not text; a kubeconfig in YAML or JSON is expected") from None
        identity = connection.identity
        # Its owner may have made it as slow to read as its size allows.
        access = await asyncio.to_thread(parse_kubeconfig, text, self._settings, subject, without_user=identity is not None)
        if identity is None:
            return access
        if self._identities is None:
            raise Unsupported(f"cluster {connection.cluster}: this worker makes no tokens of {identity.type}")
        where = f"Secret {SYSTEM_NAMESPACE}/{identity.name}"
        subject = f"cluster {connection.cluster}: {where} key {identity.key!r}"
        try:
            tokens, server, authority = await self._identities.reach(identity.type, credential.decode(), access.name, access.server)
        except UnicodeDecodeError:
            raise CredentialsInvalid(f"{subject} is not text") from None
        except CredentialsInvalid as error:
            raise CredentialsInvalid(f"{subject}: {error.message}") from None
        return replace(access, tokens=tokens, server=server, authority=authority, server_name="", identity=f"the identity in {where}")

    def _close_later(self, client: KubernetesCluster) -> None:
        task = asyncio.get_running_loop().create_task(_after(_CLOSE_AFTER_SECONDS, client.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _uid(connection: Connection) -> str:
    return connection.cloud.cluster_uid if connection.cloud else ""


async def _after(seconds: float, close: Callable[[], Awaitable[None]]) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        await close()
