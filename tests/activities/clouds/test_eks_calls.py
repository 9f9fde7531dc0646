"""The arguments of calls to AWS, validated with botocore's model for every shape of
pool.
"""

from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.model import OperationModel

from activities.clouds.desired.graph import CloudCall
from tests.activities.clouds.builders import BLOCK, an_eks_pool, eks, facts_in, filled
from tests.activities.clouds.requests import problems

MADE = eks(
    an_eks_pool("fixed"),
    an_eks_pool("scaled", nodeCount=0, minNodeCount=0, maxNodeCount=4),
    an_eks_pool("efa", className="p5en", fabric={"type": "EFA"}),
    an_eks_pool(
        "block", className="p5en", capacityBlock={"capacityReservationId": BLOCK}
    ),
    an_eks_pool(
        "both",
        className="p5en",
        fabric={"type": "EFA"},
        capacityBlock={"capacityReservationId": BLOCK},
    ),
)
SESSION = botocore.session.get_session()
AWS = ("ec2", "eks", "iam", "efs")
CALLS = [
    (each.key, call)
    for each in MADE.objects
    for call in each.calls
    if call.service in AWS
]
IDS = [f"{key} {call.operation} {number}" for number, (key, call) in enumerate(CALLS)]


def operation_of(call: CloudCall) -> OperationModel:
    service = SESSION.get_service_model(call.service)
    (name,) = [
        name for name in service.operation_names if xform_name(name) == call.operation
    ]
    return service.operation_model(name)


@pytest.mark.parametrize(("key", "call"), CALLS, ids=IDS)
def test_arguments_match_the_services_model(key: str, call: CloudCall) -> None:
    assert problems(filled(call), operation_of(call)) == [], key


@pytest.mark.parametrize(("key", "call"), CALLS, ids=IDS)
def test_facts_are_in_the_answer_of_the_call(key: str, call: CloudCall) -> None:
    for path in call.facts.values():
        shape: Any = operation_of(call).output_shape
        for part in path.split("."):
            shape = shape.members[part]
        assert shape.type_name in {"string", "long"}, key


def test_every_fact_that_is_needed_is_reported_by_an_object_that_is_needed() -> None:
    reported = {
        each.key: {name for call in each.calls for name in call.facts}
        for each in MADE.objects
    }
    before: dict[str, set[str]] = {}
    for each in MADE.objects:
        before[each.key] = {
            each.key,
            *(key for need in each.needs for key in before[need]),
        }
        for call in each.calls:
            for fact in facts_in(call.parameters):
                assert fact.key in before[each.key], (each.key, fact)
                assert fact.name in reported[fact.key], (each.key, fact)


def test_create_calls_have_a_token_where_the_service_accepts_one() -> None:
    """Calls for associations and tags need none, because they are idempotent."""
    without = []
    for key, call in CALLS:
        shape: Any = operation_of(call).input_shape
        tokens = [
            name
            for name in ("ClientToken", "clientRequestToken", "CreationToken")
            if name in shape.members
        ]
        if tokens and not set(tokens) & set(call.parameters):
            without.append((key, call.operation))
    assert without == []
