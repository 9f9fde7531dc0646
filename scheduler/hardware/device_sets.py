"""Device lists of InferenceClasses as device sets; equal lists share one digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from scheduler.model.devices import DeviceEntry
from scheduler.model.digests import digest_of
from scheduler.model.fields import JsonFields, is_whole
from scheduler.model.inputs import DeviceSet

_VALUE_READERS: Mapping[str, Callable[[JsonFields, str], object]] = {
    "string": JsonFields.text,
    "version": JsonFields.text,
    "bool": JsonFields.flag,
    "int": JsonFields.whole,
}


def device_set(devices: Iterable[JsonFields], *, count_default: int = 0) -> DeviceSet:
    """Read a list of devices.

    An absent count is `count_default` (0 when published, 1 in a class). A negative
    count is 0.
    """
    entries = tuple(_entry(device, count_default) for device in devices)
    return make_set(entries)


def make_set(entries: tuple[DeviceEntry, ...]) -> DeviceSet:
    """Return a set of entries with a digest over all fields that placement reads."""
    content = [
        [
            e.name,
            e.claim,
            e.driver,
            e.device_class,
            e.count,
            e.attributes,
            e.capacity,
            e.resource_name,
        ]
        for e in entries
    ]
    return DeviceSet(digest_of(content), entries)


def _entry(device: JsonFields, count_default: int) -> DeviceEntry:
    claim = device.text("claim") or "DRA"
    attributes, capacity = device.object("attributes"), device.object("capacity")
    return DeviceEntry(
        name=device.name("name"),
        claim=claim,
        driver=device.text("driver"),
        device_class=device.text("deviceClassName") if claim == "DRA" else "",
        count=max(0, device.whole("count", count_default)),
        attributes=tuple(
            sorted(
                _attribute(name, attributes.object(name)) for name in attributes.tree
            )
        ),
        capacity=tuple(
            sorted((name, _quantity(capacity.object(name))) for name in capacity.tree)
        ),
        resource_name=device.text("resourceName") if claim == "DevicePlugin" else "",
    )


def _attribute(name: str, value: JsonFields) -> tuple[str, str, object]:
    """Return (name, type, value).

    Without a known type, the type is empty and the entry is malformed.
    """
    for kind, read in _VALUE_READERS.items():
        if kind in value:
            return (name, kind, read(value, kind))
    return (name, "", "")


def _quantity(capacity: JsonFields) -> str:
    value = capacity.tree.get("value")
    return str(value) if is_whole(value) else capacity.text("value")
