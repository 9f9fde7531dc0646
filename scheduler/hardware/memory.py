"""The size of a device, for comparing pools."""

from __future__ import annotations

from functools import lru_cache

from api_types.text.quantity import parse_quantity
from scheduler.model.devices import DeviceEntry

_NANO = 1_000_000_000
_MEBI = 1 << 20


@lru_cache(maxsize=10_000)
def memory_mebibytes(entry: DeviceEntry) -> int:
    """Give the memory of one device in Mi, 0 when it has none or it cannot be read."""
    for name, text in entry.capacity:
        if name.rsplit("/", 1)[-1] == "memory":
            try:
                return parse_quantity(text) // (_NANO * _MEBI)
            except ValueError:
                return 0
    return 0
