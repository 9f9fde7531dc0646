"""ModelDeployments of the flat shape are moved, never guessed."""

from typing import Any

import pytest

from api_types.validation.legacy_shape import REMOVED
from api_types.validation.manifests import dump
from tests.api_types.builders import (
    CUT,
    a_deployment,
    a_document,
    accepted,
    an_engine,
    problems,
    warnings,
)

BLOCKS: dict[str, Any] = {
    "clusterSelector": {"matchLabels": {"zone": "a"}},
    "modelCacheRef": {"name": "weights"},
    "serving": {"mode": "Unified"},
    "tolerations": [{"key": "a"}],
}


def flat(**spec: Any) -> dict[str, Any]:
    return a_document(
        "ModelDeployment",
        "qwen",
        {"replicas": 1, "engines": [an_engine()]} | spec,
        namespace="ml",
    )


@pytest.mark.parametrize("field", BLOCKS)
def test_a_flat_field_is_stored_as_its_canonical_twin(field: str) -> None:
    twin = a_deployment(**{field: BLOCKS[field]})
    assert dump(accepted(flat(**{field: BLOCKS[field]})).manifest) == dump(
        accepted(twin).manifest
    )


def test_settings_of_the_deployment_itself_stay_next_to_the_template() -> None:
    stored = dump(
        accepted(
            flat(rollout={"type": "AllAtOnce"}, drain={"maxUnavailable": 1})
        ).manifest
    )["spec"]
    assert sorted(stored) == ["drain", "replicas", "rollout", "template"]


def test_a_flat_shape_is_accepted_with_one_warning() -> None:
    engine = an_engine(profile={"servedNameFlag": ""})
    assert warnings(flat(**BLOCKS, engines=[engine])) == [
        "spec: flat ModelDeployment shape is deprecated; stored as spec.template.spec"
    ]
    assert warnings(a_deployment(engine, **BLOCKS)) == []


def test_converting_the_shape_twice_changes_nothing() -> None:
    once = dump(accepted(flat()).manifest)
    assert dump(accepted(once).manifest) == once
    assert warnings(once) == []


@pytest.mark.parametrize("field", [*BLOCKS, "engines"])
def test_shapes_may_not_be_mixed(field: str) -> None:
    top = {field: BLOCKS.get(field, [an_engine()])}
    want = [
        (
            f"spec.{field}: not allowed together with spec.template; move it to "
            f"spec.template.spec.{field}"
        )
    ]
    assert problems(a_deployment(top=top)) == want


def test_a_template_with_only_labels_next_to_engines_is_a_mixed_shape_too() -> None:
    document = flat(template={"metadata": {"labels": {"a": "b"}}})
    assert problems(document) == [
        (
            "spec.engines: not allowed together with spec.template; move it to "
            "spec.template.spec.engines"
        ),
        "spec.template.spec: required field is missing",
    ]


@pytest.mark.parametrize("field", REMOVED)
def test_a_removed_field_is_refused_with_its_successor(field: str) -> None:
    (problem,) = problems(flat(**{field: {}}))
    assert problem == f"spec.{field}: {REMOVED[field]}"
    assert "; " in problem or "name the model" in problem


LABEL = "must be a DNS label: lower-case letters, digits, hyphen"
VALUED = {"operator": "Exists", "value": "x"}

PATHS = [
    (
        "a missing engine list",
        flat(engines=CUT, tolerations=[{"key": "a"}]),
        "spec.engines: required field is missing",
    ),
    (
        "a bad engine name",
        flat(engines=[an_engine(name="A")]),
        f"spec.engines[name=A].name: {LABEL}",
    ),
    (
        "a bad toleration",
        flat(tolerations=[VALUED]),
        "spec.tolerations[0].value: operator Exists takes no value",
    ),
    (
        "a bad copy count",
        flat(engines=[an_engine(copies=65)]),
        "spec.engines[name=a].copies: must be between 1 and 64, got 65",
    ),
    (
        "an unknown field",
        flat(engines=[an_engine(copys=2)]),
        "spec.engines[name=a].copys: unknown field, did you mean copies?",
    ),
]


@pytest.mark.parametrize(
    ("document", "want"), [case[1:] for case in PATHS], ids=[case[0] for case in PATHS]
)
def test_errors_are_reported_with_paths_as_the_user_wrote_them(
    document: dict[str, Any], want: str
) -> None:
    document["spec"] = {
        key: value for key, value in document["spec"].items() if value is not CUT
    }
    assert problems(document) == [want]


def test_a_null_counts_as_absent_before_the_shape_is_judged() -> None:
    assert problems(flat(template=None, workers=None)) == []
