"""Resolve credentials of clouds to cloud clients and to the API servers of clusters.

Every activity reads the Secret again, so a rotated credential takes effect with the
next activity. Clients are cached by the digest of the credential and the region.
Endpoints and tokens are cached too: a token until it is renewed, and an endpoint until
connections fail, because its address and its certificate authority may change. None of
them leaves the process.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from activities.clouds.lifecycle.threads import AccountThreads, InThread
from activities.clouds.provider import (
    PROJECT_KEY,
    ApiServerEndpoint,
    BearerToken,
    Provider,
)
from activities.secrets.store import SecretMissing, SecretReader
from api_types.errors import CredentialsInvalid, InvalidInput, Unsupported
from api_types.labels import SYSTEM_NAMESPACE
from api_types.messages.clouds import CloudAccount
from api_types.names import CLOUD_CREDENTIAL_KEY
from api_types.sections.clouds import ProvisionSettings

INSTALLATION_SECRET = "modelplane-installation"  # noqa: S105 - the name of a Secret
INSTALLATION_KEY = "id"
_CREDENTIAL_BYTES_MAX = 64 * 1024
# The interval after which the endpoint of a server that does not respond may be read
# again. Usually the cluster is just busy.
_ENDPOINT_AGE_MIN = 30.0
_KEPT_MAX = 1000

_Place = tuple[str, str, str]

ProviderFactory = Callable[[str, str], Provider]
"""Creates a cloud client for a credential's text and a region.

Raises CredentialsInvalid.
"""


class CloudAccounts:
    """The clouds of a worker.

    `factories` has a factory for each supported cloud.

    `threads` run the calls of activities. Clients, tokens and endpoints are created in
    separate threads, so a cloud whose calls hang does not block access to existing
    clusters.
    """

    def __init__(
        self,
        store: SecretReader,
        factories: Mapping[str, ProviderFactory],
        settings: ProvisionSettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._factories = factories
        self._settings = settings
        self._clock = clock
        self._providers: dict[tuple[str, str, str], Provider] = {}
        self.threads = AccountThreads()
        self._renewals: Counter[_Place] = Counter()
        # The digest of the credential with which each account last had clients.
        self._digests: dict[_Place, str] = {}
        self._endpoints: dict[str, tuple[ApiServerEndpoint, float]] = {}
        self._doubted: set[str] = set()
        self._tokens: dict[str, tuple[str, BearerToken]] = {}

    # The cloud

    async def provider(self, account: CloudAccount) -> Provider:
        """Return the cloud of an account.

        Raises CredentialsInvalid, and Unsupported for a cloud without a factory.
        """
        return (await self._resolve(account))[1]

    def renewals(self, account: CloudAccount) -> int:
        """Return how often the clients of an account were replaced."""
        return self._renewals[_place(account)]

    def renew(self, account: CloudAccount, seen: int) -> None:
        """Replace the clients of an account before their next use.

        They may hold a token that the cloud revoked. Nothing happens if the clients
        were replaced since `seen` renewals, or if the Secret has no credential. Clients
        of other credentials are kept.
        """
        place = _place(account)
        digest = self._digests.get(place)
        if digest is not None and self._renewals[place] == seen:
            self._renewals[place] += 1
            self._providers.pop((account.provider, account.region, digest), None)

    async def pinned(self, account: CloudAccount) -> CloudAccount:
        """Return the account with installation and project, each of which is read once.

        Raises the errors of `provider` and of the cloud.
        """
        if not account.installation:
            account = account.model_copy(
                update={"installation": await self._installation()}
            )
        if not account.project:
            project = await self._text(account, PROJECT_KEY, required=False)
            account = account.model_copy(update={"project": project})
        provider = await self.provider(account)
        return await self.threads.of(account)(provider.pinned, account)

    async def _resolve(self, account: CloudAccount) -> tuple[str, Provider]:
        factory = self._factories.get(account.provider)
        if factory is None:
            raise Unsupported(
                f"this worker creates no clusters at {account.provider}; upgrade it, or use "
                "source: Existing"
            )
        try:
            text = await self._text(account, CLOUD_CREDENTIAL_KEY, required=True)
            digest = hashlib.sha256(text.encode()).hexdigest()
            key = (account.provider, account.region, digest)
            known = self._providers.get(key)
            if known is None:
                made = await self._access_threads(account)(
                    factory, text, account.region
                )
                # Another activity may have created a client in the meantime.
                known = self._providers.setdefault(key, made)
                _bound(self._providers)
        except CredentialsInvalid:
            self._digests.pop(_place(account), None)
            raise
        self._digests[_place(account)] = digest
        _bound(self._digests)
        return digest, known

    def _access_threads(self, account: CloudAccount) -> InThread:
        return self.threads.named(f"access-{account.provider}", account.secret)

    async def _text(self, account: CloudAccount, key: str, *, required: bool) -> str:
        subject = f"Secret {SYSTEM_NAMESPACE}/{account.secret} key {key!r}"
        try:
            content = await self._store.get(SYSTEM_NAMESPACE, account.secret, key)
        except SecretMissing as error:
            if not required:
                return ""
            raise CredentialsInvalid(
                f"{error}; put the credential of {account.provider} there, for instance with "
                "`modelplane apply -f` of a v1 Secret"
            ) from None
        if len(content) > _CREDENTIAL_BYTES_MAX:
            raise CredentialsInvalid(
                f"{subject} has {len(content)} bytes; at most {_CREDENTIAL_BYTES_MAX} are read"
            )
        try:
            text = content.decode().strip()
        except UnicodeDecodeError:
            raise CredentialsInvalid(f"{subject} is not text") from None
        if not text and required:
            raise CredentialsInvalid(f"{subject} is empty")
        return text

    async def _installation(self) -> str:
        if self._settings.installation_id:
            return self._settings.installation_id
        where = (
            f"Secret {SYSTEM_NAMESPACE}/{INSTALLATION_SECRET} key {INSTALLATION_KEY!r}"
        )
        try:
            content = await self._store.get(
                SYSTEM_NAMESPACE, INSTALLATION_SECRET, INSTALLATION_KEY
            )
        except SecretMissing:
            raise InvalidInput(
                f"this installation has no id, which the marks of cloud objects need: {where} "
                "does not exist. `modelplane apply` creates it with the first credential of a "
                "cloud; without that, set provision.installationId to a name of lower-case "
                "letters, digits and dashes that never changes"
            ) from None
        found = content.decode(errors="replace").strip()
        try:
            return ProvisionSettings(installation_id=found).installation_id
        except ValueError:
            raise InvalidInput(
                f"{where} is not a name of at most 63 lower-case letters, digits and dashes"
            ) from None

    # The API server of a cluster

    async def endpoint(self, account: CloudAccount) -> tuple[str, str]:
        """Return base URL and certificate authority of the cluster's API server.

        Raises NotYet while the cluster has none, and the errors of `provider`.
        """
        known = self._endpoints.get(account.cluster_uid)
        now = self._clock()
        if known and not (
            account.cluster_uid in self._doubted and now - known[1] >= _ENDPOINT_AGE_MIN
        ):
            return known[0].server, known[0].authority
        provider = await self.provider(account)
        found = await self._access_threads(account)(provider.endpoint, account)
        self._endpoints[account.cluster_uid] = (found, now)
        self._doubted.discard(account.cluster_uid)
        _bound(self._endpoints)
        return found.server, found.authority

    def doubt(self, account: CloudAccount) -> None:
        """Read the endpoint again before its next use, because connections fail."""
        if account.cluster_uid in self._endpoints:
            self._doubted.add(account.cluster_uid)

    async def token(
        self, account: CloudAccount, seconds: float, *, refused: str = ""
    ) -> tuple[str, float]:
        """Return a token for the cluster, and when it expires.

        The token is valid for at least `seconds`, or is the newest one. It differs from
        `refused`, a token that the API server rejected. Raises the errors of
        `provider`.
        """
        digest, provider = await self._resolve(account)
        known = self._tokens.get(account.cluster_uid)
        if (
            known
            and known[0] == digest
            and known[1].text != refused
            and known[1].expires_at - self._clock() >= seconds
        ):
            return known[1].text, known[1].expires_at
        token = await self._access_threads(account)(provider.token, account)
        self._tokens[account.cluster_uid] = (digest, token)
        _bound(self._tokens)
        return token.text, token.expires_at


def _place(account: CloudAccount) -> _Place:
    return account.provider, account.region, account.secret


def _bound(kept: dict[Any, Any]) -> None:
    """Drop the oldest entries of a cache beyond its limit."""
    while len(kept) > _KEPT_MAX:
        del kept[next(iter(kept))]
