"""The largest sizes that Kubernetes allows in the device a selector reads.

They are validation limits of ResourceSlice, so the estimate may rely on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.cel.cost.sizes import Size

DRIVER_MAX = 63
DOMAIN_MAX = 63
IDENTIFIER_MAX = 32
ATTRIBUTE_VALUE_MAX = 64
NAMES_MAX = 32


@dataclass(frozen=True)
class _Shape:
    """Largest size of a value, and the shapes of what it holds."""

    high: int
    key: _Shape | None = None
    value: _Shape | None = None
    fields: dict[str, _Shape] = field(default_factory=dict)


_ATTRIBUTE = _Shape(ATTRIBUTE_VALUE_MAX)
_QUANTITY = _Shape(0)
_IDENTIFIER = _Shape(IDENTIFIER_MAX)
_DOMAIN = _Shape(DOMAIN_MAX)
_DEVICE = _Shape(
    0,
    fields={
        "driver": _Shape(DRIVER_MAX),
        "attributes": _Shape(NAMES_MAX, _DOMAIN, _Shape(NAMES_MAX, _IDENTIFIER, _ATTRIBUTE)),
        "capacity": _Shape(NAMES_MAX, _DOMAIN, _Shape(NAMES_MAX, _IDENTIFIER, _QUANTITY)),
    },
)


def size_at(path: tuple[str, ...]) -> Size | None:
    """The size of the value a path leads to.

    Args:
        path: `device`, then field names, `@keys`, `@values` or `@items`.

    Returns:
        Its range, or None where the schema says nothing.

    """
    if not path or path[0] != "device":
        return None
    shape: _Shape | None = _DEVICE
    for name in path[1:]:
        if shape is None:
            return None
        if name in ("@values", "@items"):
            shape = shape.value
        elif name == "@keys":
            shape = shape.key
        elif name in shape.fields:
            shape = shape.fields[name]
        else:
            # An attribute by its name: all of them have the same limit.
            shape = _ATTRIBUTE if shape.value is _ATTRIBUTE else None
    return Size(0, shape.high) if shape is not None else None
