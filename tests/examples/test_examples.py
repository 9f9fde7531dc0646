"""Every file that a user may copy is accepted as it is."""

import ast
import sys
from pathlib import Path

import pytest

from api_types.validation.manifests import admit_all, dump, load, parse
from client.manifests.checks import CHECKS
from testbed.fleet.fleet_file import FleetFile

ROOT = Path(__file__).parents[2] / "examples"
FLEETS = sorted((ROOT / "fleets").glob("*.yaml"))
# Objects of KEDA, which are checked in tests/front/scaling/test_examples.py.
OF_OTHERS = sorted((ROOT / "keda").glob("*.yaml"))
MANIFESTS = sorted(file for file in ROOT.rglob("*.yaml") if file not in FLEETS and file not in OF_OTHERS)
SCRIPT = ROOT / "deploy_and_scale.py"
SCRIPT_LINES_MAX = 70

# The worked examples of the API: what each shape is called here.
SHAPES = [
    ("api-18-1 an existing cluster and its class", "clusters/existing.yaml", ["InferenceClass", "InferenceCluster"]),
    ("api-18-2 a GKE pool that grows from zero", "clusters/gke-from-zero.yaml", ["InferenceClass", "InferenceCluster"]),
    ("api-18-3 EKS with reserved capacity, EFA and taints", "clusters/eks-reserved.yaml", ["InferenceClass", "InferenceCluster"]),
    (
        "api-18-4 gateway, deployment, service",
        "models/chat-behind-a-service.yaml",
        ["InferenceGateway", "ModelDeployment", "ModelService"],
    ),
    ("api-18-5 a cache for a gated model", "models/gated-cache.yaml", ["ModelCache"]),
    ("api-18-6 a gang with weights from a cache", "models/gang-from-cache.yaml", ["ModelDeployment"]),
    ("api-18-7 prefill and decode apart", "models/prefill-decode.yaml", ["ModelDeployment"]),
    ("api-18-8 an external endpoint with its weight", "models/burst-to-a-provider.yaml", ["ModelEndpoint", "ModelService"]),
    ("api-18-9 the flat shape", "models/flat-shape.yaml", ["ModelDeployment"]),
]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_is_accepted_and_survives_the_round_trip(path: Path) -> None:
    admitted = admit_all(parse(path.read_text(), str(path)), CHECKS)
    assert admitted
    for one in admitted:
        assert dump(load(dump(one.manifest))) == dump(one.manifest)


@pytest.mark.parametrize("path", FLEETS, ids=lambda path: path.name)
def test_every_fleet_can_be_simulated(path: Path) -> None:
    fleet = FleetFile.load(path)
    assert {pool.node_class for cluster in fleet.clusters for pool in cluster.pools} == set(fleet.classes)


@pytest.mark.parametrize(("story", "file", "kinds"), SHAPES, ids=[row[0] for row in SHAPES])
def test_every_shape_of_the_api_has_its_example(story: str, file: str, kinds: list[str]) -> None:
    documents = parse((ROOT / file).read_text(), file)
    assert [document["kind"] for document in documents] == kinds, story


def test_only_the_flat_shape_gangs_without_a_cache_and_volumes_of_one_node_are_warned_about() -> None:
    warned = {path.name for path in MANIFESTS if any(one.warnings for one in admit_all(parse(path.read_text(), str(path)), CHECKS))}
    assert warned == {"flat-shape.yaml", "gang.yaml", "one-node.yaml"}


def test_the_script_is_short_and_needs_no_more_than_the_sdk_and_the_shared_types() -> None:
    text = SCRIPT.read_text()
    tree = ast.parse(text)
    imported = {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported - sys.stdlib_module_names == {"temporalio", "api_types"}
    assert len(text.splitlines()) < SCRIPT_LINES_MAX
