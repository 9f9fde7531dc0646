"""The address at which a cluster's models are reachable, or why there is none yet."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from activities.observe.conditions import condition
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE
from api_types.text.printable import escaped

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_HOST_MAX = 253
_SHOWN_MAX = 80
WHERE = f"Gateway {SYSTEM_NAMESPACE}/{GATEWAY_NAME}"


class GatewayReading(NamedTuple):
    """The address of a gateway, or a message that explains why there is none.

    Both are empty while nothing is known.
    """

    address: str
    message: str


class Address(NamedTuple):
    """An address of a Gateway, or the problem with it."""

    value: str
    problem: str


UNKNOWN_GATEWAY = GatewayReading("", "")


def observe_gateway(gateway: dict[str, Any] | None) -> GatewayReading:
    """Read the Gateway, which is None if it or the Gateway API does not exist."""
    if gateway is None:
        return GatewayReading("", f"{WHERE} does not exist")
    for kind in ("Accepted", "Programmed"):
        found = condition(gateway, kind)
        if not found.is_true:
            return GatewayReading("", f"{WHERE}: {found.text}")
    address = address_of(gateway)
    return GatewayReading(
        address.value, "" if address.value else f"{WHERE} {address.problem}"
    )


def address_of(gateway: Mapping[str, Any]) -> Address:
    """Return the first address of a Gateway.

    It becomes the host of URLs, so it must be an IP address or a host name.
    """
    addresses = [
        entry.get("value")
        for entry in (gateway.get("status") or {}).get("addresses") or ()
    ]
    first = addresses[0] if addresses else ""
    if not first:
        return Address("", "has no address yet")
    if isinstance(first, str) and _is_host(first):
        return Address(first, "")
    shown = escaped(str(first)[:_SHOWN_MAX])
    return Address("", f"has an invalid address: {shown}")


def _is_host(text: str) -> bool:
    if len(text) <= _HOST_MAX and _HOST.fullmatch(text):
        return True
    try:
        # A zone is valid on one machine only, and may be any text.
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False
