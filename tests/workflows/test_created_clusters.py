"""From a manifest to a cluster at a cloud, to a Ready replica there, and back to an empty account.

All parts but the clouds are real.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from api_types import labels
from api_types.messages.entities import RetryNow
from fakes.aws.faults import VpcLeftover
from testbed.cluster.control_plane import TOKEN_SECONDS
from tests.environment.stopped_parts import stopped
from tests.environment.summary import Summary
from tests.workflows.environment.created_clusters import (
    BALANCER,
    BARE,
    EKS,
    GKE,
    STORAGE_CLASSES,
    CreatedClusters,
    a_cluster,
    created_clusters,
    until_gone,
)
from tests.workflows.environment.harness import Json, a_deployment, message

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long, pytest.mark.timeout(900)]
NAMESPACE = "tenant"
_CONTROL_PLANE = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "lws",
)


@pytest.fixture(scope="module")
async def world(
    tmp_path_factory: pytest.TempPathFactory,
    kube: Callable[[Any], Any],
    pytestconfig: pytest.Config,
) -> AsyncIterator[CreatedClusters]:
    async with created_clusters(
        tmp_path_factory.mktemp("created"), kube, Summary.of(pytestconfig)
    ) as world:
        yield world


def a_deployment_there(cluster: str) -> Json:
    """Return a deployment that may run only on one cluster."""
    return a_deployment(
        "qwen", NAMESPACE, clusterSelector={"matchLabels": {"tier": cluster}}
    )


@pytest.mark.parametrize("cluster", [GKE, EKS], ids=["1 62 79 GKE", "62 79 EKS"])
async def test_a_manifest_becomes_a_cluster_with_a_ready_replica_and_then_nothing(
    world: CreatedClusters, cluster: str
) -> None:
    plane = world.plane
    await world.create(cluster)
    await world.ready(cluster)
    assert plane.get(
        cluster, f"{STORAGE_CLASSES}/modelplane-rwx{'-efs' if cluster == EKS else ''}"
    )

    await plane.apply(a_deployment_there(cluster))
    seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE)
    assert [
        (each["cluster"], each["ready"]) for each in seen["status"]["placements"]
    ] == [(cluster, True)]
    assert [pod["status"]["phase"] for pod in plane.pods(cluster, NAMESPACE)] == [
        "Running"
    ]
    await plane.delete("ModelDeployment", "qwen", NAMESPACE)
    await plane.gone("ModelDeployment", "qwen", NAMESPACE)

    world.add_load_balancer(cluster)
    before = len(world.writes_of_deletion(cluster))
    await plane.delete("InferenceCluster", cluster)
    await world.until_deletion_says(cluster, "Service default/web")
    assert "deletionTimestamp" not in plane.get(cluster, BALANCER)["metadata"], (
        "it is its user's"
    )
    assert world.writes_of_deletion(cluster)[before:] == [], (
        "a load balancer still holds the network"
    )
    assert await world.secrets_seen() == []
    world.remove_load_balancer(cluster)
    await until_gone(world, cluster)
    assert world.remains(cluster) == []
    assert_order_of_deletion(cluster, world.writes_of_deletion(cluster)[before:])
    assert await world.secrets_seen() == []


POOLS, CONTROL_PLANE = (
    {EKS: "DeleteNodegroup "},
    {GKE: "/clusters/", EKS: "DeleteCluster "},
)
BENEATH = {
    GKE: ("networks/", "serviceAccounts/"),
    EKS: (
        *(
            "DeleteMountTarget ",
            "DeleteFileSystem ",
            "DeleteRouteTable ",
            "DeleteNatGateway ",
            "ReleaseAddress ",
            "DeleteInternetGateway ",
        ),
        *("DeleteSubnet ", "DeleteVpc ", "DeleteRole "),
    ),
}


def assert_order_of_deletion(cluster: str, done: list[str]) -> None:
    """Check the order of deletions.

    Pools, then the control plane, and only then its network, roles and storage.
    """

    def at(word: str) -> list[int]:
        found = [number for number, each in enumerate(done) if word in each]
        assert found, f"{word} in {done}"
        return found

    (gone,) = at(CONTROL_PLANE[cluster])
    if cluster in POOLS:
        assert max(at(POOLS[cluster])) < gone
    for word in BENEATH[cluster]:
        assert min(at(word)) > gone, word


@pytest.mark.soak
async def test_an_installed_stack_is_deleted_with_its_load_balancer_before_anything_at_the_cloud(
    world: CreatedClusters,
) -> None:
    plane, google = world.plane, world.google
    await world.create(BARE)
    await world.ready(BARE)
    before = len(world.writes_of_deletion(BARE))
    world.envoy.behaviour.releases_balancers = False
    await plane.delete("InferenceCluster", BARE)
    await world.until_deletion_says(BARE, "Service envoy-gateway-system/")
    assert world.writes_of_deletion(BARE)[before:] == []
    world.envoy.behaviour.releases_balancers = True
    await until_gone(world, BARE)
    assert google.remains() == []
    assert plane.get(BARE, "/api/v1/secrets?labelSelector=owner%3Dhelm")["items"] == []
    assert await world.secrets_seen() == []


@pytest.mark.soak
async def test_gke_is_created_once_by_two_workers_survives_expiring_tokens_and_waits_for_replicas(
    world: CreatedClusters,
) -> None:
    plane, google = world.plane, world.google
    await world.create(GKE)
    await world.until_called(GKE, "container.create_cluster")
    plane.worker.kill()
    plane.worker.start()
    await world.ready(GKE)
    creations = google.ledger().creations()
    assert sorted(set(creations)) == sorted(creations)

    google.expire_tokens()
    # the API server checks the token again only then
    await asyncio.sleep(TOKEN_SECONDS)
    await plane.apply(a_deployment_there(GKE))
    await plane.ready("ModelDeployment", "qwen", NAMESPACE)

    before = len(world.writes_of_deletion(GKE))
    await plane.delete("InferenceCluster", GKE)
    await world.until_deletion_says(GKE, "ModelReplica")
    assert world.writes_of_deletion(GKE)[before:] == []
    (name,) = [
        each
        for each in google.objects()
        if each.rpartition("/")[0].endswith("/clusters")
    ]
    google.plant_leftover(name, "forwarding_rule")
    google.plant_leftover(name, "disk")
    await plane.delete("ModelDeployment", "qwen", NAMESPACE)
    await until_gone(world, GKE)
    assert google.remains() == []
    assert await world.secrets_seen() == []


@pytest.mark.soak
async def test_eks_waits_for_a_credential_revoked_during_deletion_and_leaves_nothing(
    world: CreatedClusters,
) -> None:
    plane, aws = world.plane, world.aws
    await world.create(EKS)
    await world.ready(EKS)
    (name,) = aws.cloud.eks.clusters
    aws.leave(name, VpcLeftover.GROUP)
    await plane.delete("InferenceCluster", EKS)
    await world.until_called(EKS, "DeleteNodegroup")
    aws.revoke()
    await world.until_deletion_says(EKS, "CredentialsInvalid")
    left = aws.remains()
    assert left
    aws.restore()
    await plane.handle("InferenceCluster", EKS).signal(
        "retry_now", RetryNow(request_id="again", by="test").wire()
    )
    await until_gone(world, EKS)
    assert aws.remains() == []
    assert await world.secrets_seen() == []


@pytest.mark.soak
async def test_an_annotation_lets_gke_without_api_server_be_deleted(
    world: CreatedClusters,
) -> None:
    plane, google = world.plane, world.google
    await world.create(GKE)
    await world.ready(GKE)
    world.add_load_balancer(GKE)
    (name,) = [
        each
        for each in google.objects()
        if each.rpartition("/")[0].endswith("/clusters")
    ]
    google.plant_leftover(name, "forwarding_rule")
    before = len(world.writes_of_deletion(GKE))
    async with stopped(
        world.owner, plane.running.home, [f"{GKE}.{part}" for part in _CONTROL_PLANE], 0
    ):
        await plane.delete("InferenceCluster", GKE)
        await world.until_deletion_says(GKE, "no response from")
        assert world.writes_of_deletion(GKE)[before:] == []
        await plane.apply(a_cluster(GKE, **{labels.SKIP_IN_CLUSTER_TEARDOWN: "true"}))
        await until_gone(world, GKE)
    assert google.remains() == []
    assert await world.secrets_seen() == []
    world.remove_load_balancer(GKE)


@pytest.mark.soak
async def test_a_replica_of_an_externally_deleted_gke_cluster_ends_without_its_api_server(
    world: CreatedClusters,
) -> None:
    plane, google = world.plane, world.google
    await world.create(GKE)
    await world.ready(GKE)
    await plane.apply(a_deployment_there(GKE))
    seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE)
    (placed,) = seen["status"]["placements"]
    (name,) = [
        each
        for each in google.objects()
        if each.rpartition("/")[0].endswith("/clusters")
    ]
    async with stopped(
        world.owner, plane.running.home, [f"{GKE}.{part}" for part in _CONTROL_PLANE], 0
    ):
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.until(
            "ModelReplica",
            placed["replica"],
            lambda seen: GKE in message(seen, "Deleting"),
            NAMESPACE,
        )
        google.remove(name)
        # A check whether the cluster can be connected finds that it is gone.
        await plane.handle("InferenceCluster", GKE).signal(
            "retry_now", RetryNow(request_id="look", by="test").wire()
        )
        await plane.until(
            "InferenceCluster",
            GKE,
            lambda seen: "modelplane retry" in message(seen, "ClusterReady"),
        )
        await plane.delete("InferenceCluster", GKE)
        await plane.gone("ModelReplica", placed["replica"], NAMESPACE)
        await plane.gone("ModelDeployment", "qwen", NAMESPACE)
        await until_gone(world, GKE)
    assert google.remains() == []
    assert await world.secrets_seen() == []
    # A cloud would have deleted this API server.
    plane.call(GKE, "DELETE", f"/api/v1/namespaces/{NAMESPACE}")
