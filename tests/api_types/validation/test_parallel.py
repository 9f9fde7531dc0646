"""What admission says about data parallelism and flow control (spec/api.md 3 to 6; ruling H10)."""

from typing import Any

import pytest

from tests.api_types.builders import a_deployment, a_replica, an_engine, merged, problems

SHARED = "all engines of a replica share the ports of one pool; give each the same dataParallel.size, got 8 and 1"


def test_every_field_is_accepted() -> None:
    serving = {"mode": "Unified", "flowControl": {"maxRequests": 500, "queueSeconds": 30}}
    assert problems(a_deployment(an_engine(dataParallel={"size": 8}), serving=serving)) == []


def test_engines_of_one_replica_have_the_same_ranks() -> None:
    engines = [an_engine(dataParallel={"size": 8}), an_engine(name="b")]
    assert problems(a_deployment(*engines)) == [f"spec.template.spec.engines[name=b].dataParallel: {SHARED}"]
    assert problems(a_deployment(engines[0], an_engine(name="b", dataParallel={"size": 8}))) == []
    assert problems(a_deployment(an_engine(dataParallel={"size": 1}), an_engine(name="b"))) == []


def test_a_replica_is_checked_too() -> None:
    engine: dict[str, Any] = a_replica()["spec"]["engines"][0]
    engines = [{**engine, "dataParallel": {"size": 8}}, {**engine, "name": "b"}]
    assert problems(merged(a_replica(), {"spec": {"engines": engines}})) == [f"spec.engines[name=b].dataParallel: {SHARED}"]


PRECISE = {"mode": "Precise", "modelName": "acme/qwen", "tokenizerUrl": "http://render.ml.svc:8000"}
CACHE = "spec.template.spec.serving.prefixCache"
ADDRESS = "must be an address that begins with http:// or https://"


def followed(change: dict[str, Any], mode: str = "Unified", **engine: Any) -> list[str]:
    """Give what is said against precise prefix caching with a change."""
    wanted = {key: value for key, value in (PRECISE | change).items() if value is not None}
    return problems(a_deployment(an_engine(**engine), serving={"mode": mode, "prefixCache": wanted}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"eventsPort": 5556}, []),
        ({"modelName": None}, [f"{CACHE}.modelName: is needed with mode Precise"]),
        ({"tokenizerUrl": None}, [f"{CACHE}.tokenizerUrl: is needed with mode Precise"]),
        ({"tokenizerUrl": "render:8000"}, [f"{CACHE}.tokenizerUrl: {ADDRESS}"]),
        ({"tokenizerUrl": "file:///etc/passwd"}, [f"{CACHE}.tokenizerUrl: {ADDRESS}"]),
        ({"tokenizerUrl": "http://a b"}, [f"{CACHE}.tokenizerUrl: must be printable ASCII without spaces"]),
        (
            {"tokenizerUrl": "http://u:p@render"},
            [f"{CACHE}.tokenizerUrl: credentials do not belong in a URL; it is stored and shown in plain text"],
        ),
        (
            {"mode": "Approximate"},
            [
                f"{CACHE}.{field}: is read with mode Precise alone; set the mode, or remove the field"
                for field in ("modelName", "tokenizerUrl")
            ],
        ),
        ({"mode": "Approximate", "modelName": None, "tokenizerUrl": None}, []),
    ],
)
def test_precise_prefix_caching_has_all_that_it_needs(change: dict[str, Any], said: list[str]) -> None:
    assert followed(change) == said


def test_precise_prefix_caching_is_refused_where_it_cannot_be_followed() -> None:
    (ranked,) = followed({}, dataParallel={"size": 2})
    assert ranked == f"{CACHE}: mode Precise follows one stream of events per pod, and engines have 2 ranks; use mode Approximate"
    serving = {"mode": "PrefillDecode", "prefixCache": PRECISE}
    pair = [an_engine(name="a", phase="Prefill"), an_engine(name="b", phase="Decode")]
    (paired,) = problems(a_deployment(*pair, serving=serving))
    assert paired.startswith(f"{CACHE}: mode Precise is for serving.mode Unified: ")


def test_a_replica_is_checked_for_it_too() -> None:
    found = problems(merged(a_replica(), {"spec": {"serving": {"prefixCache": {"mode": "Precise", "modelName": "x"}}}}))
    assert found == ["spec.serving.prefixCache.tokenizerUrl: is needed with mode Precise"]
