"""Credentials of clouds: from the reference in an account to a cloud that can be called, and to the API server of a cluster there.

The Secret is read again for every activity, so that one which was rotated is used from the next one on. Clients are kept by the digest of
the credential and the region: equal content, same clients. Endpoints and tokens are kept too: a token until it is renewed, an endpoint
until connections fail, for its address and its certificate authority may change. None of it leaves the process.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from activities.clouds.lifecycle.threads import AccountThreads, InThread
from activities.clouds.provider import BearerToken, Endpoint, Provider
from activities.secrets.store import SecretMissing, SecretReader
from api_types.errors import CredentialsInvalid, InvalidInput, Unsupported
from api_types.labels import SYSTEM_NAMESPACE
from api_types.messages.clouds import CloudAccount
from api_types.names import CLOUD_CREDENTIAL_KEY
from api_types.sections.clouds import ProvisionSettings

PROJECT_KEY = "project"
INSTALLATION_SECRET = "modelplane-installation"  # noqa: S105 - the name of a Secret
INSTALLATION_KEY = "id"
_CREDENTIAL_BYTES_MAX = 64 * 1024
# An endpoint that does not answer is asked for again, but no more often: most often it is the cluster that is busy.
_ENDPOINT_AGE_MIN = 30.0
_KEPT_MAX = 1000

_Place = tuple[str, str, str]

ProviderFactory = Callable[[str, str], Provider]
"""Makes a cloud from the text of a credential and a region. Raises CredentialsInvalid."""


class CloudAccounts:
    """The clouds of a worker. `factories` has one for each cloud that it can create clusters at; `threads` make their calls.

    Clients, tokens and endpoints are made in threads of their own: a cloud whose calls hang keeps nobody from the clusters that there are.
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
        # With which content of its Secret an account last had clients.
        self._digests: dict[_Place, str] = {}
        self._endpoints: dict[str, tuple[Endpoint, float]] = {}
        self._doubted: set[str] = set()
        self._tokens: dict[str, tuple[str, BearerToken]] = {}

    # --- the cloud ----------------------------------------------------------------------------------------------------------------

    async def provider(self, account: CloudAccount) -> Provider:
        """Give the cloud of an account. Raises CredentialsInvalid; Unsupported for a cloud that this worker has no clients of."""
        return (await self._resolve(account))[1]

    def renewals(self, account: CloudAccount) -> int:
        """Give how often the clients of an account were made anew."""
        return self._renewals[_place(account)]

    def renew(self, account: CloudAccount, seen: int) -> None:
        """Make new clients before their next use, unless that was done since `seen` renewals: they may hold a token that was ended.

        Those of other credentials are kept, and those of a Secret without a credential are not there: then nothing is done.
        """
        place = _place(account)
        digest = self._digests.get(place)
        if digest is not None and self._renewals[place] == seen:
            self._renewals[place] += 1
            self._providers.pop((account.provider, account.region, digest), None)

    async def pinned(self, account: CloudAccount) -> CloudAccount:
        """Give the account with installation and project, each read once. Raises as `provider`, and what the cloud says."""
        if not account.installation:
            account = account.model_copy(update={"installation": await self._installation()})
        if not account.project and (project := await self._text(account, PROJECT_KEY, required=False)):
            account = account.model_copy(update={"project": project})
        provider = await self.provider(account)
        return await self.threads.of(account)(provider.pinned, account)

    async def _resolve(self, account: CloudAccount) -> tuple[str, Provider]:
        factory = self._factories.get(account.provider)
        if factory is None:
            raise Unsupported(f"this worker creates no clusters at {account.provider}; upgrade it, or use source: Existing")
        try:
            text = await self._text(account, CLOUD_CREDENTIAL_KEY, required=True)
            digest = hashlib.sha256(text.encode()).hexdigest()
            key = (account.provider, account.region, digest)
            known = self._providers.get(key)
            if known is None:
                made = await self._access_threads(account)(factory, text, account.region)
                # Another activity may have made them meanwhile.
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
                f"{error}; put the credential of {account.provider} there, for instance with `modelplane apply -f` of a v1 Secret"
            ) from None
        if len(content) > _CREDENTIAL_BYTES_MAX:
            raise CredentialsInvalid(f"{subject} has {len(content)} bytes; at most {_CREDENTIAL_BYTES_MAX} are read")
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
        where = f"Secret {SYSTEM_NAMESPACE}/{INSTALLATION_SECRET} key {INSTALLATION_KEY!r}"
        try:
            found = (await self._store.get(SYSTEM_NAMESPACE, INSTALLATION_SECRET, INSTALLATION_KEY)).decode(errors="replace").strip()
        except SecretMissing:
            raise InvalidInput(
                f"no id of this installation is known, which the marks of cloud objects need: {where} does not exist. `modelplane apply` "
                "makes it with the first credential of a cloud; else set provision.installationId to a name of lower-case letters, digits "
                "and dashes that never changes"
            ) from None
        try:
            return ProvisionSettings(installation_id=found).installation_id
        except ValueError:
            raise InvalidInput(f"{where} is no name of at most 63 lower-case letters, digits and dashes") from None

    # --- the API server of a cluster ----------------------------------------------------------------------------------------------

    async def endpoint(self, account: CloudAccount) -> tuple[str, str]:
        """Give base URL and certificate authority of the cluster's API server. Raises NotYet while it has none, and as `provider`."""
        known = self._endpoints.get(account.cluster_uid)
        now = self._clock()
        if known and not (account.cluster_uid in self._doubted and now - known[1] >= _ENDPOINT_AGE_MIN):
            return known[0].server, known[0].authority
        provider = await self.provider(account)
        found = await self._access_threads(account)(provider.endpoint, account)
        self._endpoints[account.cluster_uid] = (found, now)
        self._doubted.discard(account.cluster_uid)
        _bound(self._endpoints)
        return found.server, found.authority

    def doubt(self, account: CloudAccount) -> None:
        """Ask for the endpoint again before its next use: connections fail."""
        if account.cluster_uid in self._endpoints:
            self._doubted.add(account.cluster_uid)

    async def token(self, account: CloudAccount, seconds: float, *, refused: str = "") -> tuple[str, float]:
        """Give a token for the cluster that stays good for so long, with its end, or the newest one that there is.

        `refused`: a token that the API server did not take; another one is given. Raises as `provider`.
        """
        digest, provider = await self._resolve(account)
        known = self._tokens.get(account.cluster_uid)
        if known and known[0] == digest and known[1].text != refused and known[1].expires_at - self._clock() >= seconds:
            return known[1].text, known[1].expires_at
        token = await self._access_threads(account)(provider.token, account)
        self._tokens[account.cluster_uid] = (digest, token)
        _bound(self._tokens)
        return token.text, token.expires_at


def _place(account: CloudAccount) -> _Place:
    return account.provider, account.region, account.secret


def _bound(kept: dict[Any, Any]) -> None:
    """Drop the oldest of what is kept beyond its limit."""
    while len(kept) > _KEPT_MAX:
        del kept[next(iter(kept))]
