"""The largest sizes that Kubernetes allows in a device.

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
class _SchemaShape:
    """The largest size of a value, and the shapes of its content."""

    high: int
    key: _SchemaShape | None = None
    value: _SchemaShape | None = None
    fields: dict[str, _SchemaShape] = field(default_factory=dict)


_ATTRIBUTE = _SchemaShape(ATTRIBUTE_VALUE_MAX)
_QUANTITY = _SchemaShape(0)
_IDENTIFIER = _SchemaShape(IDENTIFIER_MAX)
_DOMAIN = _SchemaShape(DOMAIN_MAX)
_DEVICE = _SchemaShape(
    0,
    fields={
        "driver": _SchemaShape(DRIVER_MAX),
        "allowMultipleAllocations": _SchemaShape(1),
        "attributes": _SchemaShape(
            NAMES_MAX, _DOMAIN, _SchemaShape(NAMES_MAX, _IDENTIFIER, _ATTRIBUTE)
        ),
        "capacity": _SchemaShape(
            NAMES_MAX, _DOMAIN, _SchemaShape(NAMES_MAX, _IDENTIFIER, _QUANTITY)
        ),
    },
)


def size_at(path: tuple[str, ...]) -> Size | None:
    """Return the size of the value that a path leads to.

    Args:
        path: `device`, then field names, `@keys`, `@values`, `@items` or `@indices`.

    Returns:
        Its range, or None if the schema does not know it.

    """
    if not path or path[0] != "device":
        return None
    shape: _SchemaShape | None = _DEVICE
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
