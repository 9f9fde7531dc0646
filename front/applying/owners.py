"""The owners of an object's fields: the entries of `metadata.managedFields`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from api_types.clock import timestamp
from front.applying.fields import FieldSet, Json, from_tree, to_tree

APPLY, UPDATE = "Apply", "Update"
UPDATERS_MAX = 10
"""The maximum number of owners by update.

Beyond it, the oldest are merged.
"""
OLDEST = "ancient-changes"
NAME_MAX = 128


class FieldManager(NamedTuple):
    """A field manager with one operation.

    `subresource` is empty for the object itself.
    """

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True)
class Owners:
    """The fields of each owner, and the time of its last write.

    Times are in RFC 3339 and UTC; unknown times are absent.
    """

    fields: Mapping[FieldManager, FieldSet] = field(default_factory=dict)
    times: Mapping[FieldManager, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anybody owns anything. Otherwise nothing is stored."""
        return bool(self.fields)

    def written(
        self, fields: Mapping[FieldManager, FieldSet], owner: FieldManager, time: str
    ) -> "Owners":
        """Return the owners after a write.

        Owners without fields are removed, and the oldest of many updates are merged.
        """
        left = {each: held for each, held in fields.items() if held}
        return Owners.bounded(left, {**self.times, owner: time})

    @classmethod
    def bounded(
        cls, found: Mapping[FieldManager, FieldSet], known: Mapping[FieldManager, str]
    ) -> "Owners":
        """Return the owners, with the oldest updates merged."""
        updaters = sorted(
            (each for each in found if each.operation == UPDATE),
            key=lambda each: (known.get(each, ""), each),
        )
        fields = dict(found)
        times = {each: time for each, time in known.items() if each in found}
        if len(updaters) > UPDATERS_MAX:
            for each in updaters[: len(updaters) - UPDATERS_MAX + 1]:
                oldest = FieldManager(OLDEST, UPDATE, each.api_version)
                held, time = fields.pop(each), times.pop(each, "")
                fields[oldest] = fields.get(oldest, frozenset()) | held
                times[oldest] = max(times.get(oldest, ""), time)
        return cls(fields, times)

    def entries(self) -> list[Json]:
        """Return the entries of `metadata.managedFields`."""
        found = [self._entry(owner, held) for owner, held in self.fields.items()]
        return sorted(
            found,
            key=lambda each: (
                each["operation"],
                each.get("time", ""),
                each["manager"],
                each.get("subresource", ""),
            ),
        )

    def _entry(self, owner: FieldManager, held: FieldSet) -> Json:
        entry: Json = {
            "manager": owner.name,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
        }
        if self.times.get(owner):
            entry["time"] = self.times[owner]
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_tree(held)}
        if owner.subresource:
            entry["subresource"] = owner.subresource
        return entry

    @classmethod
    def of_entries(cls, entries: Any) -> "Owners":
        """Parse `metadata.managedFields`. Raises ValueError."""
        if not isinstance(entries, list):
            raise ValueError("managedFields must be a list")  # noqa: TRY004 - user input
        fields: dict[FieldManager, FieldSet] = {}
        times: dict[FieldManager, str] = {}
        for entry in entries:
            owner = _owner(entry)
            held = from_tree(entry.get("fieldsV1") or {})
            fields[owner] = fields.get(owner, frozenset()) | held
            if time := entry.get("time"):
                times[owner] = _time(time)
        return cls({owner: held for owner, held in fields.items() if held}, times)


def _owner(entry: Any) -> FieldManager:
    if (
        not isinstance(entry, dict)
        or entry.get("operation") not in (APPLY, UPDATE)
        or entry.get("fieldsType", "FieldsV1") != "FieldsV1"
    ):
        raise ValueError(
            "an entry of managedFields must have the operation Apply or Update, and "
            "FieldsV1"
        )
    keys = ("manager", "operation", "apiVersion", "subresource")
    owner = FieldManager(*(entry.get(key, "") for key in keys))
    if not all(
        isinstance(part, str) and len(part) <= NAME_MAX and part.isprintable()
        for part in owner
    ):
        raise ValueError("an entry of managedFields has an invalid manager")
    return owner


def _time(text: Any) -> str:
    """Validate a time. Clients cannot decode an object with an invalid time."""
    try:
        return timestamp(datetime.fromisoformat(text))
    except (TypeError, OverflowError) as error:
        raise ValueError("an entry of managedFields has an invalid time") from error
