"""References to other objects are rejected if no object can have the name."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.api_types.builders import (
    a_cache,
    a_container,
    a_deployment,
    a_document,
    a_member,
    an_engine,
    problems,
)

NOT_A_NAME = "not the name of an object; use lower-case letters, digits, '-' and '.', at most 253"
NOT_A_KEY = "not a key; use letters, digits, '-', '_' and '.', at most 253"
A_FOLDER = "not a key; it may not be '.', nor begin with '..'"
NAMES = ["a", "0", "hub-token", "a.b-c.d", "a" * 253]
NO_NAMES = [
    "../other/x",
    "Hub Token",
    "a\u0000",
    "a..b",
    "a.-b",
    "-a",
    "a-",
    ".a",
    "a\n",
    "é",
    "a" * 254,
]
KEYS = ["HF_TOKEN", ".dockerconfigjson", "a..b", "a." * 126 + "a", "_"]
NO_KEYS = {
    "a b/../c": NOT_A_KEY,
    "a\n": NOT_A_KEY,
    "é": NOT_A_KEY,
    ".": A_FOLDER,
    "..": A_FOLDER,
    "..data": A_FOLDER,
}
LONG_KEY = "a" * 254
OCI = {"image": "registry.example/m:1", "sizeGiB": 1}
BUCKET = {"bucket": "models", "region": "eu-central-1", "sizeGiB": 1}
ENV = (
    "spec.template.spec.engines[name=a].members[0].template.spec.containers[0]"
    ".env[name=X].valueFrom"
)
PULL = "spec.template.spec.engines[name=a].members[0].template.spec.imagePullSecrets[0]"

Make = Callable[[dict[str, Any]], dict[str, Any]]


def with_variable(source: str) -> Make:
    def make(reference: dict[str, Any]) -> dict[str, Any]:
        return a_deployment(
            an_engine(
                a_container(env=[{"name": "X", "valueFrom": {source: reference}}])
            )
        )

    return make


def of_oci(**spec: Any) -> dict[str, Any]:
    return a_document("ModelCache", "w", {"source": "OCI", "oci": OCI, **spec})


WITH_KEY: list[tuple[str, Make]] = [
    (
        "spec.huggingFace.authSecret",
        lambda reference: a_cache({"authSecret": reference}),
    ),
    (
        "spec.s3.authSecret",
        lambda reference: a_document(
            "ModelCache",
            "w",
            {"source": "S3", "s3": {**BUCKET, "authSecret": reference}},
        ),
    ),
    (
        "spec.hydration.proxy.urlSecret",
        lambda reference: a_cache(hydration={"proxy": {"urlSecret": reference}}),
    ),
    (
        "spec.hydration.caBundle.configMapKeyRef",
        lambda reference: a_cache(
            hydration={"caBundle": {"configMapKeyRef": reference}}
        ),
    ),
    (f"{ENV}.secretKeyRef", with_variable("secretKeyRef")),
    (f"{ENV}.configMapKeyRef", with_variable("configMapKeyRef")),
]
BY_NAME: list[tuple[str, Callable[[str], dict[str, Any]]]] = [
    *(
        (f"{path}.name", lambda name, make=make: make({"name": name, "key": "k"}))
        for path, make in WITH_KEY
    ),
    ("spec.oci.pullSecret", lambda name: of_oci(oci={**OCI, "pullSecret": name})),
    (
        "spec.hydration.imagePullSecrets[0].name",
        lambda name: a_cache(hydration={"imagePullSecrets": [{"name": name}]}),
    ),
    (
        "spec.hydration.serviceAccountName",
        lambda name: a_cache(hydration={"serviceAccountName": name}),
    ),
    (
        "spec.volume.storageClassName",
        lambda name: a_cache(volume={"storageClassName": name}),
    ),
    (
        "spec.template.spec.modelCacheRef.name",
        lambda name: a_deployment(modelCacheRef={"name": name}),
    ),
    (
        f"{PULL}.name",
        lambda name: a_deployment(
            an_engine(
                a_member(template={"spec": {"imagePullSecrets": [{"name": name}]}})
            )
        ),
    ),
]
# The type of these fields bounds the length, with its own error text.
BOUNDED = ("spec.hydration.", "spec.volume.")


@pytest.mark.parametrize(("path", "make"), BY_NAME, ids=[path for path, _ in BY_NAME])
def test_names_that_no_object_can_have_are_refused(
    path: str, make: Callable[[str], dict[str, Any]]
) -> None:
    for name in NO_NAMES:
        if len(name) <= 253 or not path.startswith(BOUNDED):
            assert problems(make(name)) == [f"{path}: {NOT_A_NAME}"], name
    assert problems(make("")) in (
        [f"{path}: {NOT_A_NAME}"],
        [f"{path}: must not be empty"],
    )


@pytest.mark.parametrize(
    "make", [make for _, make in BY_NAME], ids=[path for path, _ in BY_NAME]
)
def test_names_that_an_object_can_have_are_accepted(
    make: Callable[[str], dict[str, Any]],
) -> None:
    assert {name: problems(make(name)) for name in NAMES} == {
        name: [] for name in NAMES
    }


@pytest.mark.parametrize(("path", "make"), WITH_KEY, ids=[path for path, _ in WITH_KEY])
def test_keys_that_no_object_can_have_are_refused(path: str, make: Make) -> None:
    for key, says in NO_KEYS.items():
        assert problems(make({"name": "a", "key": key})) == [f"{path}.key: {says}"], key
    if not path.startswith(BOUNDED):
        assert problems(make({"name": "a", "key": LONG_KEY})) == [
            f"{path}.key: {NOT_A_KEY}"
        ]
        assert problems(make({"name": "a", "key": ""})) == [f"{path}.key: {NOT_A_KEY}"]


@pytest.mark.parametrize(
    "make", [make for _, make in WITH_KEY], ids=[path for path, _ in WITH_KEY]
)
def test_keys_that_an_object_can_have_are_accepted(make: Make) -> None:
    assert {key: problems(make({"name": "a", "key": key})) for key in KEYS} == {
        key: [] for key in KEYS
    }
