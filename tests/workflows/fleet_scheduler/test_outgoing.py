"""The messages in which the scheduler sends its decisions to a deployment."""

import pytest

from scheduler import Decision, Eviction, Fleet
from tests.scheduler.builders import deployment, engine
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.outgoing import eviction, placement_response

TAINT = "the taint gpu=broken:NoExecute is not tolerated"


@pytest.mark.parametrize(
    ("detail", "reason"), [(TAINT, TAINT), ("", "TaintNotTolerated")]
)
def test_an_eviction_has_the_detail_or_else_the_reason(
    detail: str, reason: str
) -> None:
    victim = Eviction(
        "u-1", "chat-a-0", "a", "TaintNotTolerated", detail, "default", "chat"
    )
    view = deployment(engine())
    request = place(view)
    decision = Decision(
        request.request_id, view.namespace, view.name, desired=1, evictions=(victim,)
    )
    assert [
        evicted.reason
        for evicted in placement_response(request, decision, Fleet(), 1, "v").evictions
    ] == [reason]
    assert eviction(victim, 1).payload["eviction"]["reason"] == reason


@pytest.mark.parametrize(
    ("deadline", "seconds"), [(0, 0), (61_000, 61), (61_001, 62), (900, 1)]
)
def test_an_answer_has_the_time_until_the_budget_of_a_drain_ends(
    deadline: int, seconds: int
) -> None:
    """It is a duration, because the clock of the deployment may differ."""
    view = deployment(engine())
    request = place(view)
    decision = Decision(
        request.request_id,
        view.namespace,
        view.name,
        desired=1,
        now=0,
        drain_deadline=deadline,
    )
    answer = placement_response(request, decision, Fleet(), 1, "v")
    assert answer.drain_due_seconds == seconds
