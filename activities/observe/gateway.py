"""The address under which a cluster's models are reached, or why there is none yet."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from activities.observe.conditions import condition
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE
from api_types.text.printable import escaped

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*")
_HOST_MAX = 253
_SHOWN_MAX = 80
WHERE = f"Gateway {SYSTEM_NAMESPACE}/{GATEWAY_NAME}"


class GatewayState(NamedTuple):
    """An address, empty until it serves, and then a message that says why. Both are empty while nothing is known."""

    address: str
    message: str


class Address(NamedTuple):
    """An address of a Gateway, or what is wrong with it."""

    value: str
    problem: str


UNKNOWN_GATEWAY = GatewayState("", "")


def observe_gateway(gateway: dict[str, Any] | None) -> GatewayState:
    """Read the Gateway object; None if it does not exist or the cluster serves no Gateway API."""
    if gateway is None:
        return GatewayState("", f"{WHERE} does not exist")
    for kind in ("Accepted", "Programmed"):
        found = condition(gateway, kind)
        if not found.is_true:
            return GatewayState("", f"{WHERE}: {found.text}")
    address = address_of(gateway)
    return GatewayState(address.value, "" if address.value else f"{WHERE} {address.problem}")


def address_of(gateway: Mapping[str, Any]) -> Address:
    """Give the first address of a Gateway. It becomes the host of URLs, so what is neither an IP address nor a host name is none."""
    addresses = [entry.get("value") for entry in (gateway.get("status") or {}).get("addresses") or ()]
    first = addresses[0] if addresses else ""
    if not first:
        return Address("", "has no address yet")
    if isinstance(first, str) and _is_host(first):
        return Address(first, "")
    return Address("", f"has an address that is none: {escaped(str(first)[:_SHOWN_MAX])}")


def _is_host(text: str) -> bool:
    if len(text) <= _HOST_MAX and _HOST.fullmatch(text):
        return True
    try:
        # A zone says something on that machine only, and may be any text.
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False
