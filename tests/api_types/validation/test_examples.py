"""The example manifests load with their warnings, and are stored unchanged."""

import timeit
from pathlib import Path
from typing import Any

import pytest

from api_types.validation.manifests import Document, admit, admit_all, dump, load, parse
from fleet_client.checks import CHECKS
from tests.api_types.builders import merged

PATH = Path(__file__).parents[1] / "data" / "examples.yaml"
EXAMPLES = parse(PATH.read_text(), PATH.name)


def title(document: Document) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def contains(whole: Any, part: Any) -> bool:
    """Return whether `whole` has all of `part`, perhaps with more fields."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(whole) == len(part)
            and all(map(contains, whole, part))
        )
    return bool(whole == part)


def nothings(tree: Any) -> list[Any]:
    """Yield the locations of nulls in a tree."""
    if isinstance(tree, dict):
        return [found for value in tree.values() for found in nothings(value)]
    if isinstance(tree, list):
        return [found for value in tree for found in nothings(value)]
    return [tree] if tree is None else []


@pytest.mark.parametrize("document", EXAMPLES[:-1], ids=title)
def test_an_example_loads_with_every_value_as_written(
    document: Document,
) -> None:
    assert contains(dump(admit(document, CHECKS).manifest), dict(document))


@pytest.mark.parametrize("document", EXAMPLES, ids=title)
def test_a_second_reading_changes_nothing(document: Document) -> None:
    once = dump(admit(document, CHECKS).manifest)
    assert dump(admit(once, CHECKS).manifest) == once
    assert dump(load(once)) == once
    assert list(once["spec"]) == list(dump(load(once))["spec"])
    assert nothings(once) == []


def test_the_examples_load_together() -> None:
    assert len(admit_all(EXAMPLES, CHECKS)) == len(EXAMPLES) == 15


def test_the_flat_example_is_stored_as_its_canonical_rewrite() -> None:
    flat = EXAMPLES[-1]
    spec = dict(flat["spec"])
    canonical = {
        **flat,
        "spec": {"replicas": spec.pop("replicas"), "template": {"spec": spec}},
    }
    admitted = admit(flat, CHECKS)
    assert dump(admitted.manifest) == dump(admit(canonical, CHECKS).manifest)
    assert admitted.warnings == (
        (
            "ModelDeployment research/frontier-eval: spec: flat ModelDeployment shape "
            "is deprecated; stored as spec.template.spec"
        ),
    )


def test_attributes_keep_their_wire_names() -> None:
    (recipe,) = (
        one for one in EXAMPLES if title(one) == "InferenceClass onprem-b200-8x"
    )
    gpu, roce = dump(admit(recipe, CHECKS).manifest)["spec"]["devices"]
    assert gpu["attributes"]["ecc"] == {"bool": True}
    assert roce["attributes"]["gbps"] == {"int": 400}
    assert "deviceClassName" not in roce


ABSENT = [
    ("no worker block", ("template", "spec", "engines", 0, "members", 0), "worker"),
    ("no serving block", ("template", "spec"), "serving"),
    ("no list of tolerations", ("template", "spec"), "tolerations"),
    ("no rollout block", (), "rollout"),
]


@pytest.mark.parametrize(
    ("path", "field"), [case[1:] for case in ABSENT], ids=[case[0] for case in ABSENT]
)
def test_omitted_fields_stay_absent(path: tuple[str | int, ...], field: str) -> None:
    (document,) = (
        one for one in EXAMPLES if title(one) == "ModelDeployment support-chat"
    )
    held: Any = dump(admit(document, CHECKS).manifest)["spec"]
    for part in path:
        held = held[part]
    assert field not in held


def test_an_empty_block_gains_its_defaults_and_an_absent_one_stays_absent() -> None:
    (tokyo,) = (one for one in EXAMPLES if title(one) == "InferenceCluster tokyo")
    empty = merged(
        dict(tokyo), {"spec": {"cluster": {"gke": {"credentials": {"name": None}}}}}
    )
    cluster = dump(admit(empty, CHECKS).manifest)["spec"]["cluster"]
    assert cluster["gke"]["credentials"] == {
        "type": "ClusterProviderConfig",
        "name": "default",
    }
    (ohio,) = (
        one for one in EXAMPLES if title(one) == "InferenceCluster ohio-reserved"
    )
    assert dump(admit(ohio, CHECKS).manifest)["spec"]["cluster"]["eks"] == {
        "region": "us-east-2",
        "kubernetesVersion": "1.36",
    }


def test_fields_of_another_control_plane_are_ignored() -> None:
    (document,) = (
        one for one in EXAMPLES if title(one) == "ModelDeployment support-chat"
    )
    exported = merged(
        dict(document),
        {
            "metadata": {
                "uid": "1",
                "managedFields": [{"manager": "x"}],
                "ownerReferences": [],
                "finalizers": ["a"],
                "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "crossplane": {"compositionRef": {"name": "x"}, "resourceRefs": []}
            },
            "status": {"replicas": {"ready": 3}, "unheardOf": True},
        },
    )
    assert dump(admit(exported, CHECKS).manifest) == dump(
        admit(document, CHECKS).manifest
    )


def test_a_stored_object_is_read_back_with_its_status_and_fields_of_other_releases() -> (
    None
):
    (document,) = (one for one in EXAMPLES if title(one) == "ModelCache maverick")
    stored = merged(
        dump(admit(document, CHECKS).manifest),
        {
            "spec": {"laterField": 1},
            "status": {"summary": {"ready": "1/3"}, "laterField": 1},
        },
    )
    manifest = load(stored)
    assert dump(manifest)["status"]["summary"] == {"ready": "1/3"}
    assert "laterField" not in dump(manifest)["spec"]


def test_admitting_a_deployment_takes_less_than_three_milliseconds() -> None:
    (document,) = (one for one in EXAMPLES if title(one) == "ModelDeployment long-docs")
    admit(document, CHECKS)  # the first time compiles the selectors
    assert (
        min(timeit.repeat(lambda: admit(document, CHECKS), number=1, repeat=50)) < 0.003
    )
