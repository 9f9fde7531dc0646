"""What a person with kubectl does to a cluster or to the secret store, which activities never do."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from activities.clients.discovery import path
from activities.clients.kubernetes import KubernetesCluster
from activities.cluster_api import Json, Kind, ObjectId
from activities.secrets import StoredSecret
from api_types.names import tenant_queue
from tests.activities.worlds import World, eventually

_DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


async def patch(world: World, target: ObjectId, change: Json) -> None:
    """Change an object under another manager's name."""
    api = await _raw(world)
    resource = (await api.resources())[target.kind]
    where = f"{path(resource, target.namespace, target.name)}?fieldManager=a-person"
    answer = await api._session.request("PATCH", where, body=change, content_type="application/merge-patch+json")
    assert answer.status == 200, answer.body


async def delete(world: World, target: ObjectId) -> None:
    """Delete an object."""
    assert await (await world.api()).delete(target, propagation="Background")


async def token_of(world: World, namespace: str, account: str) -> str:
    """Make a ServiceAccount and give a token for it."""
    api = await _raw(world)
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await api._session.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body=request)
    token: str = json.loads(answer.body)["status"]["token"]
    return token


@asynccontextmanager
async def pod_monitors(world: World) -> AsyncIterator[None]:
    """Let the cluster serve PodMonitors for a while."""
    async with _serving(world, Kind("monitoring.coreos.com/v1", "PodMonitor")):
        yield


@asynccontextmanager
async def local_queues(world: World, tenant: str) -> AsyncIterator[None]:
    """Let the cluster serve Kueue's queues for a while, with one for a tenant."""
    kind = Kind("kueue.x-k8s.io/v1beta1", "LocalQueue")
    async with _serving(world, kind):
        metadata = {"name": tenant_queue(tenant), "namespace": tenant}
        await (await world.api()).create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {}})
        yield


@asynccontextmanager
async def _serving(world: World, kind: Kind) -> AsyncIterator[None]:
    """Let the cluster serve one more namespaced kind for a while."""
    api = await world.api()
    singular = kind.kind.lower()
    names = {"plural": f"{singular}s", "singular": singular, "kind": kind.kind, "listKind": f"{kind.kind}List"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.api_version.rpartition("/")[2], "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    name = f"{names['plural']}.{kind.group}"
    spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
    await api.create({"apiVersion": _DEFINITION.api_version, "kind": _DEFINITION.kind, "metadata": {"name": name}, "spec": spec})

    async def served() -> bool:
        return kind in await api.resources(refresh=True)

    try:
        await eventually(served)
        yield
    finally:
        await api.delete(ObjectId(_DEFINITION, "", name), propagation="Background")


def kubeconfig_of(text: str) -> dict[str, Any]:
    """Read a kubeconfig as a tree."""
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(StringIO(text))
    return found


def server_of(kubeconfig: str) -> str:
    """Give the server of a kubeconfig."""
    found: str = kubeconfig_of(kubeconfig)["clusters"][0]["cluster"]["server"]
    return found


def without_user(kubeconfig: str) -> str:
    """Give a kubeconfig whose token nobody has issued."""
    tree = kubeconfig_of(kubeconfig)
    tree["users"][0]["user"] = {"token": "nobody-issued-this-token"}
    return json.dumps(tree)


def with_token(kubeconfig: str, token: str) -> str:
    """Give a kubeconfig for another user."""
    tree = kubeconfig_of(kubeconfig)
    tree["users"][0]["user"] = {"token": token}
    return json.dumps(tree)


async def replace_kubeconfig(world: World, kubeconfig: str) -> None:
    """Put another kubeconfig in the place of the one in use."""
    connection = world.connection
    await world.store.put(StoredSecret(connection.namespace, connection.name, {connection.key: kubeconfig.encode()}))


async def _raw(world: World) -> KubernetesCluster:
    api = await world.api()
    assert isinstance(api, KubernetesCluster)
    return api


async def make_admin(world: World, namespace: str, account: str) -> None:
    """Bind a ServiceAccount to cluster-admin."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{namespace}-{account}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    }
    await (await world.api()).create(binding)
