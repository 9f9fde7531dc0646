"""The memory of devices, for comparing pools."""

from __future__ import annotations

from functools import lru_cache

from api_types.text.quantity import parse_quantity
from scheduler.cel.bounded_cache import remember
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import DeviceSet

_NANO = 1_000_000_000
_MEBI = 1 << 20


# Keyed by digest, because hashing a set takes longer than all other work for a pool.
_of_nodes: dict[str, int] = {}
_OF_NODES_MAX = 10_000


def node_memory_mebibytes(devices: DeviceSet) -> int:
    """Return the memory of all devices of a node in Mi."""
    known = _of_nodes.get(devices.digest)
    if known is None:
        total = sum(entry.count * memory_mebibytes(entry) for entry in devices.entries)
        known = remember(_of_nodes, devices.digest, total, _OF_NODES_MAX)
    return known


@lru_cache(maxsize=10_000)
def memory_mebibytes(entry: DeviceEntry) -> int:
    """Return the memory of one device in Mi, or 0 if it has none or is unreadable."""
    for name, text in entry.capacity:
        if name.rsplit("/", 1)[-1] == "memory":
            try:
                return parse_quantity(text) // (_NANO * _MEBI)
            except ValueError:
                return 0
    return 0
