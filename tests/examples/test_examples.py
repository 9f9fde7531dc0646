"""Every example file is accepted without changes."""

import ast
import sys
from pathlib import Path

import pytest
import yaml

from api_types.validation.manifests import admit_all, dump, load, parse
from fleet_client.checks import CHECKS
from scheduler import read_policy
from testbed.fleet.fleet_file import FleetFile

ROOT = Path(__file__).parents[2] / "examples"
FLEETS = sorted((ROOT / "fleets").glob("*.yaml"))
# KEDA's objects, which tests/front/scaling/test_examples.py checks.
OF_OTHERS = sorted((ROOT / "keda").glob("*.yaml"))
POLICIES = sorted(ROOT.rglob("policy.yaml"))
MANIFESTS = sorted(
    set(ROOT.rglob("*.yaml")) - set(FLEETS) - set(OF_OTHERS) - set(POLICIES)
)
SCRIPT = ROOT / "deploy_and_scale.py"
SCRIPT_LINES_MAX = 95

# The worked examples of the API, with their names here.
SHAPES = [
    (
        "existing cluster with its class",
        "clusters/existing.yaml",
        ["InferenceClass", "InferenceCluster"],
    ),
    (
        "GKE pool that grows from zero",
        "clusters/gke-from-zero.yaml",
        ["InferenceClass", "InferenceCluster"],
    ),
    (
        "EKS with reserved capacity, EFA and taints",
        "clusters/eks-reserved.yaml",
        ["InferenceClass", "InferenceCluster"],
    ),
    (
        "gateway, deployment, service",
        "models/chat-behind-a-service.yaml",
        ["InferenceGateway", "ModelDeployment", "ModelService"],
    ),
    ("cache for a gated model", "models/gated-cache.yaml", ["ModelCache"]),
    (
        "gang with weights from a cache",
        "models/gang-from-cache.yaml",
        ["ModelDeployment"],
    ),
    (
        "disaggregated prefill and decode",
        "models/prefill-decode.yaml",
        ["ModelDeployment"],
    ),
    (
        "external endpoint with its weight",
        "models/burst-to-a-provider.yaml",
        ["ModelEndpoint", "ModelService"],
    ),
    ("flat shape", "models/flat-shape.yaml", ["ModelDeployment"]),
]


@pytest.mark.parametrize(
    "path", MANIFESTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_example_is_accepted_and_survives_the_round_trip(path: Path) -> None:
    admitted = admit_all(parse(path.read_text(), str(path)), CHECKS)
    assert admitted
    for one in admitted:
        assert dump(load(dump(one.manifest))) == dump(one.manifest)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.parent.name)
def test_every_policy_is_accepted(path: Path) -> None:
    read_policy(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("path", FLEETS, ids=lambda path: path.name)
def test_every_fleet_can_be_simulated(path: Path) -> None:
    fleet = FleetFile.load(path)
    assert {
        pool.node_class for cluster in fleet.clusters for pool in cluster.pools
    } == set(fleet.classes)


@pytest.mark.parametrize(
    ("story", "file", "kinds"), SHAPES, ids=[row[0] for row in SHAPES]
)
def test_every_shape_of_the_api_has_its_example(
    story: str, file: str, kinds: list[str]
) -> None:
    documents = parse((ROOT / file).read_text(), file)
    assert [document["kind"] for document in documents] == kinds, story


def test_only_the_expected_examples_have_warnings() -> None:
    warned = {
        path.name
        for path in MANIFESTS
        if any(
            one.warnings
            for one in admit_all(parse(path.read_text(), str(path)), CHECKS)
        )
    }
    assert warned == {"flat-shape.yaml", "gang.yaml", "one-node.yaml"}


def test_the_script_is_short_and_uses_only_the_sdk_and_the_shared_types() -> None:
    text = SCRIPT.read_text()
    tree = ast.parse(text)
    imported = {
        node.module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    imported |= {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported - sys.stdlib_module_names == {"temporalio", "api_types"}
    assert len(text.splitlines()) < SCRIPT_LINES_MAX
