"""Secrets and ConfigMaps reach the store, and no output shows their values."""

from typing import Any

import pytest

from api_types.validation.manifests import (
    Admitted,
    InvalidManifest,
    admit,
    admit_all,
    dump,
)
from fleet_client.checks import CHECKS
from tests.api_types.builders import a_service

SECRET_TEXT = "hf_Sup3rS3cret"  # noqa: S105 - made up, so that a leak can be seen


def a_secret(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, **fields}


def a_config_map(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        **fields,
    }


def admitted(document: dict[str, Any]) -> Admitted:
    return admit(document, CHECKS, "ml")


def said(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidManifest) as caught:
        admitted(document)
    return str(caught.value)


def test_a_secret_is_admitted_with_its_values_and_the_default_namespace() -> None:
    document = a_secret(
        type="Opaque", stringData={"token": SECRET_TEXT}, data={"other": "aGVsbG8="}
    )
    want = {**document, "metadata": {"name": "hub", "namespace": "ml"}}
    assert dump(admitted(document).manifest) == want


def test_a_config_map_is_admitted() -> None:
    document = a_config_map(data={"a": "b"}, binaryData={"c": "aGVsbG8="})
    assert dump(admitted(document).manifest) == {
        **document,
        "metadata": {"name": "settings", "namespace": "ml"},
    }


def test_secrets_come_in_the_order_of_the_file_among_other_objects() -> None:
    kinds = [
        one.manifest.kind
        for one in admit_all([a_secret(), a_service(), a_config_map()], CHECKS)
    ]
    assert kinds == ["Secret", "ModelService", "ConfigMap"]


def test_a_secret_may_lie_in_the_system_namespace() -> None:
    document = a_secret(
        metadata={"name": "kube", "namespace": "modelplane-system"},
        stringData={"kubeconfig": "x"},
    )
    assert admitted(document).manifest.metadata.namespace == "modelplane-system"


def test_values_are_not_part_of_a_repr() -> None:
    manifest = admitted(
        a_secret(stringData={"token": SECRET_TEXT}, data={"t": "SFVTSA=="})
    ).manifest
    assert SECRET_TEXT not in repr(manifest)
    assert "SFVTSA" not in repr(manifest)


def test_names_and_keys_have_at_most_253_characters() -> None:
    longest = a_secret(
        metadata={"name": "a" * 253}, stringData={"k" * 253: SECRET_TEXT}
    )
    assert admitted(longest).manifest.metadata.name == "a" * 253
    too_long = a_secret(
        metadata={"name": "a" * 254}, stringData={"k" * 254: SECRET_TEXT}
    )
    assert "metadata.name: must be a DNS subdomain of at most 253 characters" in said(
        too_long
    )
    assert f"stringData.{'k' * 254}: key must be letters" in said(too_long)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "plain text under data",
        a_secret(data={"token": SECRET_TEXT}),
        "Secret ml/hub: data.token: value is not base64; write plain text under stringData",
    ),
    (
        "a number as value",
        a_secret(stringData={"port": 8080}),
        "Secret ml/hub: stringData.port: must be a string; quote it",
    ),
    (
        "a list as data",
        a_secret(data=[SECRET_TEXT]),
        "Secret ml/hub: data: must be an object",
    ),
    (
        "a misspelt field",
        a_secret(stringdata={"a": SECRET_TEXT}),
        "Secret ml/hub: stringdata: unknown field, did you mean stringData?",
    ),
    (
        "a key with a slash",
        a_secret(stringData={"../a": SECRET_TEXT}),
        "Secret ml/hub: stringData.../a: key must be letters, digits, hyphen, underscore or dot",
    ),
    (
        "a key that is a folder",
        a_secret(stringData={"..": SECRET_TEXT}),
        "Secret ml/hub: stringData...: key must be letters, digits, hyphen, underscore or dot",
    ),
    (
        "no name",
        a_secret(metadata={}),
        "Secret ml/(no name): metadata.name: required field is missing",
    ),
    (
        "a name that leaves its folder",
        a_secret(metadata={"name": "../x"}),
        "Secret ml/../x: metadata.name: must be a DNS subdomain of at most 253 characters",
    ),
    (
        "a namespace that leaves its folder",
        a_secret(metadata={"name": "x", "namespace": ".."}),
        "Secret ../x: metadata.namespace: must be a DNS label: lower-case letters, digits, hyphen",
    ),
    (
        "more than a mebibyte",
        a_config_map(data={"a": "x" * (1024 * 1024 + 1)}),
        "ConfigMap ml/settings: data: values together must be at most 1048576 bytes, got 1048577",
    ),
    (
        "bytes that are not base64",
        a_config_map(binaryData={"a": "%"}),
        "ConfigMap ml/settings: binaryData.a: value is not base64",
    ),
]


@pytest.mark.parametrize(
    ("document", "want"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_a_bad_secret_is_refused_without_showing_a_value(
    document: dict[str, Any], want: str
) -> None:
    text = said(document)
    assert text == want
    assert SECRET_TEXT not in text
