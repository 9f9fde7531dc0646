"""Take from a document what counts as absent: nulls, and what other control planes write into it.

Also the place where a document stops being whatever a parser gave: depth and size are bounded here, since a few hundred bytes of YAML
aliases can stand for gigabytes.
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


class TooMuch(ValueError):
    """The document is deeper or larger than any manifest."""


class _Budget:
    """Counts values down, over the whole document."""

    def __init__(self) -> None:
        self.left = VALUES_MAX

    def spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooMuch(f"has more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise TooMuch(f"is nested more than {DEPTH_MAX} levels deep")


def without_nulls(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Copy a document as plain dicts and lists, leaving out fields that are null; raises TooMuch."""
    return _copy_mapping(document, _Budget(), 0)


def _copy_mapping(value: Mapping[Any, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    return {key: _copy(item, budget, depth + 1) for key, item in value.items() if item is not None}


def _copy(value: Any, budget: _Budget, depth: int) -> Any:
    budget.spend(depth)
    if isinstance(value, Mapping):
        return _copy_mapping(value, budget, depth)
    if isinstance(value, list | tuple):
        return [_copy(item, budget, depth + 1) for item in value]
    return value


def keys_that_are_no_text(value: Any, at: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Find mapping keys that are not strings, such as an unquoted `1:` in YAML."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield from keys_that_are_no_text(item, (*at, key))
            else:
                yield at, f"key {key} is not a string; quote it"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from keys_that_are_no_text(item, (*at, index))


def drop_foreign(document: dict[str, Any]) -> None:
    """Drop, in place, what is tolerated and ignored: status, server-set metadata, Crossplane's own fields."""
    document.pop("status", None)
    for field, ignored in (("metadata", METADATA_IGNORED), ("spec", SPEC_IGNORED)):
        held = document.get(field)
        if isinstance(held, dict):
            document[field] = {key: value for key, value in held.items() if key not in ignored}
