"""Remove nulls and server-side fields from a document.

API servers and other control planes add such fields. This module also limits depth and
size of a document, because a few hundred bytes of YAML aliases can expand to gigabytes,
and rejects keys that JSON cannot represent and numbers that Python refuses to write.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from api_types.text.reader import DEPTH_MAX, VALUES_MAX, is_unicode
from api_types.validation.problems import Loc

# Larger than any field permits. Python writes no number with more than 4,300 digits.
_INT_BITS_MAX = 256

# Fields that a Kubernetes API server or Crossplane adds to an exported object.
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


class NotStorable(ValueError):
    """The document is too large, or contains a value that JSON cannot represent."""


class _ValueBudget:
    """Counts down the values of a whole document."""

    def __init__(self) -> None:
        self.left = VALUES_MAX

    def spend(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotStorable(f"has more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise NotStorable(f"is nested more than {DEPTH_MAX} levels deep")


def without_nulls(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of a document as plain dicts and lists, without null fields.

    Raises:
        NotStorable: the document is too large or cannot be stored as JSON.

    """
    return _copy_mapping(document, _ValueBudget(), 0)


def _copy_mapping(
    value: Mapping[Any, Any], budget: _ValueBudget, depth: int
) -> dict[str, Any]:
    for key in value:
        if isinstance(key, str) and not is_unicode(key):
            raise NotStorable(
                "has a key with half of a surrogate pair, which is not a character"
            )
    return {
        key: _copy(item, budget, depth + 1)
        for key, item in value.items()
        if item is not None
    }


def _copy(value: Any, budget: _ValueBudget, depth: int) -> Any:
    budget.spend(depth)
    # Most values are strings, and the check for an abstract class takes ten times as
    # long as this one.
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _copy_mapping(value, budget, depth)
    if isinstance(value, list | tuple):
        return [_copy(item, budget, depth + 1) for item in value]
    if isinstance(value, int) and value.bit_length() > _INT_BITS_MAX:
        raise NotStorable(f"has a number of more than {_INT_BITS_MAX} bits")
    return value


def non_string_keys(value: Any, at: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield mapping keys that are not strings, such as an unquoted `1:` in YAML."""
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
    """Remove status, server-side metadata and Crossplane's fields in place."""
    document.pop("status", None)
    for field, ignored in (("metadata", METADATA_IGNORED), ("spec", SPEC_IGNORED)):
        held = document.get(field)
        if isinstance(held, dict):
            document[field] = {
                key: value for key, value in held.items() if key not in ignored
            }
