"""Why GatewayClasses of the control cluster cannot be read, in signals to the gateway.

No server is needed.
"""

from activities.cluster_objects.ownership import ObjectOwner
from activities.observe.control import GatewaySeen
from activities.routing.watch import ControlIndex
from activities.watching.reflector import NamespacedName
from api_types.clock import utc_now
from api_types.errors import PermissionDenied, ServerError

GATEWAY = ObjectOwner("InferenceGateway", "", "default", "g")


def test_a_problem_whose_text_varies_with_each_attempt_is_reported_once() -> None:
    told: list[ObjectOwner] = []
    index = ControlIndex(GATEWAY, told.append)
    index.put_gateway(
        NamespacedName("", "g"),
        GatewaySeen(accepted=True, address="", message="", gateway_class="c"),
    )
    problems = []
    for error in (
        ServerError("request 1"),
        ServerError("request 2"),
        PermissionDenied("request 3"),
        None,
        None,
        ServerError("request 4"),
    ):
        told.clear()
        index.put_class_problem(error)
        gateway = index.observation_for(GATEWAY, utc_now()).observed.gateway
        assert gateway
        problems.append(
            (
                len(told),
                gateway.timeouts.problem.partition(";")[0] if gateway.timeouts else "",
            )
        )
    assert problems == [
        (1, "request 1"),
        (0, "request 1"),
        (1, "request 3"),
        (1, ""),
        (0, ""),
        (1, "request 4"),
    ]
