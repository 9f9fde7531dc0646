"""The messages that the scheduler sends: what a deployment reads of a replica that is evicted."""

import pytest

from api_types.messages.scheduling import PlacementRequest
from scheduler import Decision, Eviction, Fleet, to_wire
from tests.scheduler.builders import deployment, engine
from workflows.fleet_scheduler.outgoing import eviction, placement_response

TAINT = "the taint gpu=broken:NoExecute is not tolerated"


@pytest.mark.parametrize(("detail", "reason"), [(TAINT, TAINT), ("", "TaintNotTolerated")])
def test_an_eviction_has_the_detail_if_there_is_one_and_else_the_reason(detail: str, reason: str) -> None:
    victim = Eviction("u-1", "chat-a-0", "a", "TaintNotTolerated", detail, "default", "chat")
    view = deployment(engine())
    request = PlacementRequest(
        request_id="r", namespace=view.namespace, name=view.name, uid=view.uid, generation=1, wanted=1, need=to_wire(view)
    )
    decision = Decision("r", view.namespace, view.name, desired=1, evictions=(victim,))
    assert [evicted.reason for evicted in placement_response(request, decision, Fleet(), 1, "v").evictions] == [reason]
    assert eviction(victim, 1).payload["eviction"]["reason"] == reason
