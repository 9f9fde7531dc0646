"""Changes by a user with kubectl to a cluster or the secret store.

Activities never make such changes.
"""

import json
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.discovery import path
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
)
from activities.routing.envoy_routes import PARTS
from activities.secrets.store import StoredSecret
from api_types.names import tenant_queue
from testbed.cluster.webhooks import custom_resources
from testbed.programs.install import Installer
from tests.activities.environment.cluster_under_test import ClusterUnderTest, eventually

_DEFINITION = GroupVersionKind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


async def patch(
    cluster: ClusterUnderTest, target: ObjectId, change: Json, subresource: str = ""
) -> None:
    """Change an object, or its `subresource`, under another manager's name."""
    api = await _raw(cluster)
    resource = (await api.resources())[target.kind]
    below = f"/{subresource}" if subresource else ""
    where = f"{path(resource, target.namespace, target.name)}{below}?fieldManager=kubectl-edit"
    answer = await api._session.request(
        "PATCH", where, body=change, content_type="application/merge-patch+json"
    )
    assert answer.status == 200, answer.body


async def make(cluster: ClusterUnderTest, manifest: Json) -> ObjectId:
    """Create an object with its status, like the controller of its kind."""
    target = ObjectId.of(manifest)
    assert await (await cluster.api()).create(manifest), f"{target} is there already"
    if "status" in manifest:
        await patch(cluster, target, {"status": manifest["status"]}, "status")
    return target


async def bind(cluster: ClusterUnderTest, pod: Json, node: str) -> None:
    """Put a pod on a node like a scheduler."""
    api = await _raw(cluster)
    target = ObjectId.of(pod)
    where = f"{path((await api.resources())[target.kind], target.namespace, target.name)}/binding"
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": target.name},
        "target": {"kind": "Node", "name": node},
    }
    answer = await api._session.request("POST", where, body=body)
    assert answer.status == 201, answer.body


async def delete(cluster: ClusterUnderTest, target: ObjectId) -> None:
    """Delete an object."""
    assert await (await cluster.api()).delete(target, propagation="Background")


async def token_of(cluster: ClusterUnderTest, namespace: str, account: str) -> str:
    """Create a ServiceAccount and return a token for it."""
    api = await _raw(cluster)
    await api.create(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace},
        }
    )
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {},
    }
    answer = await api._session.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
        body=request,
    )
    token: str = json.loads(answer.body)["status"]["token"]
    return token


@asynccontextmanager
async def pod_monitors(cluster: ClusterUnderTest) -> AsyncIterator[None]:
    """Let the cluster serve PodMonitors during the context."""
    async with _serving(
        cluster, GroupVersionKind("monitoring.coreos.com/v1", "PodMonitor")
    ):
        yield


@asynccontextmanager
async def envoy_kinds(cluster: ClusterUnderTest) -> AsyncIterator[None]:
    """Let the cluster serve the kinds to which routes for Envoy refer, without schemas."""
    async with AsyncExitStack() as served:
        for kind in PARTS:
            await served.enter_async_context(_serving(cluster, kind))
        yield


@asynccontextmanager
async def local_queues(cluster: ClusterUnderTest, tenant: str) -> AsyncIterator[None]:
    """Let the cluster serve Kueue's queues during the context, with one for a tenant."""
    kind = GroupVersionKind("kueue.x-k8s.io/v1beta1", "LocalQueue")
    async with _serving(cluster, kind):
        metadata = {"name": tenant_queue(tenant), "namespace": tenant}
        await (await cluster.api()).create(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": metadata,
                "spec": {},
            }
        )
        yield


@asynccontextmanager
async def definitions(
    cluster: ClusterUnderTest, name: str, version: str
) -> AsyncIterator[None]:
    """Let the cluster serve the kinds of an add-on during the context.

    The definitions are the project's own, in this version alone. Between versions a
    webhook of the project would have to translate.
    """
    async with AsyncExitStack() as served:
        for definition in custom_resources(Installer().definitions(name)):
            wanted = [
                each
                for each in definition["spec"]["versions"]
                if each["name"] == version
            ]
            if wanted:
                wanted[0] |= {"served": True, "storage": True}
                spec = {**definition["spec"], "versions": wanted}
                await served.enter_async_context(
                    _defining(
                        cluster, {"metadata": definition["metadata"], "spec": spec}
                    )
                )
        yield


@asynccontextmanager
async def middlewares(
    cluster: ClusterUnderTest, *, without: Collection[str] = ()
) -> AsyncIterator[None]:
    """Let the cluster serve Traefik's Middlewares during the context.

    The definitions of an older Traefik lack some fields of retries.
    """
    (definition,) = [
        each
        for each in custom_resources(Installer().definitions("traefik"))
        if each["spec"]["names"]["kind"] == "Middleware"
    ]
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for field in without:
        del schema["properties"]["spec"]["properties"]["retry"]["properties"][field]
    metadata = {"name": definition["metadata"]["name"]}
    async with _defining(cluster, {"metadata": metadata, "spec": definition["spec"]}):
        yield


@asynccontextmanager
async def _serving(
    cluster: ClusterUnderTest, kind: GroupVersionKind
) -> AsyncIterator[None]:
    """Let the cluster serve one more namespaced kind during the context."""
    singular = kind.kind.lower()
    names = {
        "plural": f"{singular}s",
        "singular": singular,
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.api_version.rpartition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    name = f"{names['plural']}.{kind.group}"
    spec = {
        "group": kind.group,
        "scope": "Namespaced",
        "names": names,
        "versions": [version],
    }
    async with _defining(cluster, {"metadata": {"name": name}, "spec": spec}):
        yield


@asynccontextmanager
async def _defining(cluster: ClusterUnderTest, definition: Json) -> AsyncIterator[None]:
    """Create a CustomResourceDefinition for the context, and delete it afterwards."""
    api = await cluster.api()
    spec = definition["spec"]
    kind = GroupVersionKind(
        f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["kind"]
    )
    target = ObjectId(_DEFINITION, "", definition["metadata"]["name"])
    await eventually(
        partial(
            _create,
            api,
            {
                "apiVersion": _DEFINITION.api_version,
                "kind": _DEFINITION.kind,
                **definition,
            },
        )
    )

    async def served() -> bool:
        return kind in await api.resources(refresh=True)

    async def forgotten() -> bool:
        return not await served()

    try:
        await eventually(served)
        yield
    finally:
        await api.delete(target, propagation="Background")
        # The next client would rely on a kind that discovery still lists.
        await eventually(forgotten)


async def _create(api: ClusterApi, manifest: Json) -> bool:
    """Create an object. Returns False while one of that name is still being deleted."""
    return await api.create(manifest) is not None


def kubeconfig_of(text: str) -> dict[str, Any]:
    """Return a kubeconfig as a tree."""
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(StringIO(text))
    return found


def server_of(kubeconfig: str) -> str:
    """Return the server of a kubeconfig."""
    found: str = kubeconfig_of(kubeconfig)["clusters"][0]["cluster"]["server"]
    return found


def without_user(kubeconfig: str) -> str:
    """Return a kubeconfig with a token that was never issued."""
    tree = kubeconfig_of(kubeconfig)
    tree["users"][0]["user"] = {"token": "never-issued-token"}
    return json.dumps(tree)


def with_token(kubeconfig: str, token: str) -> str:
    """Return a kubeconfig for another user."""
    tree = kubeconfig_of(kubeconfig)
    tree["users"][0]["user"] = {"token": token}
    return json.dumps(tree)


async def replace_kubeconfig(cluster: ClusterUnderTest, kubeconfig: str) -> None:
    """Replace the kubeconfig in use."""
    connection = cluster.connection
    await cluster.store.put(
        StoredSecret(
            connection.namespace, connection.name, {connection.key: kubeconfig.encode()}
        )
    )


async def _raw(cluster: ClusterUnderTest) -> KubernetesCluster:
    api = await cluster.api()
    assert isinstance(api, KubernetesCluster)
    return api


async def make_admin(cluster: ClusterUnderTest, namespace: str, account: str) -> None:
    """Bind a ServiceAccount to cluster-admin."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{namespace}-{account}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [
            {"kind": "ServiceAccount", "namespace": namespace, "name": account}
        ],
    }
    await (await cluster.api()).create(binding)
