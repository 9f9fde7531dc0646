"""A misplaced field of engine pods is rejected with its correct place."""

from typing import Any

import pytest

from tests.api_types.builders import (
    a_cache,
    a_container,
    a_deployment,
    a_member,
    an_engine,
    problems,
)

TEMPLATE = "spec.template.spec"
ENGINE = f"{TEMPLATE}.engines[name=a]"
MEMBER = f"{ENGINE}.members[0]"
POD = f"{MEMBER}.template.spec"
STOP = "engines[].drain"
LOAD = "engines[].members[].probes"
OF_AN_ENGINE = f"{TEMPLATE}.engines[], next to members"
OF_A_REPLICA = f"{TEMPLATE}, next to engines"
CLASS = "podPolicy of the nodes' InferenceClass"


def in_pod(**fields: Any) -> dict[str, Any]:
    return a_deployment(an_engine(a_member(template={"spec": fields})))


CASES: list[tuple[dict[str, Any], str, str]] = [
    (a_deployment(top={"dataParallel": {}}), "spec.dataParallel", OF_AN_ENGINE),
    (a_deployment(top={"flowControl": {}}), "spec.flowControl", f"{TEMPLATE}.serving"),
    (a_deployment(top={"prefixCache": {}}), "spec.prefixCache", f"{TEMPLATE}.serving"),
    (a_deployment(shmSize="8Gi"), f"{TEMPLATE}.shmSize", CLASS),
    (
        a_deployment(an_engine(prefixCache={})),
        f"{ENGINE}.prefixCache",
        f"{TEMPLATE}.serving",
    ),
    (a_deployment(an_engine(a_member(shmSize="8Gi"))), f"{MEMBER}.shmSize", CLASS),
    (
        a_deployment(an_engine(a_member(serving={}))),
        f"{MEMBER}.serving",
        f"further up: write it in {TEMPLATE}",
    ),
    (
        in_pod(worker={}),
        f"{POD}.worker",
        f"further up: write it in {TEMPLATE}.engines[].members[]",
    ),
    (
        a_cache({"hydration": {}}),
        "spec.huggingFace.hydration",
        "further up: write it in spec",
    ),
    (
        a_deployment(top={"drain": {"preStopSeconds": 30}}),
        "spec.drain.preStopSeconds",
        STOP,
    ),
    (
        a_deployment(top={"drain": {"graceSeconds": 30}}),
        "spec.drain.graceSeconds",
        STOP,
    ),
    (a_deployment(drain={"preStopSeconds": 30}), f"{TEMPLATE}.drain", STOP),
    (a_deployment(adapters=[]), f"{TEMPLATE}.adapters", OF_AN_ENGINE),
    (a_deployment(podPolicy={}), f"{TEMPLATE}.podPolicy", CLASS),
    (a_deployment(probes={}), f"{TEMPLATE}.probes", LOAD),
    (a_deployment(an_engine(disruption={})), f"{ENGINE}.disruption", OF_A_REPLICA),
    (
        a_deployment(an_engine(modelCacheRef={})),
        f"{ENGINE}.modelCacheRef",
        OF_A_REPLICA,
    ),
    (
        a_deployment(an_engine(flowControl={})),
        f"{ENGINE}.flowControl",
        f"{TEMPLATE}.serving",
    ),
    (a_deployment(an_engine(probes={})), f"{ENGINE}.probes", LOAD),
    (a_deployment(an_engine(a_member(drain={}))), f"{MEMBER}.drain", STOP),
    (
        a_deployment(an_engine(a_member(dataParallel={}))),
        f"{MEMBER}.dataParallel",
        OF_AN_ENGINE,
    ),
    (
        in_pod(terminationGracePeriodSeconds=60),
        f"{POD}.terminationGracePeriodSeconds",
        STOP,
    ),
    (in_pod(runtimeClassName="nvidia"), f"{POD}.runtimeClassName", CLASS),
    (
        a_deployment(an_engine(a_container(lifecycle={}))),
        f"{POD}.containers[0].lifecycle",
        STOP,
    ),
    (
        a_deployment(an_engine(a_container(livenessProbe={}))),
        f"{POD}.containers[0].livenessProbe",
        LOAD,
    ),
    (
        a_deployment(an_engine(a_container(securityContext={}))),
        f"{POD}.containers[0].securityContext",
        CLASS,
    ),
]


@pytest.mark.parametrize(
    ("document", "field", "belongs"), CASES, ids=[row[1] for row in CASES]
)
def test_a_misplaced_field_is_reported_with_its_place(
    document: dict[str, Any], field: str, belongs: str
) -> None:
    [problem] = problems(document)
    assert problem.startswith(f"{field}: unknown field; ")
    assert belongs in problem


def test_an_unknown_field_has_no_place() -> None:
    assert problems(a_cache({"colour": {}})) == [
        "spec.huggingFace.colour: unknown field"
    ]
    assert problems(a_deployment(an_engine(a_member(replicas=1)))) == [
        f"{MEMBER}.replicas: unknown field"
    ]


def test_an_unsupported_source_is_reported_with_the_one_to_use() -> None:
    said = 'spec.source: must be HuggingFace, OCI or S3, got "{}"'
    assert problems(a_cache(source="Azure")) == [said.format("Azure")]
    (gcs,) = problems(a_cache(source="GCS"))
    assert gcs.startswith(
        f"{said.format('GCS')}; read a GCS bucket with source S3: set s3.endpoint "
        "to https://storage.googleapis.com"
    )


def test_a_field_that_is_already_written_is_not_suggested() -> None:
    assert problems(a_cache({"revison": "main"})) == [
        "spec.huggingFace.revison: unknown field, did you mean revision?"
    ]
    assert problems(a_cache({"revison": "main", "revision": "main"})) == [
        "spec.huggingFace.revison: unknown field"
    ]
