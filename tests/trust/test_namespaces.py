"""Tenants cannot use foreign namespaces of a cluster, on a real API server.

Namespaces that Modelplane creates enforce Pod Security.
"""

import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient, CoreV1Api
from kubernetes.client.exceptions import ApiException

from activities.caches.activities import CacheActivities
from activities.cluster_objects.cluster_api import Json, ObjectId, Selection
from activities.cluster_objects.kinds import DEPLOYMENT, NAMESPACE, VOLUME_CLAIM
from activities.cluster_objects.namespaces import NOT_ALLOWED
from activities.cluster_objects.pod_security import NOT_ADMITTED
from activities.render.inputs.settings import RenderSettings
from api_types import labels, names
from api_types.errors import PermissionDenied
from api_types.messages.caches import ApplyCache
from api_types.messages.cluster_work import ApplyReplica
from testbed.running import ClusterRunning, Running
from tests.activities.environment.cluster_under_test import ClusterUnderTest
from tests.activities.render.builders import an_engine
from tests.activities.render.topologies import PRIVILEGED

pytestmark = pytest.mark.testbed("shared")

GOLDEN = sorted(
    path for path in Path("tests/golden").glob("*.yaml") if path.stem != PRIVILEGED
)
FORBIDDEN = 403


async def a_namespace(cluster: ClusterUnderTest, **annotations: str) -> str:
    """Create a namespace with another owner on the cluster."""
    name = f"argocd-{secrets.token_hex(4)}"
    metadata = {
        "name": name,
        "annotations": annotations,
        "labels": {"team": "platform"},
    }
    assert await (await cluster.api()).create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )
    return name


async def namespace(cluster: ClusterUnderTest, name: str) -> Json:
    found = await (await cluster.api()).get(ObjectId(NAMESPACE, "", name))
    assert found
    metadata: Json = found["metadata"]
    return metadata


async def annotate(
    cluster: ClusterUnderTest, name: str, **annotations: str | None
) -> None:
    """Set or remove annotations, as the error message recommends."""
    found = await (await cluster.api()).get(ObjectId(NAMESPACE, "", name))
    assert found
    kept = {**(found["metadata"].get("annotations") or {}), **annotations}
    found["metadata"]["annotations"] = {
        key: value for key, value in kept.items() if value is not None
    }
    assert await (await cluster.api()).replace(found)


def a_cache(cluster: ClusterUnderTest, name: str) -> ApplyCache:
    return ApplyCache(
        connection=cluster.connection,
        cluster=cluster.name,
        namespace=name,
        name="qwen",
        uid=f"uid-{name}",
        generation=1,
        spec={
            "source": "HuggingFace",
            "huggingFace": {"repo": "acme/tiny", "sizeGiB": 20},
        },
        storage_class_name="testbed-rwx",
        hydrate=False,
    )


async def apply_cache(
    cluster: ClusterUnderTest, order: ApplyCache, settings: RenderSettings | None = None
) -> None:
    activities = CacheActivities(
        cluster.pool, cluster.store, settings or RenderSettings()
    )
    await cluster.environment_of(
        names.workflow_id("ModelCache", order.namespace, order.name)
    ).run(activities.apply_cache, order)


async def test_a_foreign_namespace_is_not_used_until_a_cluster_administrator_allows_it(
    cluster: ClusterUnderTest,
) -> None:
    name = await a_namespace(cluster)
    before = await namespace(cluster, name)
    order, cache = cluster.order([an_engine()], namespace=name), a_cache(cluster, name)
    for attempt in (
        partial(cluster.apply, order),
        partial(apply_cache, cluster, cache),
    ):
        with pytest.raises(
            PermissionDenied,
            match=f"kubectl annotate namespace {name} modelplane.ai/allow-workloads=true",
        ) as refused:
            await attempt()
        assert refused.value.details == (NOT_ALLOWED,)
    api = await cluster.api()
    for kind in (DEPLOYMENT, VOLUME_CLAIM):
        assert (await api.list(Selection(kind, name))).items == []
    assert await namespace(cluster, name) == before

    await annotate(cluster, name, **{labels.ALLOW_WORKLOADS: "true"})
    applied = await cluster.apply(order)
    await apply_cache(cluster, cache)
    # The labels belong to the cluster's administrators and stay unchanged.
    assert (await namespace(cluster, name))["labels"] == before["labels"]

    # A new template may name other Secrets of the namespace, so permission is checked
    # again although all objects exist.
    await annotate(cluster, name, **{labels.ALLOW_WORKLOADS: None})
    with pytest.raises(PermissionDenied, match="kubectl annotate"):
        await cluster.apply(order.model_copy(update={"inventory": applied.inventory}))
    # Deletion needs no permission.
    assert await cluster.tear_down(order, applied) == []


@pytest.mark.parametrize("value", ["false", "", "True"])
async def test_only_the_annotation_value_true_allows_a_foreign_namespace(
    cluster: ClusterUnderTest, value: str
) -> None:
    name = await a_namespace(cluster, **{labels.ALLOW_WORKLOADS: value})
    with pytest.raises(PermissionDenied, match="kubectl annotate"):
        await cluster.apply(cluster.order([an_engine()], namespace=name))


async def test_a_namespace_that_an_earlier_version_created_is_used(
    cluster: ClusterUnderTest,
) -> None:
    name = await a_namespace(cluster, **{labels.CREATED_FOR: "ModelReplica ml/qwen"})
    assert (await cluster.apply(cluster.order([an_engine()], namespace=name))).inventory


async def test_the_namespace_default_is_used(cluster: ClusterUnderTest) -> None:
    order = cluster.order([an_engine()], namespace="default")
    applied = await cluster.apply(order)
    assert applied.workload_namespace == "default"
    assert await cluster.tear_down(order, applied) == []


async def test_a_namespace_that_the_operator_chose_for_all_is_used(
    cluster: ClusterUnderTest,
) -> None:
    name = await a_namespace(cluster)
    settings = RenderSettings(workload_namespace=name)
    cluster.namespaces.add(name)
    order: ApplyReplica = cluster.order([an_engine()])
    applied = await cluster.apply(order, settings)
    await apply_cache(cluster, a_cache(cluster, order.namespace), settings)
    assert applied.workload_namespace == name


@pytest.mark.parametrize("name", ["kube-system", "modelplane-system"])
async def test_a_platform_namespace_is_not_used_even_with_the_annotation(
    cluster: ClusterUnderTest, name: str
) -> None:
    order = cluster.order([an_engine()], namespace=name)
    cluster.namespaces.discard(name)
    with pytest.raises(
        PermissionDenied, match=f"namespace {name} belongs to the platform"
    ):
        await cluster.apply(order)


# Pod Security


async def test_a_created_namespace_enforces_pod_security(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    await cluster.apply(order)
    found = (await namespace(cluster, order.namespace))["labels"]
    assert {
        key: value for key, value in found.items() if key.startswith("pod-security")
    } == labels.POD_SECURITY


def pods(document: Any) -> Iterator[Json]:
    """Yield every pod template of a document."""
    if isinstance(document, dict):
        if "containers" in (
            document.get("spec") or {} if isinstance(document.get("spec"), dict) else {}
        ):
            yield {"metadata": document.get("metadata") or {}, "spec": document["spec"]}
        for value in document.values():
            yield from pods(value)
    elif isinstance(document, list):
        for value in document:
            yield from pods(value)


def refusal(api: CoreV1Api, name: str, pod: Json) -> str:
    """Return the API server's reason to reject a pod, or an empty text.

    The request is a dry run.
    """
    metadata = {
        "name": "p",
        "labels": pod["metadata"].get("labels"),
        "annotations": pod["metadata"].get("annotations"),
    }
    # The pod's own service account does not exist in this namespace.
    spec = {**pod["spec"], "serviceAccountName": "default"}
    try:
        api.create_namespaced_pod(
            name, {"metadata": metadata, "spec": spec}, dry_run="All"
        )
    except ApiException as error:
        return str(error.body)
    return ""


async def test_capabilities_beyond_pod_security_wait_until_a_cluster_administrator_allows_them(
    cluster: ClusterUnderTest,
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
) -> None:
    """An engine that pins memory for RDMA needs the permission of an administrator.

    The `baseline` level forbids IPC_LOCK, and other users may create pods in the
    namespace too.
    """
    policy = {"capabilities": ["IPC_LOCK"], "seccomp": {"type": "Unconfined"}}
    order = cluster.order([an_engine()])
    order = order.model_copy(
        update={
            "facts": order.facts.model_copy(update={"pod_policies": {"h100": policy}})
        }
    )
    next_step = (
        f"kubectl label --overwrite namespace {order.namespace}"
        " pod-security.kubernetes.io/enforce=privileged"
    )
    with pytest.raises(PermissionDenied, match=next_step) as refused:
        await cluster.apply(order)
    assert "(seccomp Unconfined, capability IPC_LOCK)" in str(refused.value)
    assert refused.value.details == (NOT_ADMITTED,)
    api, core = await cluster.api(), CoreV1Api(kube(testbed.clusters[cluster.name]))
    assert (await api.list(Selection(DEPLOYMENT, order.namespace))).items == []

    found = await api.get(ObjectId(NAMESPACE, "", order.namespace))
    assert found
    found["metadata"]["labels"][labels.POD_SECURITY_ENFORCE] = "privileged"
    assert await api.replace(found)
    await cluster.apply(order)
    (deployment,) = (await api.list(Selection(DEPLOYMENT, order.namespace))).items
    (pod,) = pods(deployment)
    assert pod["spec"]["containers"][0]["securityContext"]["capabilities"] == {
        "add": ["IPC_LOCK"]
    }
    assert refusal(core, order.namespace, pod) == ""
    assert (await namespace(cluster, order.namespace))["labels"][
        labels.POD_SECURITY_ENFORCE
    ] == "privileged"


async def test_pod_security_admits_every_rendered_pod(
    cluster: ClusterUnderTest,
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
) -> None:
    order = cluster.order([an_engine()])
    await cluster.apply(order)
    api = CoreV1Api(kube(testbed.clusters[cluster.name]))
    rendered = [
        (path.name, pod)
        for path in GOLDEN
        for pod in pods(list(yaml.safe_load_all(path.read_text())))
    ]
    assert len({name for name, _ in rendered}) == len(GOLDEN)
    assert {
        name: reason
        for name, pod in rendered
        if (reason := refusal(api, order.namespace, pod))
    } == {}
    _, pod = rendered[0]
    spoilt = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}
    assert "violates PodSecurity" in refusal(api, order.namespace, spoilt)
