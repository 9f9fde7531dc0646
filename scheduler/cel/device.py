"""What a selector sees as `device`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from scheduler.cel.amounts import parse_amount
from scheduler.cel.errors import EvalError
from scheduler.cel.values import INT64_MAX, INT64_MIN, MapValue, string_map
from scheduler.devices import DeviceEntry
from scheduler.semver import parse_version

_NO_NAMES = string_map({})


def _attribute(kind: str, value: object) -> Any:
    """One attribute as a CEL value.

    Raises:
        ValueError: the value does not fit its type.

    """
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "version" and isinstance(value, str):
        return parse_version(value)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and INT64_MIN <= value <= INT64_MAX:
        return int(value)
    raise ValueError(f"{value!r} is not a {kind}; an attribute is a string, a version, a bool or a 64-bit int")


def _by_domain(driver: str, values: dict[str, Any]) -> MapValue:
    """Group `domain/id` names by domain; a name without one belongs to the driver. An unknown domain is an empty map."""
    domains: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, {})[identifier] = value
    return string_map({domain: string_map(names) for domain, names in domains.items()}, default=_NO_NAMES)


def device_value(device: DeviceEntry) -> MapValue | EvalError:
    """The value of `device` for one entry.

    Returns:
        A map, or an error value if any attribute or capacity is malformed: Kubernetes then fails every selector on the device,
        also one that reads something else.

    """
    attributes: dict[str, Any] = {}
    capacity: dict[str, Any] = {}
    try:
        for name, kind, value in device.attributes:
            where = f"attribute {name}"
            attributes[name] = _attribute(kind, value)
        for name, text in device.capacity:
            where = f"capacity {name}"
            capacity[name] = parse_amount(text)
    except ValueError as error:
        return EvalError(f"device {device.name}: {where}: {error}")
    return string_map(
        {
            "driver": device.driver,
            "attributes": _by_domain(device.driver, attributes),
            "capacity": _by_domain(device.driver, capacity),
        },
    )


class _ByContent:
    """A device that is equal to any other that selectors cannot tell apart."""

    __slots__ = ("device",)

    def __init__(self, device: DeviceEntry) -> None:
        self.device = device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByContent) and self.device.selector_digest == other.device.selector_digest

    def __hash__(self) -> int:
        return hash(self.device.selector_digest)


@lru_cache(maxsize=16_384)
def _bound(content: _ByContent) -> MapValue | EvalError:
    return device_value(content.device)


def bind(device: DeviceEntry) -> MapValue | EvalError:
    """`device_value`, remembered by content."""
    return _bound(_ByContent(device))
