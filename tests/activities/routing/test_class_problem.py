"""Why the GatewayClasses of the control cluster cannot be read, as the gateway is told it; no server is needed."""

from activities.cluster_objects.ownership import Owner
from activities.observe.control import GatewaySeen
from activities.routing.watch import ControlIndex
from activities.watching.reflector import Key
from api_types.clock import utc_now
from api_types.errors import PermissionDenied, ServerError

GATEWAY = Owner("InferenceGateway", "", "default", "g")


def test_a_problem_whose_text_varies_with_each_attempt_is_told_once() -> None:
    told: list[Owner] = []
    index = ControlIndex(GATEWAY, told.append)
    index.put_gateway(Key("", "g"), GatewaySeen(accepted=True, address="", message="", gateway_class="c"))
    problems = []
    for error in (ServerError("request 1"), ServerError("request 2"), PermissionDenied("request 3"), None, None, ServerError("request 4")):
        told.clear()
        index.put_class_problem(error)
        gateway = index.observation_for(GATEWAY, utc_now()).observed.gateway
        assert gateway
        problems.append((len(told), gateway.timeouts.problem.partition(";")[0] if gateway.timeouts else ""))
    assert problems == [(1, "request 1"), (0, "request 1"), (1, "request 3"), (1, ""), (0, ""), (1, "request 4")]
