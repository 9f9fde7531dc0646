"""Accounts: credentials, the installation, and endpoints and tokens of clusters."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from activities.clients.helm.command import OPERATION_SECONDS
from activities.clients.helm.kubeconfig_file import TOKEN_SECONDS
from activities.clients.kubernetes.credential import BearerCredential
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clouds.accounts import CloudAccounts
from activities.clouds.in_cluster import connection_of
from activities.clouds.lifecycle.threads import CALLS_AT_ONCE
from activities.clouds.provider import ApiServerEndpoint, BearerToken
from activities.secrets.store import SecretMissing
from api_types.errors import (
    CredentialsInvalid,
    InvalidInput,
    PermissionDenied,
    Unsupported,
)
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import ProvisionSettings
from api_types.sections.clusters import KubeconfigSettings

ACCOUNT = CloudAccount(
    provider="GKE",
    cluster="prod",
    cluster_uid="u",
    secret="gke-default",  # noqa: S106
    region="europe-west4",
    installation="acme",
)


class Secrets:
    """A secret store with these values, by name and key."""

    def __init__(self, **values: str) -> None:
        self.values = {tuple(key.split("__")): value for key, value in values.items()}

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        try:
            return self.values[name.replace("-", "_"), key].encode()
        except KeyError:
            raise SecretMissing(namespace, name, key) from None

    async def read(self, namespace: str, name: str) -> Any:
        raise SecretMissing(namespace, name)

    async def describe(self, namespace: str, name: str) -> None:
        del namespace, name


class Provider:
    """A cloud whose tokens are numbered and live for ten minutes."""

    def __init__(self, clock: "Clock") -> None:
        self.clock = clock
        self.tokens = self.endpoints = 0

    def pinned(self, account: CloudAccount) -> CloudAccount:
        return account.model_copy(
            update={"project": account.project or "of the credential"}
        )

    def endpoint(self, account: CloudAccount) -> ApiServerEndpoint:
        del account
        self.endpoints += 1
        return ApiServerEndpoint(f"https://192.0.2.{self.endpoints}", "")

    def token(self, account: CloudAccount) -> BearerToken:
        del account
        self.tokens += 1
        return BearerToken(f"token {self.tokens}", self.clock.now + 600)


class Clock:
    """A clock that a test sets."""

    now = 1e9

    def __call__(self) -> float:
        return self.now


class World:
    """A worker with one cloud."""

    def __init__(self, installation: str = "acme", **secrets: str) -> None:
        self.clock = Clock()
        self.secrets = Secrets(**(secrets or {"gke_default__credentials": "secret"}))
        self.provider = Provider(self.clock)
        self.opened: list[tuple[str, str]] = []
        self.accounts = CloudAccounts(
            self.secrets,
            {"GKE": self._open},
            ProvisionSettings(installation_id=installation),
            self.clock,
        )

    def _open(self, credential: str, region: str) -> Any:
        self.opened.append((credential, region))
        return self.provider


def test_a_changed_credential_is_used_from_the_next_call_on() -> None:
    world = World()
    for _ in range(2):
        asyncio.run(world.accounts.provider(ACCOUNT))
    world.secrets.values["gke_default", "credentials"] = "another"
    asyncio.run(world.accounts.provider(ACCOUNT))
    assert world.opened == [("secret", "europe-west4"), ("another", "europe-west4")]


def test_clients_are_replaced_once_for_all_concurrent_users_of_a_rejected_credential() -> (
    None
):
    world = World()

    async def provider() -> None:
        await world.accounts.provider(ACCOUNT)

    asyncio.run(provider())
    seen = world.accounts.renewals(ACCOUNT)
    for _ in range(3):
        world.accounts.renew(ACCOUNT, seen)
        asyncio.run(provider())
    assert len(world.opened) == 2
    world.accounts.renew(ACCOUNT.model_copy(update={"region": "us-east1"}), 0)
    asyncio.run(provider())
    assert len(world.opened) == 2


@pytest.mark.parametrize(
    "broken", ["a missing one", "no credential", "one that the cloud refuses"]
)
def test_a_broken_credential_keeps_the_clients_of_other_accounts(broken: str) -> None:
    world = World(gke_default__credentials="secret", gke_bad__credentials="refused")
    asyncio.run(world.accounts.provider(ACCOUNT))
    other = ACCOUNT.model_copy(update={"secret": "gke-bad"})
    if broken == "a missing one":
        del world.secrets.values["gke_bad", "credentials"]
    elif broken == "no credential":
        world.secrets.values["gke_bad", "credentials"] = " "
    for _ in range(3):
        seen = world.accounts.renewals(other)
        with contextlib.suppress(CredentialsInvalid):
            asyncio.run(world.accounts.provider(other))
        world.accounts.renew(other, seen)
        asyncio.run(world.accounts.provider(ACCOUNT))
    assert [each for each in world.opened if each[0] == "secret"] == [
        ("secret", "europe-west4")
    ]
    assert len(world.opened) == (4 if broken == "one that the cloud refuses" else 1)


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ({"other__credentials": "x"}, "gke-default"),
        ({"gke_default__credentials": " "}, "is empty"),
        ({"gke_default__credentials": "x" * 70_000}, "at most 65536 are read"),
    ],
    ids=["missing", "empty", "too long"],
)
def test_a_malformed_credential_is_refused_with_a_reason(
    secrets: dict[str, str], said: str
) -> None:
    with pytest.raises(CredentialsInvalid, match=said):
        asyncio.run(World(**secrets).accounts.provider(ACCOUNT))


def test_a_cloud_without_clients_is_not_supported() -> None:
    with pytest.raises(Unsupported, match="creates no clusters at EKS"):
        asyncio.run(
            World().accounts.provider(ACCOUNT.model_copy(update={"provider": "EKS"}))
        )


def test_the_installation_and_the_project_are_read_once() -> None:
    new = ACCOUNT.model_copy(update={"installation": ""})
    secrets = {
        "gke_default__credentials": "x",
        "gke_default__project": "mine",
        "modelplane_installation__id": "of-the-secret",
    }
    found = asyncio.run(World(installation="", **secrets).accounts.pinned(new))
    assert (found.installation, found.project) == ("of-the-secret", "mine")
    again = asyncio.run(
        World(installation="of-the-settings", **secrets).accounts.pinned(found)
    )
    assert (again.installation, again.project) == ("of-the-secret", "mine")


@pytest.mark.parametrize(
    "stored",
    [{}, {"modelplane_installation__id": "Not a name"}],
    ids=["none", "no name"],
)
def test_without_an_installation_nothing_is_created_and_the_next_step_is_named(
    stored: dict[str, str],
) -> None:
    world = World(installation="", **{"gke_default__credentials": "x", **stored})
    with pytest.raises(
        InvalidInput, match=r"modelplane-system/modelplane-installation"
    ):
        asyncio.run(
            world.accounts.pinned(ACCOUNT.model_copy(update={"installation": ""}))
        )


def test_a_token_is_renewed_before_it_expires_and_when_it_was_refused() -> None:
    world = World()

    async def tokens() -> list[str]:
        found = [(await world.accounts.token(ACCOUNT, 60))[0]]
        world.clock.now += 530
        found.append((await world.accounts.token(ACCOUNT, 60))[0])
        world.clock.now += 20
        found.append((await world.accounts.token(ACCOUNT, 60))[0])
        found.append((await world.accounts.token(ACCOUNT, 60, refused=found[-1]))[0])
        return found

    assert asyncio.run(tokens()) == ["token 1", "token 1", "token 2", "token 3"]


def test_every_helm_run_has_a_token_that_outlives_it() -> None:
    world = World()

    async def runs() -> list[tuple[str, float]]:
        found = []
        for _ in range(25 * 60 // OPERATION_SECONDS):
            token, ends = await world.accounts.token(ACCOUNT, TOKEN_SECONDS)
            world.clock.now += OPERATION_SECONDS
            found.append((token, ends - world.clock.now))
        return found

    seen = asyncio.run(runs())
    assert [token for token, _ in seen] == [f"token {number}" for number in range(1, 6)]
    assert min(left for _, left in seen) >= TOKEN_SECONDS - OPERATION_SECONDS > 0


def test_a_cloud_whose_calls_hang_does_not_block_access_to_existing_clusters() -> None:
    world, answers = World(), threading.Event()

    async def access() -> tuple[str, str]:
        held = [
            asyncio.ensure_future(world.accounts.threads.of(ACCOUNT)(answers.wait, 30))
            for _ in range(2 * CALLS_AT_ONCE)
        ]
        try:
            token = await asyncio.wait_for(world.accounts.token(ACCOUNT, 60), 10)
            endpoint = await asyncio.wait_for(world.accounts.endpoint(ACCOUNT), 10)
        finally:
            answers.set()
            await asyncio.gather(*held)
        return token[0], endpoint[0]

    assert asyncio.run(access()) == ("token 1", "https://192.0.2.1")


def test_an_endpoint_is_read_again_when_connections_fail() -> None:
    world = World()

    async def endpoints() -> list[str]:
        found = [(await world.accounts.endpoint(ACCOUNT))[0] for _ in range(2)]
        world.accounts.doubt(ACCOUNT)
        found.append((await world.accounts.endpoint(ACCOUNT))[0])
        world.clock.now += 31
        found += [(await world.accounts.endpoint(ACCOUNT))[0] for _ in range(2)]
        return [each[-1] for each in found]

    assert asyncio.run(endpoints()) == ["1", "1", "1", "2", "2"]


def test_a_cluster_at_a_cloud_is_reached_with_renewed_tokens_and_no_kubeconfig() -> (
    None
):
    world = World()
    pool = KubernetesPool(world.secrets, KubeconfigSettings(), clouds=world.accounts)

    async def used() -> tuple[str, str, bool, str]:
        access = await pool.access(connection_of(ACCOUNT))
        assert access.identity == "the identity in Secret modelplane-system/gke-default"
        credential = BearerCredential("prod", access)
        first = await credential.token()
        replaced = await credential.replace(first)
        return access.server, first, replaced, await credential.token_for(600)

    server, first, replaced, second = asyncio.run(used())
    assert (server, first, replaced) == ("https://192.0.2.1", "token 1", True)
    assert second != first


def test_an_account_of_another_cluster_is_refused() -> None:
    world = World()
    pool = KubernetesPool(world.secrets, KubeconfigSettings(), clouds=world.accounts)
    with pytest.raises(PermissionDenied, match="account belongs to prod"):
        asyncio.run(
            pool.access(connection_of(ACCOUNT).model_copy(update={"cluster": "other"}))
        )
