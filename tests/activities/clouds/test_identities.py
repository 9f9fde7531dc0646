"""Existing clusters that are used as an identity of their cloud: `identitySecretRef` (stack-and-routing.md 3.5, cases 51 to 53)."""

import base64
import json
import time
from typing import Any

import pytest

from activities.clients.kubernetes.credential import Credential
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clouds.identities import AWS, GOOGLE, CloudIdentities, eks_cluster
from activities.clouds.provider import BearerToken
from activities.secrets.store import SecretMissing, StoredSecret
from api_types.errors import CredentialsInvalid
from api_types.messages.cluster_work import Connection, Identity
from api_types.settings import KubeconfigSettings
from testbed.clouds.aws.account import Account
from testbed.clouds.aws.signatures import verify_token
from workflows.inference_cluster.spec import connection_of
from workflows.inference_cluster.state import ClusterState

ARN = "arn:aws:eks:us-east-2:123456789012:cluster/prod-1"
HOST = "https://0123456789abcdef.gr7.eu-west-1.eks.amazonaws.com"
NOW = 1_800_000_000.0


def a_kubeconfig(name: str = ARN, server: str = "https://192.0.2.7") -> str:
    """A file as the tools of clouds write it: its user runs a program."""
    user = {"exec": {"command": "aws", "args": ["eks", "get-token"], "apiVersion": "client.authentication.k8s.io/v1beta1"}}
    return json.dumps(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": name, "user": "it"}}],
            "clusters": [{"name": name, "cluster": {"server": server}}],
            "users": [{"name": "it", "user": user}],
        }
    )


class Secrets:
    """A secret store with a kubeconfig and a credential."""

    def __init__(self, kubeconfig: str, credential: str | None) -> None:
        self.values = {("kube", "kubeconfig"): kubeconfig, ("it", "private_key"): credential}

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        assert namespace == "modelplane-system"
        found = self.values.get((name, key))
        if found is None:
            raise SecretMissing(namespace, name, key)
        return found.encode()

    async def read(self, namespace: str, name: str) -> StoredSecret:
        raise SecretMissing(namespace, name)

    async def describe(self, namespace: str, name: str) -> None:
        del namespace, name


class Google:
    """Google Cloud, whose tokens are numbered and live for an hour."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, text: str) -> "Google":
        if text == "no key":
            raise CredentialsInvalid("the credential is not JSON")
        self.text = text
        return self

    def token(self) -> BearerToken:
        self.made.append(self.text)
        return BearerToken(f"token {len(self.made)} of {self.text}", NOW + 3600)


class World:
    """A pool with one existing cluster."""

    def __init__(self, credential: str | None, kind: Any = GOOGLE, **kubeconfig: str) -> None:
        self.now = NOW
        self.google = Google()
        self.secrets: Any = Secrets(a_kubeconfig(**kubeconfig), credential)
        identities = CloudIdentities(self.google, lambda: self.now)
        self.pool = KubernetesPool(self.secrets, KubeconfigSettings(), identities=identities)
        identity = Identity(name="it", type=kind)
        self.connection = Connection(cluster="prod", namespace="modelplane-system", name="kube", identity=identity)

    async def token(self, seconds: float = 60, refused: str = "") -> tuple[str, float]:
        access = await self.pool.access(self.connection)
        assert (access.tokens is not None, access.plugin, access.token) == (True, None, "")
        assert access.tokens is not None
        return await access.tokens(seconds, refused=refused)


async def test_stk_51_a_google_identity_takes_the_place_of_the_user_and_its_tokens_are_renewed() -> None:
    world = World("a key")
    assert [await world.token() for _ in range(3)] == [("token 1 of a key", NOW + 3600)] * 3
    assert (await world.token(refused="token 1 of a key"))[0] == "token 2 of a key"
    world.now += 3000
    assert (await world.token(900))[0] == "token 3 of a key"
    world.secrets.values["it", "private_key"] = "a new key"
    assert (await world.token())[0] == "token 4 of a new key"


async def test_stk_51_a_rotated_identity_gets_a_new_client_and_the_same_one_keeps_it() -> None:
    world = World("a key")
    first = await world.pool.at(world.connection)
    assert await world.pool.at(world.connection) is first
    world.secrets.values["it", "private_key"] = "a new key"
    assert await world.pool.at(world.connection) is not first
    await world.pool.close()


async def test_stk_51_a_session_replaces_a_token_that_the_server_refused() -> None:
    world = World("a key")
    credential = Credential("prod", await world.pool.access(world.connection))
    first = await credential.token()
    assert (await credential.replace(first), await credential.token()) == (True, "token 2 of a key")


async def test_stk_51_an_aws_identity_signs_tokens_that_the_cluster_takes_for_a_quarter_of_an_hour() -> None:
    account = Account("123456789012", "us-east-2")
    user = account.user("operator")
    world = World(user.text, AWS)
    world.now = began = time.time()
    text, ends = await world.token()
    assert ends == began + 600
    assert verify_token(text, "prod-1", account.known).principal == user.principal
    assert "us-east-2" in base64.urlsafe_b64decode(text.removeprefix("k8s-aws-v1.") + "==").decode()
    world.now += 300
    assert await world.token() == (text, ends)
    world.now += 250
    assert (await world.token())[1] == world.now + 600


CALLED = [
    ((ARN, "https://192.0.2.7"), ("prod-1", "us-east-2")),
    (("arn:aws-cn:eks:cn-north-1:123456789012:cluster/prod", "https://192.0.2.7"), ("prod", "cn-north-1")),
    (("prod.eu-west-1.eksctl.io", "https://192.0.2.7"), ("prod", "eu-west-1")),
    (("prod", HOST), ("prod", "eu-west-1")),
]


@pytest.mark.parametrize(("called", "found"), CALLED)
def test_an_eks_cluster_is_named_by_its_kubeconfig(called: tuple[str, str], found: tuple[str, str]) -> None:
    assert eks_cluster(*called) == found


@pytest.mark.parametrize("called", [("prod", "https://192.0.2.7"), ("", HOST), ("a b", HOST), ("prod", f"{HOST}.example.com")])
def test_a_cluster_without_a_region_is_refused(called: tuple[str, str]) -> None:
    with pytest.raises(CredentialsInvalid, match="call it by its ARN"):
        eks_cluster(*called)


REFUSED = [
    (None, "has no key|no Secret|not", "credential that is missing"),
    ("no key", r"cluster prod: Secret modelplane-system/it key 'private_key': the credential is not JSON", "credential that is none"),
]


@pytest.mark.parametrize(("credential", "match"), [row[:2] for row in REFUSED], ids=[row[2] for row in REFUSED])
async def test_an_identity_that_cannot_be_used_is_named(credential: str | None, match: str) -> None:
    with pytest.raises(CredentialsInvalid, match=match):
        await World(credential).pool.at(World(credential).connection)


def spec_with(identity: dict[str, str] | None) -> ClusterState:
    existing: dict[str, Any] = {"secretRef": {"name": "kube"}} | ({"identitySecretRef": identity} if identity else {})
    state = ClusterState()
    state.spec = {"cluster": {"source": "Existing", "existing": existing}}
    return state


WRITTEN: list[tuple[dict[str, str] | None, Identity | None]] = [
    (None, None),
    ({"name": "it"}, Identity(name="it", key="private_key", type=GOOGLE)),
    ({"name": "it", "key": "k", "type": AWS}, Identity(name="it", key="k", type=AWS)),
    ({"name": "it", "type": "NebiusServiceAccountCredentials"}, None),
]


@pytest.mark.parametrize(("written", "identity"), WRITTEN, ids=["none", "stk_53_defaults", "aws", "nebius"])
def test_the_connection_has_the_identity_of_the_spec(written: dict[str, str] | None, identity: Identity | None) -> None:
    found = connection_of("prod", spec_with(written))
    assert found is not None
    assert (found.identity, found.name, found.key) == (identity, "kube", "kubeconfig")
