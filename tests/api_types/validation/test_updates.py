"""Permitted and forbidden changes of an existing object."""

from typing import Any

import pytest

from api_types.validation.manifests import (
    InvalidManifest,
    Manifest,
    admit_update,
    load,
    update_warnings,
)
from tests.api_types.builders import (
    CUT,
    a_cache,
    a_cluster,
    a_deployment,
    a_gateway,
    a_pool,
    a_replica,
    accepted,
    an_engine,
    an_envoy_gateway,
    merged,
)


def stored(document: dict[str, Any], **status: Any) -> Manifest:
    """Return a stored manifest with its status."""
    return load({**document, "status": status})


def refusals(old: Manifest, new: dict[str, Any]) -> list[str]:
    """Return the problems of an update."""
    try:
        admit_update(old, accepted(new).manifest)
    except InvalidManifest as error:
        return [f"{one.field}: {one.problem}" for one in error.problems]
    return []


STAGED: dict[str, Any] = {"summary": {"ready": "1/3"}}
UNSTAGED: dict[str, Any] = {"summary": {"ready": "0/3"}}
OTHER = {"repo": "acme/other"}
NEW_CLUSTER = "delete the InferenceCluster and create another"
NEW_CACHE = "create a ModelCache under a new name"

CASES: list[tuple[str, Manifest, dict[str, Any], list[str]]] = [
    (
        "a deployment in every respect",
        stored(a_deployment()),
        a_deployment(an_engine(name="b"), top={"replicas": 9}),
        [],
    ),
    (
        "source of a cluster",
        stored(a_cluster(source="GKE")),
        a_cluster(source="EKS"),
        [f"spec.cluster.source: cannot change from GKE to EKS; {NEW_CLUSTER}"],
    ),
    (
        "versions and addresses of gateways",
        stored(an_envoy_gateway()),
        an_envoy_gateway(
            version="v1.9.0",
            loadBalancer="MetalLB",
            metallb={"addressPool": "10.0.0.0/28"},
        ),
        [],
    ),
    (
        "backend of a gateway",
        stored(a_gateway()),
        an_envoy_gateway(),
        [
            (
                "spec.backend: cannot change from Traefik to Envoy; the routes of one "
                "backend do not work in the other; delete the ModelServices and the "
                "InferenceGateway, and create them again"
            )
        ],
    ),
    (
        "region of a cluster",
        stored(a_cluster(source="GKE")),
        a_cluster(source="GKE", cluster={"gke": {"region": "us-central1"}}),
        [
            (
                "spec.cluster.gke.region: cannot change from europe-west4 to "
                f"us-central1; {NEW_CLUSTER}"
            )
        ],
    ),
    (
        "region of a cluster at EKS",
        stored(a_cluster(source="EKS")),
        a_cluster(source="EKS", cluster={"eks": {"region": "us-west-2"}}),
        [
            f"spec.cluster.eks.region: cannot change from us-east-2 to us-west-2; {NEW_CLUSTER}"
        ],
    ),
    (
        "location of a cluster",
        stored(a_cluster(source="AKS")),
        a_cluster(source="AKS", cluster={"aks": {"location": "eastus"}}),
        [
            f"spec.cluster.aks.location: cannot change from westeurope to eastus; {NEW_CLUSTER}"
        ],
    ),
    (
        "region in a block of another source",
        stored(a_cluster(source="GKE", cluster={"eks": {"region": "a"}})),
        a_cluster(source="GKE", cluster={"eks": {"region": "b"}}),
        [],
    ),
    (
        "version and pools of a cluster",
        stored(a_cluster()),
        a_cluster(a_pool(nodeCount=5), a_pool(name="q")),
        [],
    ),
    (
        "cluster of a replica",
        stored(a_replica()),
        merged(a_replica(), {"spec": {"clusterName": "us-1"}}),
        ["spec.clusterName: cannot change from eu-1 to us-1; a replica never moves"],
    ),
    (
        "engine names of a replica",
        stored(a_replica()),
        merged(
            a_replica(),
            {"spec": {"engines": [{**a_replica()["spec"]["engines"][0], "name": "b"}]}},
        ),
        ["spec.engines: engine names cannot change from a to b"],
    ),
    (
        "image of a replica",
        stored(a_replica()),
        a_replica(
            template={
                "spec": {
                    "containers": [
                        {"name": "engine", "image": "registry.example/vllm:2"}
                    ]
                }
            }
        ),
        [],
    ),
    (
        "repository of a cache not yet staged",
        stored(a_cache(), **UNSTAGED),
        a_cache(OTHER),
        [],
    ),
    ("repository of a cache never reported", load(a_cache()), a_cache(OTHER), []),
    (
        "repository of a staged cache",
        stored(a_cache(), **STAGED),
        a_cache(OTHER),
        [
            (
                "spec.huggingFace.repo: cannot change from acme/model to acme/other "
                f"once staged; {NEW_CACHE}"
            )
        ],
    ),
    (
        "revision of a staged cache",
        stored(a_cache(), **STAGED),
        a_cache({"revision": "v2"}),
        [
            f"spec.huggingFace.revision: cannot change from none to v2 once staged; {NEW_CACHE}"
        ],
    ),
    (
        "patterns of a staged cache",
        stored(a_cache({"ignorePatterns": ["original/*"]}), **STAGED),
        a_cache({"allowPatterns": ["*.json", "*.safetensors"]}),
        [
            (
                "spec.huggingFace.allowPatterns: cannot change from none to *.json, "
                f"*.safetensors once staged; {NEW_CACHE}"
            ),
            (
                "spec.huggingFace.ignorePatterns: cannot change from original/* to "
                f"none once staged; {NEW_CACHE}"
            ),
        ],
    ),
    (
        "bucket of a staged cache, and its size",
        stored(
            a_cache(source="S3", s3={"region": "r-1", "bucket": "one", "sizeGiB": 10}),
            **STAGED,
        ),
        a_cache(
            source="S3",
            s3={
                "region": "r-1",
                "bucket": "two",
                "prefix": "a",
                "endpoint": "https://s3.example",
                "sizeGiB": 9,
            },
        ),
        [
            (
                "spec.s3.endpoint: cannot change from none to https://s3.example "
                f"once staged; {NEW_CACHE}"
            ),
            f"spec.s3.bucket: cannot change from one to two once staged; {NEW_CACHE}",
            f"spec.s3.prefix: cannot change from none to a once staged; {NEW_CACHE}",
            f"spec.s3.sizeGiB: cannot shrink from 10 to 9; {NEW_CACHE}",
        ],
    ),
    (
        "order of the patterns of a staged cache",
        stored(a_cache({"ignorePatterns": ["a", "b"]}), **STAGED),
        a_cache({"ignorePatterns": ["b", "a"]}),
        [],
    ),
    (
        "repository and size of a staged cache",
        stored(a_cache(), **STAGED),
        a_cache({**OTHER, "sizeGiB": 9}),
        [
            (
                "spec.huggingFace.repo: cannot change from acme/model to acme/other "
                f"once staged; {NEW_CACHE}"
            ),
            f"spec.huggingFace.sizeGiB: cannot shrink from 10 to 9; {NEW_CACHE}",
        ],
    ),
    (
        "size of a cache, lowered",
        stored(a_cache(), **UNSTAGED),
        a_cache({"sizeGiB": 9}),
        [f"spec.huggingFace.sizeGiB: cannot shrink from 10 to 9; {NEW_CACHE}"],
    ),
    (
        "size of a cache, raised",
        stored(a_cache(), **STAGED),
        a_cache({"sizeGiB": 11}),
        [],
    ),
    (
        "token of a staged cache, removed",
        stored(a_cache({"authSecret": {"name": "t"}}), **STAGED),
        a_cache({"authSecret": CUT}),
        [],
    ),
    (
        "selector of a staged cache, narrowed",
        stored(a_cache(), **STAGED),
        a_cache(clusterSelector={"matchLabels": {"a": "b"}}),
        [],
    ),
    (
        "name",
        stored(a_cache()),
        merged(a_cache(), {"metadata": {"name": "other"}}),
        [
            (
                "metadata.name: an update must keep kind, namespace and name; this "
                "object is ModelCache ml/weights"
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [case[1:] for case in CASES],
    ids=[f"{case[0]}" for case in CASES],
)
def test_an_update_is_refused_where_it_could_not_be_carried_out(
    old: Manifest, new: dict[str, Any], want: list[str]
) -> None:
    assert refusals(old, new) == want


def test_a_renamed_pool_is_accepted_with_a_warning() -> None:
    old, new = (accepted(a_cluster(a_pool(name=name))).manifest for name in ("p", "q"))
    admit_update(old, new)
    assert update_warnings(old, new) == (
        (
            "InferenceCluster eu-1: spec.nodePools[name=p]: the pool is removed with "
            "its nodes; its replicas are placed again"
        ),
    )
    assert update_warnings(old, old) == ()
