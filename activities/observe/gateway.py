"""The address under which a cluster's models are reached, or why there is none yet."""

from typing import Any, NamedTuple

from activities.observe.conditions import condition
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE

WHERE = f"Gateway {SYSTEM_NAMESPACE}/{GATEWAY_NAME}"


class GatewayState(NamedTuple):
    """An address, empty until it serves, and then a message that says why. Both are empty while nothing is known."""

    address: str
    message: str


UNKNOWN_GATEWAY = GatewayState("", "")


def observe_gateway(gateway: dict[str, Any] | None) -> GatewayState:
    """Read the Gateway object; None if it does not exist or the cluster serves no Gateway API."""
    if gateway is None:
        return GatewayState("", f"{WHERE} does not exist")
    for kind in ("Accepted", "Programmed"):
        found = condition(gateway, kind)
        if not found.is_true:
            return GatewayState("", f"{WHERE}: {found.text}")
    addresses = [entry.get("value") for entry in (gateway.get("status") or {}).get("addresses") or []]
    if not addresses or not addresses[0]:
        return GatewayState("", f"{WHERE} has no address yet")
    return GatewayState(str(addresses[0]), "")
