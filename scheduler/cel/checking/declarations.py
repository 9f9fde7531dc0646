"""The names that a device selector may use: the device, types and functions.

Kubernetes 1.35 declares the same names for a DRA selector, so a call that is not
declared here is rejected when the selector is compiled.
"""

from __future__ import annotations

from scheduler.cel.checking import extension_libraries, standard_library
from scheduler.cel.checking.overloads import Library, Overload
from scheduler.cel.syntax.static_types import (
    ANY,
    BOOL,
    BYTES,
    CIDR,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    NULL,
    QUANTITY,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)

# The fields of `device`. Kubernetes has `allowMultipleAllocations` only if the feature
# gate DRAConsumableCapacity is enabled.
DEVICE_FIELDS = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, ANY)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    "allowMultipleAllocations": BOOL,
}

_NAMED_TYPES = (
    BOOL,
    BYTES,
    DOUBLE,
    INT,
    NULL,
    STRING,
    UINT,
    DURATION,
    TIMESTAMP,
    IP,
    CIDR,
    list_of(DYN),
    map_of(DYN, DYN),
    optional_of(DYN),
)
VARIABLES: dict[str, Type] = {
    "device": DEVICE,
    **{named.kind: type_of(named) for named in _NAMED_TYPES},
    "type": type_of(Type("type")),
}


def _declared() -> dict[str, tuple[Overload, ...]]:
    library = Library()
    standard_library.declare(library)
    extension_libraries.declare(library)
    return library.functions()


FUNCTIONS = _declared()

# Functions of CEL in other places, with the reason why device selectors do not have them.
_NO_AUTHORIZER = "device selectors have no authorizer"
_OTHER_LIBRARY = "it belongs to a CEL library that device selectors do not have"
FOREIGN_FUNCTIONS = {
    "includes": "attributes with lists of values come with a later version",
    **dict.fromkeys(
        (
            "allowed",
            "check",
            "error",
            "errored",
            "fieldSelector",
            "group",
            "labelSelector",
            "path",
            "reason",
            "serviceAccount",
        ),
        _NO_AUTHORIZER,
    ),
    **dict.fromkeys(
        (
            "base64.decode",
            "base64.encode",
            "cel.block",
            "jsonpatch.escapeKey",
            "math.abs",
            "math.ceil",
            "math.floor",
            "math.greatest",
            "math.least",
            "math.round",
            "math.trunc",
            "regex.extract",
            "regex.extractAll",
            "regex.replace",
        ),
        _OTHER_LIBRARY,
    ),
}
