"""The refused pools that a plan leaves out, with the pure plan of each cloud."""

from collections.abc import Mapping

import pytest

from activities.clouds.activities import _pool_of
from activities.clouds.desired.plan import Desired
from activities.clouds.provider import plan_of
from api_types.messages.clouds import CloudAccount, Facts
from api_types.resources.inference_cluster import InferenceCluster
from tests.activities.clouds.builders import (
    UID,
    a_cluster,
    a_pool,
    an_eks_pool,
    classes,
)
from tests.environment.scripted_cloud import ScriptedCloud, ScriptedProvider

KNOWN = {"net/vpc": {"id": "vpc-1"}}
PARTS = {
    "GKE": (a_pool, "europe-west4", "us-east1-b"),
    "EKS": (an_eks_pool, "us-east-2", "us-west-2a"),
}


def planned(
    source: str, cluster: InferenceCluster, known: Mapping[str, Facts]
) -> Desired:
    _, region, _ = PARTS[source]
    account = CloudAccount(
        provider="GKE" if source == "GKE" else "EKS",
        cluster="prod",
        cluster_uid=UID,
        secret="a-secret",  # noqa: S106 - the name of a Secret
        region=region,
        installation="acme",
        project="p",
    )
    provider = ScriptedProvider(ScriptedCloud(), region)
    return plan_of(provider, account, cluster, classes(), known)


@pytest.mark.parametrize("source", PARTS)
def test_a_refused_pool_of_an_existing_cluster_does_not_block_the_others(
    source: str,
) -> None:
    pool, _, elsewhere = PARTS[source]
    cluster = a_cluster(
        source, pool("a"), pool("b", zones=[elsewhere]), pool("c", className="absent")
    )
    desired = planned(source, cluster, KNOWN)
    assert [
        each.key
        for each in desired.objects
        if each.key.startswith("pool/") and each.key != "pool/system"
    ] == ["pool/a"]
    assert [(each.reason, each.at) for each in desired.refused] == [
        ("WaitingForClasses", "pool c"),
        ("InvalidInput", "pool b"),
    ]
    assert (
        desired.objects
        == planned(
            source, a_cluster(source, pool("a"), pool("c", className="absent")), KNOWN
        ).objects
    )


@pytest.mark.parametrize("source", PARTS)
def test_a_new_cluster_with_a_refused_pool_has_no_objects(
    source: str,
) -> None:
    pool, _, elsewhere = PARTS[source]
    desired = planned(
        source, a_cluster(source, pool("a"), pool("b", zones=[elsewhere])), {}
    )
    assert (desired.objects, [each.at for each in desired.refused]) == ((), ["pool b"])


def test_a_refusal_of_the_cluster_leaves_no_objects() -> None:
    cluster = a_cluster(
        "GKE", a_pool("a"), a_pool("b", zones=["us-east1-b"]), kubernetesVersion="x"
    )
    desired = planned("GKE", cluster, KNOWN)
    assert desired.objects == ()
    assert "" in [each.at for each in desired.refused]


@pytest.mark.parametrize(
    ("key", "pool"),
    [
        ("pool/gpu", "Gpu"),
        ("lt/gpu", "Gpu"),
        ("pool/other", ""),
        ("sg/gpu", ""),
        ("cluster", ""),
    ],
)
def test_an_object_of_a_pool_names_the_pool_as_its_user_wrote_it(
    key: str, pool: str
) -> None:
    assert _pool_of(key, {"gpu": "Gpu"}) == pool


def test_problems_are_reported_once() -> None:
    cluster = a_cluster("GKE", a_pool("b", zones=["us-east1-b"]))
    desired = planned("GKE", cluster, KNOWN)
    assert [each.at for each in desired.refused] == ["pool b"]
    assert "cluster" in [each.key for each in desired.objects], (
        "the cluster stays without any pool"
    )
