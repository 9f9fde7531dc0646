"""Errors and warnings about stopping engines and about evictions."""

from typing import Any

import pytest

from api_types.resources.replica_spec import replica_spec
from tests.api_types.builders import (
    GANG_LEADER,
    GANG_WORKER,
    a_deployment,
    an_engine,
    problems,
    warnings,
)

DRAIN = "spec.template.spec.engines[name=a].drain"
LEAST = "spec.template.spec.disruption.minAvailable"
NOT_A_COUNT = 'must be a whole number of at least 0, or a percentage such as "25%"'


def outlasted(sleep: int, grace: int) -> str:
    return (
        f"{DRAIN}.graceSeconds: must be more than preStopSeconds ({sleep}), "
        f"got {grace}: both count from the deletion, and the engine stops in the "
        "time between them; raise it, or lower preStopSeconds"
    )


@pytest.mark.parametrize(
    ("drain", "want"),
    [
        pytest.param({}, [], id="nothing asked"),
        pytest.param({"preStopSeconds": 30}, [], id="only a sleep"),
        pytest.param({"graceSeconds": 1}, [], id="only a grace period"),
        pytest.param(
            {"preStopSeconds": 30, "graceSeconds": 31}, [], id="a second to stop"
        ),
        pytest.param(
            {"preStopSeconds": 30, "graceSeconds": 30},
            [outlasted(30, 30)],
            id="no time to stop",
        ),
        pytest.param(
            {"preStopSeconds": 300, "graceSeconds": 30},
            [outlasted(300, 30)],
            id="a sleep that is cut",
        ),
        pytest.param(
            {"sleep": 30}, [f"{DRAIN}.sleep: unknown field"], id="another field"
        ),
    ],
)
def test_an_engine_has_time_to_stop(drain: dict[str, Any], want: list[str]) -> None:
    assert problems(a_deployment(an_engine(drain=drain))) == want


def too_many(copies: str, got: Any) -> str:
    return (
        f"{LEAST}: must be at most the copies of every engine: engine a has {copies}, "
        f"got {got}; lower it or raise copies"
    )


@pytest.mark.parametrize(
    ("least", "copies", "want"),
    [
        pytest.param(1, 2, [], id="one of two"),
        pytest.param(2, 2, [], id="all"),
        pytest.param(3, 2, [too_many("2 copies", 3)], id="more than there are"),
        pytest.param(2, 1, [too_many("1 copy", 2)], id="two of one"),
        pytest.param("100%", 2, [], id="a share"),
        pytest.param("101%", 2, [f"{LEAST}: {NOT_A_COUNT}"], id="more than all"),
        pytest.param(-1, 2, [f"{LEAST}: {NOT_A_COUNT}"], id="less than none"),
        pytest.param("half", 2, [f"{LEAST}: {NOT_A_COUNT}"], id="no number"),
    ],
)
def test_a_budget_fits_the_copies(least: Any, copies: int, want: list[str]) -> None:
    assert (
        problems(
            a_deployment(an_engine(copies=copies), disruption={"minAvailable": least})
        )
        == want
    )


def blocking(copies: str) -> str:
    return (
        f"{LEAST}: engine a has {copies} and keeps all of them, so kubectl drain waits "
        "on every node with one; raise copies or lower it, or move replicas off the "
        "cluster first with modelplane drain"
    )


@pytest.mark.parametrize(
    ("least", "copies", "want"),
    [
        (1, 1, [blocking("1 copy")]),
        ("1%", 1, [blocking("1 copy")]),
        ("51%", 2, [blocking("2 copies")]),
        (1, 2, []),
        ("50%", 2, []),
        (0, 1, []),
    ],
)
def test_a_budget_under_which_no_node_can_be_drained_is_a_warning(
    least: Any, copies: int, want: list[str]
) -> None:
    assert (
        warnings(
            a_deployment(an_engine(copies=copies), disruption={"minAvailable": least})
        )
        == want
    )


def test_a_group_is_one_copy() -> None:
    gang = an_engine(
        GANG_LEADER | {"template": GANG_WORKER["template"]},
        {**GANG_WORKER, "worker": {"nodes": 3}},
        copies=2,
    )
    assert problems(a_deployment(gang, disruption={"minAvailable": 3})) == [
        too_many("2 copies", 3)
    ]


def test_a_budget_next_to_the_template_is_reported_with_its_place() -> None:
    (problem,) = problems(a_deployment(top={"disruption": {"minAvailable": 1}}))
    assert problem == (
        "spec.disruption: unknown field; it belongs to a replica: write it in "
        "spec.template.spec, next to engines"
    )


def test_a_replica_has_the_settings_of_its_deployment() -> None:
    drain, disruption = {"preStopSeconds": 5}, {"minAvailable": "50%"}
    template = a_deployment(an_engine(drain=drain), disruption=disruption)["spec"][
        "template"
    ]["spec"]
    spec = replica_spec(
        template, "eu-1", [{"engine": "a", "members": [{"pool": "h200"}]}]
    )
    assert (spec["disruption"], spec["engines"][0]["drain"]) == (disruption, drain)
