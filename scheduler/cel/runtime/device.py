"""The value of `device` in a selector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.amounts import parse_amount
from scheduler.cel.runtime.values import INT64_MAX, INT64_MIN, MapValue, string_map
from scheduler.kubernetes.semver import parse_version
from scheduler.model.devices import DeviceEntry

_NO_NAMES = string_map({})


def _attribute(kind: str, value: object) -> Any:
    """Return one attribute as a CEL value.

    Raises:
        ValueError: the value does not fit its type.

    """
    if kind == "string" and isinstance(value, str):
        value.encode()  # a lone surrogate is not valid text, and RE2 cannot process it
        return value
    if kind == "version" and isinstance(value, str):
        return parse_version(value)
    if kind == "bool" and isinstance(value, bool):
        return value
    if (
        kind == "int"
        and isinstance(value, int)
        and not isinstance(value, bool)
        and INT64_MIN <= value <= INT64_MAX
    ):
        return int(value)
    raise ValueError(
        f"{value!r} is not a {kind}; an attribute is a string, a version, a bool or a 64-bit int"
    )


def _by_domain(driver: str, values: dict[str, Any]) -> MapValue:
    """Group `domain/id` names by domain.

    A name without a domain belongs to the driver. An unknown domain is an empty map.
    """
    domains: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, {})[identifier] = value
    return string_map(
        {domain: string_map(names) for domain, names in domains.items()},
        default=_NO_NAMES,
    )


@dataclass(frozen=True, slots=True)
class CelDevice:
    """The part of a device that is the same in every evaluation."""

    driver: str
    attributes: MapValue
    capacity: tuple[tuple[str, str], ...]

    def value(self) -> MapValue:
        """Return the value of `device` for one evaluation.

        Quantities may change during an evaluation, so each evaluation has new ones.
        """
        amounts = {
            name: parse_amount(text, published=True) for name, text in self.capacity
        }
        return string_map(
            {
                "driver": self.driver,
                "attributes": self.attributes,
                "capacity": _by_domain(self.driver, amounts),
                # A class describes devices that are allocated once.
                "allowMultipleAllocations": False,
            }
        )


class _ByContent:
    """A cache key that is equal for entries with the same visible content."""

    __slots__ = ("entry",)

    def __init__(self, entry: DeviceEntry) -> None:
        self.entry = entry

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _ByContent)
            and self.entry.selector_digest == other.entry.selector_digest
        )

    def __hash__(self) -> int:
        return hash(self.entry.selector_digest)


@lru_cache(maxsize=16_384)
def _read(content: _ByContent) -> CelDevice | EvalError:
    entry = content.entry
    attributes: dict[str, Any] = {}
    try:
        for name, kind, value in entry.attributes:
            where = f"attribute {name}"
            attributes[name] = _attribute(kind, value)
        for name, text in entry.capacity:
            where = f"capacity {name}"
            parse_amount(text)
    except ValueError as error:
        return EvalError(f"{where}: {error}")
    return CelDevice(entry.driver, _by_domain(entry.driver, attributes), entry.capacity)


def read_device(entry: DeviceEntry) -> CelDevice | EvalError:
    """Read an entry, once per content.

    Returns:
        The device, or an error value if any attribute or capacity is malformed. Kubernetes then
        fails every selector on it, including selectors that do not read that value.

    """
    return _read(_ByContent(entry))
