"""What admission says about data parallelism and flow control (spec/api.md 3 to 6; ruling H10)."""

from typing import Any

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
