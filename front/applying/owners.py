"""Who owns what of one object: the entries of `metadata.managedFields`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from api_types.clock import timestamp
from front.applying.fields import FieldSet, Json, from_tree, to_tree

APPLY, UPDATE = "Apply", "Update"
UPDATERS_MAX = 10
"""Managers that own by an update; those of the longest ago are counted as one beyond."""
OLDEST = "ancient-changes"
NAME_MAX = 128


class Owner(NamedTuple):
    """A manager in one of its ways to write. `subresource` is empty for the object itself."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True)
class Owners:
    """The fields of each owner, and when each wrote last (RFC 3339, UTC; absent if nobody knows)."""

    fields: Mapping[Owner, FieldSet] = field(default_factory=dict)
    times: Mapping[Owner, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anybody owns anything; of other objects nothing is kept."""
        return bool(self.fields)

    def written(self, fields: Mapping[Owner, FieldSet], owner: Owner, time: str) -> "Owners":
        """Give the owners after a write of one of them: who owns nothing is gone, and of many updates the oldest are one."""
        times = {**self.times, owner: time}
        return Owners.bounded({each: held for each, held in fields.items() if held}, times)

    @classmethod
    def bounded(cls, found: Mapping[Owner, FieldSet], known: Mapping[Owner, str]) -> "Owners":
        """Make owners of fields and times, of which the oldest may be one."""
        updaters = sorted((each for each in found if each.operation == UPDATE), key=lambda each: (known.get(each, ""), each))
        fields, times = dict(found), {each: time for each, time in known.items() if each in found}
        if len(updaters) > UPDATERS_MAX:
            for each in updaters[: len(updaters) - UPDATERS_MAX + 1]:
                oldest = Owner(OLDEST, UPDATE, each.api_version)
                held, time = fields.pop(each), times.pop(each, "")
                fields[oldest] = fields.get(oldest, frozenset()) | held
                times[oldest] = max(times.get(oldest, ""), time)
        return cls(fields, times)

    def entries(self) -> list[Json]:
        """Write them as `metadata.managedFields`."""
        found = [self._entry(owner, held) for owner, held in self.fields.items()]
        return sorted(found, key=lambda each: (each["operation"], each.get("time", ""), each["manager"], each.get("subresource", "")))

    def _entry(self, owner: Owner, held: FieldSet) -> Json:
        entry: Json = {"manager": owner.name, "operation": owner.operation, "apiVersion": owner.api_version}
        entry |= {"time": self.times[owner]} if self.times.get(owner) else {}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_tree(held)}
        return entry | ({"subresource": owner.subresource} if owner.subresource else {})

    @classmethod
    def of_entries(cls, entries: Any) -> "Owners":
        """Read them. Raises ValueError for what is not written as `metadata.managedFields`."""
        if not isinstance(entries, list):
            raise ValueError("managedFields must be a list")  # noqa: TRY004 - it is the text of a user
        fields: dict[Owner, FieldSet] = {}
        times: dict[Owner, str] = {}
        for entry in entries:
            owner = _owner(entry)
            fields[owner] = fields.get(owner, frozenset()) | from_tree(entry.get("fieldsV1") or {})
            if time := entry.get("time"):
                times[owner] = _time(time)
        return cls({owner: held for owner, held in fields.items() if held}, times)


def _owner(entry: Any) -> Owner:
    if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE) or entry.get("fieldsType", "FieldsV1") != "FieldsV1":
        raise ValueError("an entry of managedFields must have the operation Apply or Update, and FieldsV1")
    owner = Owner(*(entry.get(key, "") for key in ("manager", "operation", "apiVersion", "subresource")))
    if not all(isinstance(part, str) and len(part) <= NAME_MAX and part.isprintable() for part in owner):
        raise ValueError("an entry of managedFields names no manager")
    return owner


def _time(text: Any) -> str:
    """Check a time: clients cannot read an object with one that is none."""
    try:
        return timestamp(datetime.fromisoformat(text))
    except (TypeError, OverflowError) as error:
        raise ValueError("an entry of managedFields has a time that is none") from error
