"""Admission of data parallelism and flow control."""

from typing import Any

import pytest

from api_types.resources.parts.probes import FIRST_RANK_ONLY
from tests.api_types.builders import (
    a_deployment,
    a_member,
    a_replica,
    an_engine,
    merged,
    problems,
    warnings,
)

SHARED = (
    "all engines of a replica share the ports of one pool; give each the same "
    "dataParallel.size and loadBalancing, got 8 and 1 ports"
)


def test_every_field_is_accepted() -> None:
    serving = {
        "mode": "Unified",
        "flowControl": {"maxRequests": 500, "queueSeconds": 30},
    }
    assert (
        problems(a_deployment(an_engine(dataParallel={"size": 8}), serving=serving))
        == []
    )


def test_engines_of_one_replica_have_the_same_ranks() -> None:
    engines = [an_engine(dataParallel={"size": 8}), an_engine(name="b")]
    assert problems(a_deployment(*engines)) == [
        f"spec.template.spec.engines[name=b].dataParallel: {SHARED}"
    ]
    assert (
        problems(
            a_deployment(engines[0], an_engine(name="b", dataParallel={"size": 8}))
        )
        == []
    )
    assert (
        problems(a_deployment(an_engine(dataParallel={"size": 1}), an_engine(name="b")))
        == []
    )


def test_a_replica_is_checked_too() -> None:
    engine: dict[str, Any] = a_replica()["spec"]["engines"][0]
    engines = [{**engine, "dataParallel": {"size": 8}}, {**engine, "name": "b"}]
    assert problems(merged(a_replica(), {"spec": {"engines": engines}})) == [
        f"spec.engines[name=b].dataParallel: {SHARED}"
    ]


PRECISE = {
    "mode": "Precise",
    "modelName": "acme/qwen",
    "tokenizerUrl": "http://render.ml.svc:8000",
}
CACHE = "spec.template.spec.serving.prefixCache"
ADDRESS = "must be an address that begins with http:// or https://"


def followed(change: dict[str, Any], mode: str = "Unified", **engine: Any) -> list[str]:
    """Return the problems of precise prefix caching with a change."""
    wanted = {
        key: value for key, value in (PRECISE | change).items() if value is not None
    }
    return problems(
        a_deployment(an_engine(**engine), serving={"mode": mode, "prefixCache": wanted})
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"eventsPort": 5556}, []),
        ({"modelName": None}, [f"{CACHE}.modelName: is required with mode Precise"]),
        (
            {"tokenizerUrl": None},
            [f"{CACHE}.tokenizerUrl: is required with mode Precise"],
        ),
        ({"tokenizerUrl": "render:8000"}, [f"{CACHE}.tokenizerUrl: {ADDRESS}"]),
        ({"tokenizerUrl": "file:///etc/passwd"}, [f"{CACHE}.tokenizerUrl: {ADDRESS}"]),
        (
            {"tokenizerUrl": "http://a b"},
            [f"{CACHE}.tokenizerUrl: must be printable ASCII without spaces"],
        ),
        (
            {"tokenizerUrl": "http://u:p@render"},
            [
                (
                    f"{CACHE}.tokenizerUrl: credentials do not belong in a URL; it is "
                    "stored and shown in plain text"
                )
            ],
        ),
        (
            {"mode": "Approximate"},
            [
                (
                    f"{CACHE}.{field}: is read only with mode Precise; set the mode, "
                    "or remove the field"
                )
                for field in ("modelName", "tokenizerUrl")
            ],
        ),
        ({"mode": "Approximate", "modelName": None, "tokenizerUrl": None}, []),
    ],
)
def test_precise_prefix_caching_requires_its_fields(
    change: dict[str, Any], said: list[str]
) -> None:
    assert followed(change) == said


def test_precise_prefix_caching_is_rejected_for_unsupported_shapes() -> None:
    (ranked,) = followed({}, dataParallel={"size": 2})
    assert ranked == (
        f"{CACHE}: mode Precise follows one stream of events per pod, and engines "
        "have 2 ranks; use mode Approximate"
    )
    serving = {"mode": "PrefillDecode", "prefixCache": PRECISE}
    pair = [an_engine(name="a", phase="Prefill"), an_engine(name="b", phase="Decode")]
    (paired,) = problems(a_deployment(*pair, serving=serving))
    assert paired.startswith(f"{CACHE}: mode Precise is for serving.mode Unified: ")


def test_a_replica_is_checked_for_it_too() -> None:
    found = problems(
        merged(
            a_replica(),
            {
                "spec": {
                    "serving": {"prefixCache": {"mode": "Precise", "modelName": "x"}}
                }
            },
        )
    )
    assert found == [
        "spec.serving.prefixCache.tokenizerUrl: is required with mode Precise"
    ]


def test_events_need_a_separate_port() -> None:
    def said(port: int) -> str:
        return (
            f"{CACHE}.eventsPort: {port} is a port on which the engines accept "
            "requests; use another one, such as 5557"
        )

    assert followed({"eventsPort": 8000}) == [said(8000)]
    assert followed({"eventsPort": 8001}) == followed({"eventsPort": 7999}) == []
    assert said(8001) in followed({"eventsPort": 8001}, dataParallel={"size": 2})


@pytest.mark.parametrize(
    ("size", "probes", "count"),
    [
        (2, {"liveness": {}}, 1),
        (1, {"liveness": {}}, 0),
        (None, {"liveness": {}}, 0),
        (2, {}, 0),
        (2, None, 0),
    ],
)
def test_liveness_of_several_ranks_is_a_warning(
    size: int | None, probes: dict[str, Any] | None, count: int
) -> None:
    ranks: dict[str, Any] = {} if size is None else {"dataParallel": {"size": size}}
    member: dict[str, Any] = {} if probes is None else {"probes": probes}
    path = "engines[name=a].members[0].probes.liveness"
    # The flags of this engine are not known, and are not checked.
    ranks["profile"] = {"name": "Custom"}
    document = a_deployment(an_engine(a_member(**member), **ranks))
    assert (
        warnings(document) == [f"spec.template.spec.{path}: {FIRST_RANK_ONLY}"] * count
    )
    replica = a_replica(**member)
    engines = [{**replica["spec"]["engines"][0], **ranks}]
    assert (
        warnings(merged(replica, {"spec": {"engines": engines}}))
        == [f"spec.{path}: {FIRST_RANK_ONLY}"] * count
    )
