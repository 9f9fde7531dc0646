"""Warnings about accepted manifests that are probably not intended."""

from typing import Any

import pytest

from api_types import labels
from tests.api_types.builders import (
    GANG_LEADER,
    GANG_WORKER,
    REQUEST,
    a_cache,
    a_cluster,
    a_container,
    a_deployment,
    a_gateway,
    a_member,
    a_pool,
    a_service,
    an_endpoint,
    an_engine,
    merged,
    warnings,
)

ONE_NODE = (
    "only pods on one node can mount it at a time: use one replica per cluster, with "
    "all its pods on one node, or use ReadWriteMany"
)
TWICE = [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]
ENGINE = "spec.template.spec.engines[name=a]"
POOL = "spec.nodePools[name=p]"
IDENTITY = "spec.cluster.existing.identitySecretRef"


def an_identity(kind: str) -> dict[str, Any]:
    """Return an existing cluster with a cloud identity."""
    existing = {
        "secretRef": {"name": "kube"},
        "identitySecretRef": {"name": "it", "type": kind},
    }
    return a_cluster(cluster={"source": "Existing", "existing": existing})


CASES: list[tuple[str, dict[str, Any], list[str] | None]] = [
    (
        "a gang without a cache",
        a_deployment(an_engine(GANG_LEADER, GANG_WORKER)),
        [
            f"{ENGINE}: a Leader and Worker engine should share its weights; set modelCacheRef"
        ],
    ),
    (
        "a gang with a cache",
        a_deployment(
            an_engine(GANG_LEADER, GANG_WORKER, profile={"servedNameFlag": ""}),
            modelCacheRef={"name": "w"},
        ),
        [],
    ),
    (
        "a request name that no claim takes",
        a_deployment(
            an_engine(
                a_member(nodeSelector={"devices": [{**REQUEST, "name": "GPU_0"}]})
            )
        ),
        [
            (
                f"{ENGINE}.members[0].nodeSelector.devices[name=GPU_0].name: not a "
                "DNS label; a ResourceClaim refuses such a request name"
            )
        ],
    ),
    (
        "one variable twice",
        a_deployment(an_engine(a_container(env=TWICE))),
        [
            (
                f"{ENGINE}.members[0].template.spec.containers[0].env: variable X is "
                "set 2 times; the last one wins"
            )
        ],
    ),
    (
        "a network domain with serving mode Unified",
        a_deployment(top={"scheduling": {"networkDomain": "Required"}}),
        [
            (
                "spec.scheduling.networkDomain: setting has no effect on serving mode Unified: "
                "only the engines of a PrefillDecode replica share a network"
            )
        ],
    ),
    (
        "an ignored network domain",
        a_deployment(top={"scheduling": {"networkDomain": "Ignore"}}),
        [],
    ),
    (
        "a service that selects everything",
        a_service({"selector": {"matchLabels": {}}}),
        None,
    ),
    (
        "another scheme",
        an_endpoint(url="ftp://h.example/"),
        ['spec.url: scheme must be http or https, got "ftp"'],
    ),
    (
        "a loopback address",
        an_endpoint(url="http://127.0.0.1:8000"),
        [
            "spec.url: 127.0.0.1 is a loopback or link-local address, which no route may use"
        ],
    ),
    (
        "an address in another spelling",
        an_endpoint(url="http://0x22.0x37.25610"),
        [
            "spec.url: 0x22.0x37.25610 is another spelling of the address 34.55.100.10: write that"
        ],
    ),
    (
        "a host without a domain",
        an_endpoint(url="http://svc:8000"),
        ['spec.url: "svc" is not a fully qualified host name'],
    ),
    (
        "a rewrite path without a slash",
        an_endpoint(rewritePath="v1"),
        ['spec.rewritePath: must start with "/"'],
    ),
    (
        "the protocol field of an earlier version",
        an_endpoint(api="OpenAI"),
        ["spec.api: ignored; endpoints have an OpenAI-style API"],
    ),
    (
        "a volume for the pods of one node",
        a_cache(volume={"accessMode": "ReadWriteOnce"}),
        [f"spec.volume.accessMode: {ONE_NODE}"],
    ),
    ("a volume for all nodes", a_cache(volume={"accessMode": "ReadWriteMany"}), []),
    (
        "a project on the cluster",
        a_cluster(source="GKE", cluster={"gke": {"project": "acme"}}),
        [
            "spec.cluster.gke.project: deprecated; it overrides the project of the credentials"
        ],
    ),
    (
        "fewer nodes than the minimum",
        a_cluster(
            a_pool("EKS", nodeCount=0, minNodeCount=2, maxNodeCount=4), source="EKS"
        ),
        [f"{POOL}.nodeCount: 0 is outside minNodeCount to maxNodeCount; starts at 2"],
    ),
    (
        "more nodes than the maximum",
        a_cluster(a_pool("EKS", nodeCount=9, maxNodeCount=4), source="EKS"),
        [f"{POOL}.nodeCount: 9 is outside minNodeCount to maxNodeCount; starts at 4"],
    ),
    (
        "no node count given",
        a_cluster(a_pool("EKS", minNodeCount=2, maxNodeCount=4), source="EKS"),
        [],
    ),
    (
        "a GKE pool in two zones",
        a_cluster(a_pool("GKE", zones=["a", "b"], maxNodeCount=4), source="GKE"),
        [
            (
                f"{POOL}.zones: GKE counts nodes per zone: 2 zones may reach 8 nodes, "
                "but the scheduler counts 4"
            )
        ],
    ),
    (
        "an identity that no worker uses",
        an_identity("NebiusServiceAccountCredentials"),
        [
            (
                f"{IDENTITY}: NebiusServiceAccountCredentials: setting has no effect: "
                "the kubeconfig needs its own user"
            )
        ],
    ),
    ("an identity of Google Cloud", an_identity("GoogleApplicationCredentials"), []),
    ("an identity of AWS", an_identity("AWSWebIdentityCredentials"), []),
    (
        "a capacity block off EKS",
        a_cluster(
            a_pool("GKE", capacityBlock={"capacityReservationId": "cr-0a"}),
            source="GKE",
        ),
        [f"{POOL}.capacityBlock: setting has no effect on GKE"],
    ),
    (
        "EFA off EKS",
        a_cluster(a_pool("GKE", fabric={"type": "EFA"}), source="GKE"),
        [f"{POOL}.fabric.type: EFA: setting has no effect on GKE"],
    ),
    (
        "InfiniBand on EKS",
        a_cluster(a_pool("EKS", fabric={"type": "InfiniBand"}), source="EKS"),
        [f"{POOL}.fabric.type: InfiniBand: setting has no effect on EKS"],
    ),
    (
        "a fabric of type None anywhere",
        a_cluster(a_pool("GKE", fabric={}), source="GKE"),
        [],
    ),
    (
        "a gateway below the floor",
        a_gateway(traefik={"version": "39.0.7"}),
        [
            (
                "spec.traefik.version: chart 39.0.7 is older than 41.0.2, the oldest "
                "that routes reliably"
            )
        ],
    ),
    (
        "a chart version longer than a number",
        a_gateway(traefik={"version": f"{'9' * 200}.0.0"}),
        [],
    ),
    ("a gateway at the floor", a_gateway(traefik={"version": "v41.0.2"}), []),
    (
        "a namespace on a cluster-scoped kind",
        merged(a_cluster(), {"metadata": {"namespace": "ml"}}),
        ["metadata.namespace: ignored; InferenceCluster is cluster-scoped"],
    ),
    (
        "a misspelt annotation",
        merged(
            a_cluster(),
            {"metadata": {"annotations": {"modelplane.ai/rooting": "pool"}}},
        ),
        [
            (
                'metadata.annotations["modelplane.ai/rooting"]: unknown annotation, '
                "did you mean modelplane.ai/routing?"
            )
        ],
    ),
    (
        "a misspelt annotation of a deletion",
        merged(
            a_cluster(), {"metadata": {"annotations": {"modelplane.ai/abandn": "true"}}}
        ),
        [
            (
                'metadata.annotations["modelplane.ai/abandn"]: unknown annotation, '
                "did you mean modelplane.ai/abandon?"
            )
        ],
    ),
    (
        "annotations of a deletion",
        merged(
            a_cluster(),
            {
                "metadata": {
                    "annotations": dict.fromkeys(labels.TAKEN_WHILE_DELETING, "true")
                }
            },
        ),
        [],
    ),
]
EMPTY = [
    "spec.endpoints[0].selector.matchLabels: empty; selects every endpoint of the namespace"
]


@pytest.mark.parametrize(
    ("document", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_doubtful_manifest_is_accepted_with_these_warnings(
    document: dict[str, Any], want: list[str] | None
) -> None:
    assert warnings(document) == (EMPTY if want is None else want)
