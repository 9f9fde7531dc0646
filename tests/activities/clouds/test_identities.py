"""Existing clusters whose `identitySecretRef` names a credential of their cloud."""

import base64
import json
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import container_v1

from activities.clients.kubernetes.credential import BearerCredential
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import AwsCredential
from activities.clouds.identities import AWS, GOOGLE, CloudIdentities, eks_cluster
from activities.clouds.provider import BearerToken
from activities.secrets.store import SecretMissing, StoredSecret
from api_types.errors import CredentialsInvalid, PermissionDenied
from api_types.messages.cluster_work import Connection, Identity
from api_types.sections.clusters import KubeconfigSettings
from fakes.aws.account import Account
from fakes.aws.signatures import verify_token
from tests.environment.impostor import a_certificate
from workflows.inference_cluster.spec import connection_of
from workflows.inference_cluster.state import ClusterState

ARN = "arn:aws:eks:us-east-2:123456789012:cluster/prod-1"
HOST = "https://0123456789abcdef.gr7.eu-west-1.eks.amazonaws.com"
OURS = "https://ABCDEF.gr7.us-east-2.eks.amazonaws.com"
GKE = "gke_ours_europe-west4_prod"
with TemporaryDirectory() as folder:
    AUTHORITY = a_certificate(Path(folder)).authority
NOW = 1_800_000_000.0


def a_kubeconfig(name: str = GKE, server: str = "https://192.0.2.7") -> str:
    """Return a kubeconfig as the clouds' tools write it, whose user runs a program."""
    user = {
        "exec": {
            "command": "aws",
            "args": ["eks", "get-token"],
            "apiVersion": "client.authentication.k8s.io/v1beta1",
        }
    }
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
        self.values = {
            ("kube", "kubeconfig"): kubeconfig,
            ("it", "private_key"): credential,
        }

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
    """Google Cloud with one cluster, whose tokens are numbered and live for an hour."""

    project = "ours"
    account = "it@ours.iam.gserviceaccount.com"

    def __init__(self) -> None:
        self.made: list[str] = []
        self.asked: list[str] = []
        self.threads: set[str] = set()
        self.refused = False
        self.closed = ""
        """A project in which the credential may not be used."""

    def __call__(self, text: str) -> "Google":
        if text == "no key":
            raise CredentialsInvalid("the credential is not JSON")
        self.text = text
        return self

    def client(self, service: str) -> "Google":
        assert service == "container"
        return self

    def get_cluster(
        self, request: dict[str, str], timeout: float
    ) -> container_v1.Cluster:
        assert timeout
        self.asked.append(request["name"])
        self.threads.add(threading.current_thread().name)
        if self.refused:
            raise exceptions.PermissionDenied("no")
        if request["name"] != "projects/ours/locations/europe-west4/clusters/prod":
            raise exceptions.NotFound("no")
        return container_v1.Cluster(
            endpoint="192.0.2.7",
            master_auth=container_v1.MasterAuth(
                cluster_ca_certificate=base64.b64encode(AUTHORITY.encode()).decode()
            ),
            private_cluster_config=container_v1.PrivateClusterConfig(
                private_endpoint="10.0.0.2"
            ),
            control_plane_endpoints_config=container_v1.ControlPlaneEndpointsConfig(
                dns_endpoint_config=container_v1.ControlPlaneEndpointsConfig.DNSEndpointConfig(
                    endpoint="gke-1.europe-west4.gke.goog"
                )
            ),
        )

    def permit(self, project: str) -> None:
        if project == self.closed:
            raise CredentialsInvalid(f'not in project "{project}"')

    def clock_offset(self) -> float:
        return 0.0

    def token(self) -> BearerToken:
        self.threads.add(threading.current_thread().name)
        self.made.append(self.text)
        return BearerToken(f"token {len(self.made)} of {self.text}", NOW + 3600)


class Aws(AwsClients):
    """AWS with the one cluster of `ARN`."""

    clock = NOW

    def __init__(self, credential: AwsCredential, region: str) -> None:
        super().__init__(credential, region, seconds=lambda: Aws.clock)

    def read(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        assert (service, operation) == ("eks", "describe_cluster")
        if (self.region, parameters["name"]) != ("us-east-2", "prod-1"):
            return {}
        data = base64.b64encode(AUTHORITY.encode()).decode()
        return {
            "cluster": {
                "arn": ARN,
                "endpoint": OURS,
                "certificateAuthority": {"data": data},
            }
        }


class World:
    """A pool with one existing cluster."""

    def __init__(
        self,
        credential: str | None,
        kind: Any = GOOGLE,
        identity: Any = None,
        **kubeconfig: str,
    ) -> None:
        self.now = NOW
        self.google = Google()
        of_cloud = {"name": ARN, "server": OURS} if kind == AWS else {}
        self.secrets: Any = Secrets(a_kubeconfig(**of_cloud | kubeconfig), credential)
        identities = CloudIdentities(self.google, Aws, lambda: self.now)
        self.pool = KubernetesPool(
            self.secrets, KubeconfigSettings(), identities=identities
        )
        named = Identity(**{"name": "it", **(identity or {})}, type=kind)
        self.connection = Connection(
            cluster="prod", namespace="modelplane-system", name="kube", identity=named
        )

    async def token(self, seconds: float = 60, refused: str = "") -> tuple[str, float]:
        access = await self.pool.access(self.connection)
        assert (access.tokens is not None, access.plugin, access.token) == (
            True,
            None,
            "",
        )
        assert access.tokens is not None
        return await access.tokens(seconds, refused=refused)


async def test_a_google_identity_replaces_the_user_and_its_tokens_are_renewed() -> None:
    world = World("a key")
    assert [await world.token() for _ in range(3)] == [
        ("token 1 of a key", NOW + 3600)
    ] * 3
    assert (await world.token(refused="token 1 of a key"))[0] == "token 2 of a key"
    world.now += 3000
    assert (await world.token(900))[0] == "token 3 of a key"
    world.secrets.values["it", "private_key"] = "a new key"
    assert (await world.token())[0] == "token 4 of a new key"


async def test_an_identity_is_used_in_permitted_projects_only() -> None:
    world = World("a key")
    world.google.closed = "ours"
    with pytest.raises(CredentialsInvalid, match='not in project "ours"'):
        await world.token()
    assert world.google.asked == []


async def test_a_rotated_identity_gets_a_new_client_and_the_same_one_keeps_it() -> None:
    world = World("a key")
    first = await world.pool.at(world.connection)
    assert await world.pool.at(world.connection) is first
    world.secrets.values["it", "private_key"] = "a new key"
    assert await world.pool.at(world.connection) is not first
    await world.pool.close()


async def test_a_session_replaces_a_token_that_the_server_refused() -> None:
    world = World("a key")
    credential = BearerCredential("prod", await world.pool.access(world.connection))
    first = await credential.token()
    assert (await credential.replace(first), await credential.token()) == (
        True,
        "token 2 of a key",
    )


async def test_an_aws_identity_signs_tokens_for_a_quarter_of_an_hour() -> None:
    account = Account("123456789012", "us-east-2")
    user = account.user("operator")
    world = World(user.text, AWS)
    world.now = Aws.clock = began = time.time()
    text, ends = await world.token()
    assert ends == began + 600
    assert verify_token(text, "prod-1", account.known).principal == user.principal
    assert (
        "us-east-2"
        in base64.urlsafe_b64decode(text.removeprefix("k8s-aws-v1.") + "==").decode()
    )
    world.now += 300
    assert await world.token() == (text, ends)
    world.now += 250
    Aws.clock = world.now
    assert (await world.token())[1] == world.now + 600


CALLED = [
    ((ARN, "https://192.0.2.7"), ("prod-1", "us-east-2")),
    (
        ("arn:aws-cn:eks:cn-north-1:123456789012:cluster/prod", "https://192.0.2.7"),
        ("prod", "cn-north-1"),
    ),
    (("prod.eu-west-1.eksctl.io", "https://192.0.2.7"), ("prod", "eu-west-1")),
    (("prod", HOST), ("prod", "eu-west-1")),
]


@pytest.mark.parametrize(("called", "found"), CALLED)
def test_an_eks_cluster_is_named_by_its_kubeconfig(
    called: tuple[str, str], found: tuple[str, str]
) -> None:
    assert eks_cluster(*called) == found


@pytest.mark.parametrize(
    "called",
    [
        ("prod", "https://192.0.2.7"),
        ("", HOST),
        ("a b", HOST),
        ("prod", f"{HOST}.example.com"),
    ],
)
def test_a_cluster_without_a_region_is_refused(called: tuple[str, str]) -> None:
    with pytest.raises(CredentialsInvalid, match="name it by its ARN"):
        eks_cluster(*called)


REFUSED = [
    (None, "has no key|no Secret|not", "credential that is missing"),
    (
        "no key",
        r"cluster prod: Secret modelplane-system/it key 'private_key': the credential is not JSON",
        "credential that is none",
    ),
]


@pytest.mark.parametrize(
    ("credential", "match"),
    [row[:2] for row in REFUSED],
    ids=[row[2] for row in REFUSED],
)
async def test_an_identity_that_cannot_be_used_is_named(
    credential: str | None, match: str
) -> None:
    with pytest.raises(CredentialsInvalid, match=match):
        await World(credential).pool.at(World(credential).connection)


AWS_KEY = (
    "[default]\naws_access_key_id = "
    "AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI\n"
)
OTHER = "https://192.0.2.66"
ELSEWHERE: list[tuple[Any, dict[str, str]]] = [
    (GOOGLE, {"server": OTHER}),
    (GOOGLE, {"server": "https://192.0.2.7:8443"}),
    (GOOGLE, {"server": "https://192.0.2.7/proxy"}),
    (GOOGLE, {"name": "gke_ours_europe-west4_other"}),
    (GOOGLE, {"name": "prod"}),
    (GOOGLE, {"name": "gke_ours_europe-west4_prod/../../x"}),
    (AWS, {"server": OTHER}),
    (AWS, {"server": HOST}),
    (AWS, {"name": ARN.replace("prod-1", "victim")}),
    # An ARN of another account than the credential's.
    (AWS, {"name": ARN.replace("123456789012", "210987654321")}),
    (AWS, {"name": ARN.replace("us-east-2", "eu-west-1")}),
]


@pytest.mark.parametrize(
    ("kind", "kubeconfig"),
    ELSEWHERE,
    ids=lambda each: each if isinstance(each, str) else "-".join(each.values()),
)
async def test_a_token_is_sent_only_to_the_server_that_the_cloud_reports(
    kind: Any, kubeconfig: dict[str, str]
) -> None:
    world = World("a key" if kind == GOOGLE else AWS_KEY, kind, **kubeconfig)
    with pytest.raises(
        CredentialsInvalid,
        match=(
            r"no token is sent there|does not exist|tokens are sent to GKE "
            r"clusters only|no endpoint"
        ),
    ):
        await world.pool.at(world.connection)
    assert world.google.made == []


REACHED = [
    (GOOGLE, "https://192.0.2.7", AUTHORITY),
    (GOOGLE, "https://192.0.2.7:443/", AUTHORITY),
    (GOOGLE, "https://10.0.0.2", AUTHORITY),
    (GOOGLE, "https://gke-1.europe-west4.gke.goog", ""),
    (AWS, OURS, AUTHORITY),
    (AWS, OURS.lower().replace("https", "HTTPS"), AUTHORITY),
]


@pytest.mark.parametrize(("kind", "server", "authority"), REACHED)
async def test_server_and_authority_come_from_the_cloud(
    kind: Any, server: str, authority: str
) -> None:
    world = World("a key" if kind == GOOGLE else AWS_KEY, kind, server=server)
    access = await world.pool.access(world.connection)
    assert (access.authority, access.server_name, access.identity) == (
        authority,
        "",
        "the identity in Secret modelplane-system/it",
    )
    assert access.server == (OURS if kind == AWS else server.removesuffix(":443/"))


async def test_an_identity_without_permission_to_read_its_cluster_gets_no_token() -> (
    None
):
    world = World("a key")
    world.google.refused = True
    with pytest.raises(PermissionDenied, match=r"grant container\.clusters\.get"):
        await world.pool.at(world.connection)


async def test_calls_for_identities_use_no_thread_of_the_event_loop() -> None:
    world = World("a key")
    await world.token()
    assert world.google.asked
    assert all(each.startswith(GOOGLE) for each in world.google.threads)


@pytest.mark.parametrize(
    "secret", ["gke-default", "gke-ns-team", "eks-default", "aks-x"]
)
async def test_a_credential_that_creates_clusters_cannot_be_an_identity(
    secret: str,
) -> None:
    world = World("a key", identity={"name": secret, "key": "credentials"})
    world.secrets.values[secret, "credentials"] = "the provisioner's key"
    with pytest.raises(
        PermissionDenied, match="is the credential by which clusters are created"
    ):
        await world.pool.at(world.connection)
    assert (world.google.asked, world.google.made) == ([], [])


def spec_with(identity: dict[str, str] | None) -> ClusterState:
    existing: dict[str, Any] = {"secretRef": {"name": "kube"}} | (
        {"identitySecretRef": identity} if identity else {}
    )
    state = ClusterState()
    state.spec = {"cluster": {"source": "Existing", "existing": existing}}
    return state


WRITTEN: list[tuple[dict[str, str] | None, Identity | None]] = [
    (None, None),
    ({"name": "it"}, Identity(name="it", key="private_key", type=GOOGLE)),
    ({"name": "it", "key": "k", "type": AWS}, Identity(name="it", key="k", type=AWS)),
    ({"name": "it", "type": "NebiusServiceAccountCredentials"}, None),
]


@pytest.mark.parametrize(
    ("written", "identity"), WRITTEN, ids=["none", "defaults", "aws", "nebius"]
)
def test_the_connection_has_the_identity_of_the_spec(
    written: dict[str, str] | None, identity: Identity | None
) -> None:
    found = connection_of("prod", spec_with(written))
    assert found is not None
    assert (found.identity, found.name, found.key) == (identity, "kube", "kubeconfig")
