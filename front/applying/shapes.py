"""The granularity of ownership in a kind, from its JSON Schema.

Managers own maps field by field, lists with keys item by item, and other values as a
whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from api_types.validation.schema import json_schema
from front.applying.fields import FIELD, ITEM, Json, of_field, of_item


@dataclass(frozen=True)
class Shape:
    """The granularity of ownership in one value.

    `fields` are named by the schema. `others` is the shape of other fields and of
    items. An `untyped` value is owned field by field if it is a map. `keys` and
    `defaults` identify an item.
    """

    form: Literal["leaf", "map", "list", "untyped"]
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    others: "Shape | None" = None
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def parts(self, value: Any) -> Json | None:
        """Return the parts of a value by element; None if it is owned as a whole.

        Values that the schema forbids are owned as a whole, such as two items with one
        key. Admission reports the error.
        """
        if isinstance(value, dict) and self.form in ("map", "untyped"):
            return {of_field(name): part for name, part in value.items()}
        if isinstance(value, list) and self.form == "list":
            parts = {
                self._element(item): item
                for item in value
                if isinstance(item, dict) and self._has_keys(item)
            }
            return parts if len(parts) == len(value) else None
        return None

    def whole(self, parts: Json) -> Any:
        """Combine parts to a value."""
        if self.form == "list":
            return list(parts.values())
        return {element.removeprefix(FIELD): part for element, part in parts.items()}

    def of(self, element: str) -> "Shape":
        """Return the shape of a part."""
        return self.fields.get(element.removeprefix(FIELD)) or self.others or UNTYPED

    def declares(self, element: str) -> bool:
        """Return whether the schema names a part.

        Such a field is owned through its content. Other parts are also owned
        themselves.
        """
        return (
            not element.startswith(ITEM) and element.removeprefix(FIELD) in self.fields
        )

    def _has_keys(self, item: Json) -> bool:
        keys = self._keys_of(item)
        return all(isinstance(value, str | int) for value in keys.values())

    def _element(self, item: Json) -> str:
        return of_item(self._keys_of(item))

    def _keys_of(self, item: Json) -> Json:
        return {key: item.get(key, self.defaults.get(key)) for key in self.keys}


LEAF, UNTYPED = Shape("leaf"), Shape("untyped")
_TEXTS = Shape("map", others=LEAF)


@cache
def shape_of(kind: str) -> Shape:
    """Return the shape of the fields that users write.

    These are name, labels, annotations and spec.
    """
    metadata = Shape("map", {"name": LEAF, "labels": _TEXTS, "annotations": _TEXTS})
    spec = of_schema(json_schema(kind)["properties"]["spec"])
    return Shape("map", {"metadata": metadata, "spec": spec})


def of_schema(schema: Json) -> Shape:
    """Return the shape for a node of a JSON Schema."""
    if schema.get("type") == "array":
        if schema.get("x-kubernetes-list-type") != "map":
            return LEAF
        keys, items = tuple(schema["x-kubernetes-list-map-keys"]), schema["items"]
        defaults = {
            key: items["properties"][key]["default"]
            for key in keys
            if "default" in items["properties"][key]
        }
        return Shape("list", others=of_schema(items), keys=keys, defaults=defaults)
    if schema.get("type") != "object":
        return LEAF
    fields = {
        name: of_schema(held) for name, held in schema.get("properties", {}).items()
    }
    others = schema.get("additionalProperties")
    of_others = of_schema(others) if isinstance(others, dict) else None
    if schema.get("x-kubernetes-preserve-unknown-fields") or not (fields or of_others):
        return Shape("map", fields, UNTYPED) if fields else UNTYPED
    return Shape("map", fields, of_others)
