"""The roles in rbac.yaml are sufficient and necessary for worker and CLI.

On a real API server, each can do all its work with its role, and not without any single
right.
"""

import base64
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.session import Session
from activities.clients.secrets import cluster as cluster_store
from activities.cluster_objects.cluster_api import GroupVersionKind, Json, ObjectId
from activities.secrets.selection import secret_store
from activities.secrets.store import SecretReader, StoredSecret
from api_types.errors import PermissionDenied
from api_types.resources.secrets import ConfigMap, Secret
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from client.manifests.secrets import delete_secrets, store_secrets
from fleet_client.errors import CommandFailed
from testbed.running import Running
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
    eventually,
)

pytestmark = pytest.mark.testbed("shared")

FILE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "rbac.yaml"
DOCUMENTS: list[Json] = list(yaml.safe_load_all(FILE.read_text()))
ROLES: dict[str, list[Json]] = {
    item["metadata"]["name"]: item["rules"]
    for item in DOCUMENTS
    if item["kind"] == "ClusterRole"
}
RBAC = "rbac.authorization.k8s.io/v1"
SETTINGS = Settings(secrets=SecretSettings(store="controlCluster"))
WORKER, WRITER, NAMESPACES = (
    "modelplane-secrets",
    "modelplane-secrets-writer",
    "modelplane-namespaces",
)

# An informer of the API server passes a changed role to its authorizer.
SETTLING_SECONDS = 120.0


@dataclass
class Rights:
    """Copies of roles on a cluster, under names of this test, with their bindings."""

    cluster: ClusterUnderTest
    suffix: str
    made: list[ObjectId]

    async def put(self, role: str, rules: list[Json]) -> None:
        await self._apply(
            {
                "apiVersion": RBAC,
                "kind": "ClusterRole",
                "metadata": {"name": f"{role}-{self.suffix}"},
                "rules": rules,
            }
        )

    async def bind(self, role: str, account: str, namespace: str = "") -> None:
        """Bind a role to an account, in one namespace or in all."""
        metadata = {
            "name": f"{role}-{self.suffix}",
            **({"namespace": namespace} if namespace else {}),
        }
        await self._apply(
            {
                "apiVersion": RBAC,
                "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
                "metadata": metadata,
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": f"{role}-{self.suffix}",
                },
                "subjects": [
                    {
                        "kind": "ServiceAccount",
                        "name": account,
                        "namespace": self.namespace,
                    }
                ],
            }
        )

    @property
    def namespace(self) -> str:
        return f"rights-{self.suffix}"

    async def _apply(self, manifest: Json) -> None:
        self.made.append(ObjectId.of(await (await self.cluster.api()).apply(manifest)))


@pytest_asyncio.fixture(autouse=True)
async def connections(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Close the stores that a test opened; a program keeps them open until it ends."""
    opened: list[KubernetesCluster] = []

    def connected(session: Session) -> KubernetesCluster:
        opened.append(KubernetesCluster(session))
        return opened[-1]

    monkeypatch.setattr(cluster_store, "KubernetesCluster", connected)
    yield
    for each in opened:
        await each.close()


@pytest_asyncio.fixture
async def rights(testbed: Running, tmp_path: Path) -> AsyncIterator[Rights]:
    cluster = await cluster_from(
        "prod-eu",
        testbed.clusters["prod-eu"].kubeconfig.read_text(),
        tmp_path / "secrets",
    )
    made = Rights(cluster, secrets.token_hex(4), [])
    api = await cluster.api()
    await api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.namespace}}
    )
    for role, rules in ROLES.items():
        await made.put(role, rules)
    yield made
    for target in [
        *reversed(made.made),
        ObjectId(GroupVersionKind("v1", "Namespace"), "", made.namespace),
    ]:
        await api.delete(target, propagation="Background")
    await cluster.pool.close()


def fewer(role: str) -> list[Any]:
    """Yield the rules of a role with one verb on one resource removed, for each of
    them.
    """
    rights = [
        (rule["apiGroups"], name, verb)
        for rule in ROLES[role]
        for name in rule["resources"]
        for verb in rule["verbs"]
    ]
    return [
        pytest.param(
            role,
            [
                {"apiGroups": groups, "resources": [name], "verbs": [verb]}
                for groups, name, verb in rights
                if (groups, name, verb) != left_out
            ],
            id=" ".join(left_out[:0:-1]),
        )
        for left_out in rights
    ]


# Operations


async def read_all(rights: Rights) -> None:
    """Call everything that activities may call, with a Secret and a ConfigMap."""
    store: SecretReader = secret_store(SETTINGS)
    calls = {"get": ("token",), "read": (), "describe": ()}
    assert set(calls) == {
        name for name in vars(SecretReader) if not name.startswith("_")
    }, "this calls all that a reader can do"
    for name in ("hub", "flags"):
        for method, arguments in calls.items():
            assert await getattr(store, method)(rights.namespace, name, *arguments)


async def write_all(namespace: str) -> None:
    """Run `modelplane apply -f` and `modelplane delete -f` with a Secret and a
    ConfigMap.
    """
    metadata = {"namespace": namespace}
    manifests = [
        Secret.model_validate(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {**metadata, "name": "key"},
                "stringData": {"a": "b"},
            }
        ),
        ConfigMap.model_validate(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**metadata, "name": "map"},
                "data": {"a": "b"},
            }
        ),
    ]
    await store_secrets(manifests, SETTINGS)
    for failure in await delete_secrets(SETTINGS, manifests, ignore_not_found=False):
        raise failure


async def works(run: Callable[[], Awaitable[None]]) -> bool:
    try:
        await run()
    except PermissionDenied:
        return False
    except CommandFailed as error:
        if "(403)" not in error.message:
            raise
        return False
    return True


async def fails(run: Callable[[], Awaitable[None]]) -> bool:
    return not await works(run)


# Worker


@pytest_asyncio.fixture
async def worker(
    rights: Rights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Awaitable[None]]:
    """The operations of a worker, run with the ServiceAccount of its pod."""
    administrators = cluster_store.SecretCluster(rights.cluster.api)
    await administrators.put(StoredSecret(rights.namespace, "hub", {"token": b"1"}))
    await administrators.put(
        StoredSecret(rights.namespace, "flags", {"token": b"1"}, kind="ConfigMap")
    )
    (tmp_path / "token").write_text(
        await operator.token_of(rights.cluster, rights.namespace, "worker")
    )
    access = operator.kubeconfig_of(
        (
            await rights.cluster.store.get(
                "modelplane-system", "prod-eu-kubeconfig", "kubeconfig"
            )
        ).decode()
    )
    (tmp_path / "ca.crt").write_bytes(
        base64.b64decode(access["clusters"][0]["cluster"]["certificate-authority-data"])
    )
    host, _, port = (
        access["clusters"][0]["cluster"]["server"]
        .removeprefix("https://")
        .partition(":")
    )
    monkeypatch.setattr(cluster_store, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    await rights.bind(WORKER, "worker", rights.namespace)
    run = partial(read_all, rights)
    assert await eventually(partial(works, run), SETTLING_SECONDS), (
        "all rights together are enough"
    )
    return run


@pytest.mark.parametrize(("role", "rules"), fewer(WORKER))
async def test_a_worker_uses_every_right_that_it_has(
    role: str, rules: list[Json], rights: Rights, worker: Callable[[], Awaitable[None]]
) -> None:
    await rights.put(role, rules)
    assert await eventually(partial(fails, worker), SETTLING_SECONDS)


@pytest.mark.usefixtures("worker")
async def test_a_worker_can_neither_write_nor_list(rights: Rights) -> None:
    store = secret_store(SETTINGS)
    for refused in (
        store.put(StoredSecret(rights.namespace, "mine", {"a": b"b"})),
        store.delete("Secret", rights.namespace, "hub"),
        store.list(rights.namespace),
        store.read("kube-system", "hub"),
    ):
        with pytest.raises(PermissionDenied):
            await refused


def test_a_worker_has_no_other_role_and_none_in_all_namespaces() -> None:
    bound = {
        item["kind"]: item["roleRef"]["name"]
        for item in DOCUMENTS
        if item["kind"].endswith("Binding")
    }
    assert bound == {"RoleBinding": WORKER}


# Command line


@pytest_asyncio.fixture
async def person(
    rights: Rights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A user with a kubeconfig and no rights."""
    token = await operator.token_of(rights.cluster, rights.namespace, "person")
    kubeconfig = (
        await rights.cluster.store.get(
            "modelplane-system", "prod-eu-kubeconfig", "kubeconfig"
        )
    ).decode()
    (tmp_path / "kubeconfig").write_text(operator.with_token(kubeconfig, token))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return "person"


@pytest.mark.parametrize(("role", "rules"), fewer(WRITER))
async def test_applying_and_deleting_uses_every_right_of_a_writer(
    role: str, rules: list[Json], rights: Rights, person: str
) -> None:
    await rights.bind(WRITER, person, rights.namespace)
    run = partial(write_all, rights.namespace)
    assert await eventually(partial(works, run), SETTLING_SECONDS), (
        "all rights together are enough"
    )
    await rights.put(role, rules)
    assert await eventually(partial(fails, run), SETTLING_SECONDS)


@pytest.mark.parametrize(("role", "rules"), fewer(NAMESPACES))
async def test_the_first_secret_of_a_namespace_creates_it(
    role: str, rules: list[Json], rights: Rights, person: str
) -> None:
    created: list[str] = []

    async def in_a_new_namespace() -> None:
        created.append(f"{rights.namespace}-{len(created)}")
        await write_all(created[-1])

    await rights.bind(WRITER, person)
    await rights.bind(NAMESPACES, person)
    assert await eventually(partial(works, in_a_new_namespace), SETTLING_SECONDS), (
        "all rights together are enough"
    )
    await rights.put(role, rules)
    assert await eventually(partial(fails, in_a_new_namespace), SETTLING_SECONDS)
    rights.made += [
        ObjectId(GroupVersionKind("v1", "Namespace"), "", name) for name in created
    ]


def test_every_role_of_the_file_is_tested_here() -> None:
    assert set(ROLES) == {WORKER, WRITER, NAMESPACES}
