"""A broken document gets errors with its name, and never crashes admission."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_types.validation.manifests import (
    InvalidManifest,
    Problem,
    admit,
    admit_all,
    dump,
    parse,
)
from fleet_client.checks import CHECKS
from tests.api_types.builders import (
    CUT,
    a_cluster,
    a_deployment,
    a_document,
    a_member,
    a_replica,
    a_service,
    a_stack,
    an_engine,
    merged,
    problems,
)
from tests.random_cases import random_cases

PATH = Path(__file__).parents[1] / "data" / "examples.yaml"
WHOLE = [dict(one) for one in parse(PATH.read_text(), PATH.name)] + [
    a_replica(),
    a_stack(),
]


def places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return every location of a tree."""
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    return [at, *(place for key, value in items for place in places(value, (*at, key)))]


def put(tree: Any, at: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a tree with one value replaced."""
    if not at:
        return value
    if isinstance(tree, dict):
        return {
            key: put(held, at[1:], value) if key == at[0] else held
            for key, held in tree.items()
        }
    return [
        put(held, at[1:], value) if index == at[0] else held
        for index, held in enumerate(tree)
    ]


def broken() -> st.SearchStrategy[Any]:
    values = st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=8)
        | st.just("x" * 300),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=6,
    )

    @st.composite
    def one(draw: st.DrawFn) -> Any:
        document = draw(st.sampled_from(WHOLE))
        for _ in range(draw(st.integers(1, 3))):
            document = put(
                document, draw(st.sampled_from(places(document)[1:])), draw(values)
            )
        return document

    return one()


@random_cases(400)
@given(broken())
def test_a_broken_document_is_admitted_or_refused_with_named_problems(
    document: dict[str, Any],
) -> None:
    found: tuple[Problem, ...] = ()
    once: dict[str, Any] | None = None
    try:
        once = dump(admit(document, CHECKS).manifest)
    except InvalidManifest as error:
        found = error.problems
    assert all(one.object and one.problem for one in found)
    assert (once is None) == bool(found)
    assert once is None or dump(admit(once, CHECKS).manifest) == once


def test_every_mistake_of_an_object_is_reported_at_once_also_those_across_fields() -> (
    None
):
    document = a_deployment(
        an_engine(a_member(nodeSelector=CUT, role="leader"), name="a", copies=0),
        an_engine(name="b", phase="Prefill"),
        an_engine(name="b"),
        top={"replicas": "3", "replica": 1},
        tolerations=[{"operator": "Exists", "value": "x", "efect": "NoExecute"}, {}],
    )
    engines = "spec.template.spec.engines"
    assert sorted(problems(document)) == sorted(
        [
            "spec.replica: unknown field",
            'spec.replicas: must be an integer, got the string "3"',
            (
                f"{engines}[name=a].members[0].role: must be Standalone, Leader or "
                'Worker, got "leader"'
            ),
            f"{engines}[name=a].copies: must be between 1 and 64, got 0",
            (
                f"{engines}[name=a].members: no member requests devices; give at "
                "least one a nodeSelector"
            ),
            f"{engines}[name=b].phase: allowed only when serving.mode is PrefillDecode",
            f"{engines}[name=b]: duplicate name; engine names must be unique",
            "spec.template.spec.tolerations[0].efect: unknown field, did you mean effect?",
            "spec.template.spec.tolerations[0].value: operator Exists takes no value",
            (
                "spec.template.spec.tolerations[1]: operator Equal (the default) "
                "needs a key; use operator: Exists to match all"
            ),
        ]
    )


def test_the_mistakes_of_all_documents_are_reported_at_once_and_so_is_an_object_given_twice() -> (
    None
):
    documents = [
        a_document("ModelService", "chat", {"endpoints": []}, namespace="ml"),
        a_service(),
        a_deployment(top={"replicas": -1}),
        a_document("ModelPlacement", "old"),
    ]
    with pytest.raises(InvalidManifest) as caught:
        admit_all(documents, CHECKS)
    assert [str(one) for one in caught.value.problems] == [
        "ModelService ml/chat: spec.endpoints: needs at least 1 item",
        (
            "ModelService ml/chat: metadata.name: given twice, in document 1 and in "
            "document 2; keep one"
        ),
        "ModelDeployment ml/qwen: spec.replicas: must be between 0 and 1000, got -1",
        "ModelPlacement old: kind: unknown kind; it was renamed ModelReplica",
    ]
    assert str(caught.value).count("\n") == 3


def test_one_name_in_two_namespaces_is_two_objects() -> None:
    other = merged(a_service(), {"metadata": {"namespace": "other"}})
    assert len(admit_all([a_service(), other], CHECKS)) == 2


UNIDENTIFIED = [
    (
        "no apiVersion",
        {"kind": "ModelCache"},
        "ModelCache: apiVersion: required field is missing",
    ),
    ("no kind", {"apiVersion": "v1"}, "document: kind: required field is missing"),
    (
        "a kind under another group",
        {"apiVersion": "apps/v1", "kind": "ModelCache", "metadata": {"name": "x"}},
        'ModelCache x: apiVersion: must be modelplane.ai/v1alpha1 for ModelCache, got "apps/v1"',
    ),
    (
        "the same kind of another product",
        {
            "apiVersion": "model.otterscale.io/v1alpha1",
            "kind": "ModelService",
            "metadata": {"name": "x"},
        },
        (
            "ModelService x: apiVersion: must be modelplane.ai/v1alpha1 for "
            'ModelService, got "model.otterscale.io/v1alpha1"'
        ),
    ),
    (
        "an internal kind of the reference",
        {
            "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
            "kind": "EKSCluster",
            "metadata": {"name": "x"},
        },
        "EKSCluster x: kind: unknown kind; it is internal; write an InferenceCluster",
    ),
]


@pytest.mark.parametrize(
    ("document", "want"),
    [case[1:] for case in UNIDENTIFIED],
    ids=[case[0] for case in UNIDENTIFIED],
)
def test_a_document_of_no_known_kind_is_refused_by_kind_or_version(
    document: dict[str, Any], want: str
) -> None:
    with pytest.raises(InvalidManifest) as caught:
        admit(document, CHECKS)
    assert str(caught.value) == want


def test_the_error_for_an_unknown_kind_lists_the_nearest_and_all_others() -> None:
    (problem,) = problems(a_document("ModelDeploymnet"))
    assert problem.startswith(
        'kind: unknown kind "ModelDeploymnet" in modelplane.ai/v1alpha1; did you '
        "mean ModelDeployment? Known kinds: "
    )


TYPES = [
    (
        "a spec that is a list",
        merged(a_service(), {"spec": []}),
        ["spec: must be an object, got a list"],
    ),
    (
        "a spec that is null",
        merged(a_service(), {"spec": None}),
        ["spec: required field is missing"],
    ),
    (
        "no metadata",
        merged(a_service(), {"metadata": CUT}),
        ["metadata.name: required field is missing"],
    ),
    (
        "metadata that is text",
        merged(a_service(), {"metadata": "x"}),
        ['metadata: must be an object, got the string "x"'],
    ),
    (
        "a list where an object belongs",
        a_deployment(serving=[]),
        ["spec.template.spec.serving: must be an object, got a list"],
    ),
    (
        "an object where a list belongs",
        a_service(endpoints={}),
        ["spec.endpoints: must be a list, got an object"],
    ),
    (
        "true is not an integer",
        a_deployment(top={"replicas": True}),
        ["spec.replicas: must be an integer, got true"],
    ),
    (
        "a fraction is not an integer",
        a_deployment(top={"replicas": 2.0}),
        ["spec.replicas: must be an integer, got 2.0"],
    ),
    (
        "an integer is not a string",
        a_deployment(clusterSelector={"matchLabels": {"zone": 1}}),
        [
            'spec.template.spec.clusterSelector.matchLabels.zone: must be a string; quote it: "1"'
        ],
    ),
    (
        "a boolean is not a string",
        a_deployment(clusterSelector={"matchLabels": {"a.example/b": True}}),
        [
            (
                'spec.template.spec.clusterSelector.matchLabels["a.example/b"]: must '
                'be a string; quote it: "true"'
            )
        ],
    ),
    (
        "a key that is not a string",
        a_deployment(clusterSelector={"matchLabels": {1: "a"}}),
        None,
    ),
    (
        "half of a surrogate pair",
        a_cluster(source="GKE", cluster={"gke": {"region": "\ud800"}}),
        None,
    ),
    ("attribute names are not wire names", a_deployment(cluster_selector={}), None),
    (
        "a field next to the block that it belongs to",
        a_deployment(top={"template": {"spec": CUT, "engines": []}}),
        [
            "spec.template.engines: unknown field, did you mean spec.engines?",
            "spec.template.spec: required field is missing",
        ],
    ),
    (
        "an unknown field at the top",
        merged(a_service(), {"specs": {}}),
        ["specs: unknown field"],
    ),
    (
        "an unknown field of metadata",
        merged(a_service(), {"metadata": {"lables": {}}}),
        ["metadata.lables: unknown field, did you mean labels?"],
    ),
    (
        "fields of the placement on a replica",
        merged(a_replica(), {"spec": {"tolerations": []}}),
        None,
    ),
    (
        "a cluster reference of an earlier version",
        merged(
            a_replica(),
            {"spec": {"clusterName": CUT, "inferenceClusterRef": {"name": "x"}}},
        ),
        [
            (
                "spec: clusterName is missing; unknown field inferenceClusterRef, did "
                "you mean clusterName?"
            )
        ],
    ),
]
SAID = {
    "half of a surrogate pair": [
        "spec.cluster.gke.region: must be text that UTF-8 can encode"
    ],
    "a key that is not a string": [
        "spec.template.spec.clusterSelector.matchLabels: key 1 is not a string; quote it"
    ],
    "attribute names are not wire names": [
        "spec.template.spec.cluster_selector: unknown field, did you mean clusterSelector?"
    ],
    "fields of the placement on a replica": [
        (
            "spec.tolerations: unknown field; it belongs to the ModelDeployment, a "
            "ModelReplica is already placed"
        )
    ],
}


@pytest.mark.parametrize(
    ("story", "document", "want"), TYPES, ids=[case[0] for case in TYPES]
)
def test_values_are_not_coerced_and_unknown_fields_are_rejected(
    story: str, document: dict[str, Any], want: list[str] | None
) -> None:
    assert problems(document)[: len(want or SAID[story])] == (want or SAID[story])


def of_size(kib: int) -> dict[str, Any]:
    """Return a deployment of about this size in KiB of JSON."""
    container = {"name": "engine", "image": "i", "args": ["x" * 1020] * kib}
    return a_deployment(
        an_engine(a_member(template={"spec": {"containers": [container]}}))
    )


def test_a_manifest_of_more_than_256_kib_is_refused() -> None:
    assert problems(of_size(255)) == []
    assert problems(of_size(257)) == [
        ": is 257 KiB of JSON; at most 256 KiB are stored"
    ]


def test_nesting_and_size_are_bounded_before_anything_else_is_read() -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"a": deep}
    assert problems(a_cluster(cluster={"gke": deep})) == [
        ": is nested more than 64 levels deep"
    ]
    assert problems(a_document("ModelCache", "x", {"a": [0] * 100_001})) == [
        ": has more than 50000 values"
    ]
