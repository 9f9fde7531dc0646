"""Remove from a document what counts as absent: nulls, and fields that API servers and other control planes add.

Depth and size of a document are limited here too, because a few hundred bytes of YAML aliases can expand to gigabytes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from api_types.validation.problems import Loc

DEPTH_MAX = 64
VALUES_MAX = 100_000

# What a Kubernetes API server or Crossplane adds to an exported object.
METADATA_IGNORED = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
SPEC_IGNORED = frozenset({"crossplane"})


class TooLarge(ValueError):
    """The document is deeper or larger than any manifest."""


class _Budget:
    """Counts values down, over the whole document."""

    def __init__(self) -> None:
        self.left = VALUES_MAX

    def spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooLarge(f"has more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise TooLarge(f"is nested more than {DEPTH_MAX} levels deep")


def without_nulls(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Copy a document as plain dicts and lists, leaving out fields that are null; raises TooLarge."""
    return _copy_mapping(document, _Budget(), 0)


def _copy_mapping(value: Mapping[Any, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    return {key: _copy(item, budget, depth + 1) for key, item in value.items() if item is not None}


def _copy(value: Any, budget: _Budget, depth: int) -> Any:
    budget.spend(depth)
    # By far the most values are strings, and the check for an abstract class takes ten times as long as this one.
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _copy_mapping(value, budget, depth)
    if isinstance(value, list | tuple):
        return [_copy(item, budget, depth + 1) for item in value]
    return value


def non_string_keys(value: Any, at: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Find mapping keys that are not strings, such as an unquoted `1:` in YAML."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield from non_string_keys(item, (*at, key))
            else:
                yield at, f"key {key} is not a string; quote it"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from non_string_keys(item, (*at, index))


def drop_server_fields(document: dict[str, Any]) -> None:
    """Remove, in place, what is accepted and ignored: status, metadata set by a server, fields of Crossplane."""
    document.pop("status", None)
    for field, ignored in (("metadata", METADATA_IGNORED), ("spec", SPEC_IGNORED)):
        held = document.get(field)
        if isinstance(held, dict):
            document[field] = {key: value for key, value in held.items() if key not in ignored}
