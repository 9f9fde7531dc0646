"""The message that tells a deployment of an eviction."""

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
