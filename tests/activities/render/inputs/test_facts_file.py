"""Facts from a file, for rendering without a cluster."""

from typing import Any

import pytest

from activities.render.inputs.facts import ClusterInput
from activities.render.inputs.facts_file import InvalidFactsFile, read_facts
from tests.activities.render.builders import pod, render


def test_missing_facts_describe_a_provisioned_cluster_with_the_whole_stack() -> None:
    found = read_facts({"clusters": {"eu-1": None, "us-1": {}}}, "facts.yaml")
    assert {name: facts.over(name) for name, facts in found.items()} == {
        "eu-1": ClusterInput.assumed("eu-1"),
        "us-1": ClusterInput.assumed("us-1"),
    }
    assert read_facts({}, "facts.yaml") == {}


def test_every_field_is_read() -> None:
    given = {
        "kubernetesVersion": "1.33",
        "draVersion": "v1beta1",
        "routing": "service",
        "schedulerType": "kai",
        "meshProvider": "istio",
        "storageClassName": "rwx",
        "gatewayAddress": "10.0.0.1",
        "apis": ["monitoring.coreos.com/v1"],
        "cacheClaims": {"ml-team/qwen": "claim"},
        "drivers": {"mi300x": "gpu.amd.com"},
    }
    assert read_facts({"clusters": {"eu-1": given}}, "facts.yaml")["eu-1"].over(
        "eu-1"
    ) == ClusterInput.assumed(
        name="eu-1",
        kubernetes_version="1.33",
        dra_version="v1beta1",
        routing="service",
        scheduler_type="kai",
        mesh_provider="istio",
        storage_class_name="rwx",
        gateway_address="10.0.0.1",
        apis=["monitoring.coreos.com/v1"],
        drivers={"mi300x": "gpu.amd.com"},
        cache_claims={"ml-team/qwen": "claim"},
    )


def test_given_facts_override_declared_facts() -> None:
    facts = read_facts({"clusters": {"eu-1": {"routing": "pool"}}}, "facts.yaml")[
        "eu-1"
    ]
    declared = {"routing": "service", "storage_class_name": "rwx"}
    assert facts.over("eu-1", declared) == ClusterInput.assumed(
        "eu-1", routing="pool", storage_class_name="rwx"
    )


@pytest.mark.parametrize("key", ["ml-team/qwen", "qwen"])
def test_a_claim_is_found_by_either_name(key: str) -> None:
    facts = read_facts(
        {"clusters": {"eu-1": {"cacheClaims": {key: "claim"}}}}, "facts.yaml"
    )["eu-1"].over("eu-1")
    assert pod(render(cache="qwen", cluster=facts))["spec"]["volumes"][-1][
        "persistentVolumeClaim"
    ] == {"claimName": "claim"}


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        ({"cluster": {}}, ("cluster is unknown: did you mean clusters?",)),
        (
            {
                "clusters": {
                    "a": {"draversion": "v1", "routing": 7, "apis": "x"},
                    "b": {"routing": "mesh", "cacheClaims": {"c": 1}},
                }
            },
            (
                "clusters.a: draversion is unknown: did you mean draVersion?",
                "clusters.a: routing must be a string, is 7",
                "clusters.a: apis must be a list, is 'x'",
                "clusters.b: cacheClaims.c must be the name of a volume claim, is 1",
                "clusters.b: routing is 'mesh', must be one of 'pool', 'service'",
            ),
        ),
        (
            {"clusters": {1: {"routing": 7}, None: {}, "": {}, "b": {"routing": 7}}},
            (
                "clusters: 1 must be the name of a cluster, as a string: write a number in quotes",
                (
                    "clusters: None must be the name of a cluster, as a string: "
                    "write a number in quotes"
                ),
                "clusters: '' must be the name of a cluster, as a string: write a number in quotes",
                "clusters.b: routing must be a string, is 7",
            ),
        ),
        ([], ("must be an object, is []",)),
    ],
    ids=["a typo at the top", "everything at once", "names that are none", "no object"],
)
def test_all_problems_of_the_file_are_reported_at_once(
    document: Any, problems: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidFactsFile) as caught:
        read_facts(document, "facts.yaml")
    assert caught.value.problems == problems
    assert str(caught.value).startswith("facts.yaml: ")
