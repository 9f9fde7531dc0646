"""Device lists of InferenceClasses as device sets: equal lists are one set, wherever they are published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.model.devices import DeviceEntry
from scheduler.model.digests import digest_of
from scheduler.model.inputs import DeviceSet

_VALUE_FIELDS = ("string", "version", "bool", "int")


def device_set(devices: Iterable[Mapping[str, Any]], *, count_default: int = 0) -> DeviceSet:
    """Read a list of devices; an absent count is `count_default` (0 when published, 1 in a class), a negative one 0."""
    entries = tuple(_entry(device, count_default) for device in devices)
    return make_set(entries)


def make_set(entries: tuple[DeviceEntry, ...]) -> DeviceSet:
    """Join entries to a set with a digest over all that placement reads."""
    content = [[e.name, e.claim, e.driver, e.device_class, e.count, e.attributes, e.capacity, e.resource_name] for e in entries]
    return DeviceSet(digest_of(content), entries)


def _entry(device: Mapping[str, Any], count_default: int) -> DeviceEntry:
    count = device.get("count")
    claim = device.get("claim") or "DRA"
    return DeviceEntry(
        name=device["name"],
        claim=claim,
        driver=device.get("driver") or "",
        device_class=(device.get("deviceClassName") or "") if claim == "DRA" else "",
        count=max(0, count_default if count is None else count),
        attributes=tuple(sorted(_attribute(name, value) for name, value in (device.get("attributes") or {}).items())),
        capacity=tuple(sorted((name, str((value or {}).get("value", ""))) for name, value in (device.get("capacity") or {}).items())),
        resource_name=(device.get("resourceName") or "") if claim == "DevicePlugin" else "",
    )


def _attribute(name: str, value: Mapping[str, Any] | None) -> tuple[str, str, object]:
    """Give (name, type, value); without any of the known types the type is empty and the entry malformed."""
    for kind in _VALUE_FIELDS:
        if value and value.get(kind) is not None:
            return (name, kind, value[kind])
    return (name, "", "")
