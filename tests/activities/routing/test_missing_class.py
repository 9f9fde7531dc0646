"""A Gateway whose GatewayClass does not exist, in signals to its owner.

No server is needed.
"""

import pytest

from activities.cluster_objects.ownership import ObjectOwner
from activities.observe.control import ClassSeen, GatewaySeen
from activities.routing.watch import ControlIndex
from activities.watching.reflector import NamespacedName
from api_types.clock import utc_now
from api_types.errors import ModelplaneError, PermissionDenied

OWNER = ObjectOwner("InferenceGateway", "", "default", "g")
ACCEPTED = GatewaySeen(
    accepted=True, address="192.0.2.1", message="", gateway_class="traefik"
)
MISSING = "Gateway modelplane-system/modelplane: GatewayClass traefik does not exist"


@pytest.mark.parametrize(
    ("listed", "classes", "problem", "expected"),
    [
        pytest.param(False, [], None, (True, ""), id="classes are not listed yet"),
        pytest.param(True, ["traefik"], None, (True, ""), id="its class exists"),
        pytest.param(
            True, ["envoy"], None, (False, MISSING), id="only another class exists"
        ),
        pytest.param(
            True, [], PermissionDenied("no right"), (True, ""), id="no right to read"
        ),
    ],
)
def test_a_gateway_is_accepted_only_while_its_class_exists(
    listed: bool,
    classes: list[str],
    problem: ModelplaneError | None,
    expected: tuple[bool, str],
) -> None:
    index = ControlIndex(OWNER, lambda _: None)
    index.put_gateway(NamespacedName("", "g"), ACCEPTED)
    for name in classes:
        index.put_class(NamespacedName("", name), ClassSeen())
    if listed:
        index.classes_listed()
    index.put_class_problem(problem)
    seen = index.observation_for(OWNER, utc_now()).observed.gateway
    assert seen is not None
    assert (seen.accepted, seen.message) == expected
    assert seen.address == "192.0.2.1"


def test_a_gateway_is_not_accepted_after_its_class_was_deleted() -> None:
    index = ControlIndex(OWNER, lambda _: None)
    index.put_gateway(NamespacedName("", "g"), ACCEPTED)
    index.put_class(NamespacedName("", "traefik"), ClassSeen())
    index.classes_listed()
    index.put_class(NamespacedName("", "traefik"), None)
    seen = index.observation_for(OWNER, utc_now()).observed.gateway
    assert seen is not None
    assert (seen.accepted, seen.message) == (False, MISSING)
