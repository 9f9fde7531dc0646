"""How the parts of a kind are owned: a map field by field, a list item by item if it has keys, everything else as a whole.

Read from the JSON Schema of the kind, so a new field needs nothing here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from api_types.validation.schema import json_schema
from front.applying.fields import FIELD, ITEM, Json, of_field, of_item


@dataclass(frozen=True)
class Shape:
    """How one value is owned.

    `fields`: those that a schema names; `others`: how a field of another name, or an item, is owned. `untyped`: a map field by field,
    and anything else as a whole. `keys` and `defaults`: what identifies an item.
    """

    form: Literal["leaf", "map", "list", "untyped"]
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    others: "Shape | None" = None
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def parts(self, value: Any) -> Json | None:
        """Give the parts of a value by their elements; None if it is owned as a whole.

        That also holds for what a schema does not allow, such as two items of one key: admission says what is wrong with it.
        """
        if isinstance(value, dict) and self.form in ("map", "untyped"):
            return {of_field(name): part for name, part in value.items()}
        if isinstance(value, list) and self.form == "list":
            parts = {self._element(item): item for item in value if isinstance(item, dict) and self._has_keys(item)}
            return parts if len(parts) == len(value) else None
        return None

    def whole(self, parts: Json) -> Any:
        """Put parts together again."""
        if self.form == "list":
            return list(parts.values())
        return {element.removeprefix(FIELD): part for element, part in parts.items()}

    def of(self, element: str) -> "Shape":
        """Give the shape of a part."""
        return self.fields.get(element.removeprefix(FIELD)) or self.others or UNTYPED

    def declares(self, element: str) -> bool:
        """Whether a part is a field that the schema names. Such a field is there for its content; others are owned themselves too."""
        return not element.startswith(ITEM) and element.removeprefix(FIELD) in self.fields

    def _has_keys(self, item: Json) -> bool:
        return all(isinstance(item.get(key, self.defaults.get(key)), str | int) for key in self.keys)

    def _element(self, item: Json) -> str:
        return of_item({key: item.get(key, self.defaults.get(key)) for key in self.keys})


LEAF, UNTYPED = Shape("leaf"), Shape("untyped")
_TEXTS = Shape("map", others=LEAF)


@cache
def shape_of(kind: str) -> Shape:
    """Give the shape of what users write of a kind: name, labels, annotations, and the spec."""
    metadata = Shape("map", {"name": LEAF, "labels": _TEXTS, "annotations": _TEXTS})
    return Shape("map", {"metadata": metadata, "spec": of_schema(json_schema(kind)["properties"]["spec"])})


def of_schema(schema: Json) -> Shape:
    """Read a node of a JSON Schema."""
    if schema.get("type") == "array":
        if schema.get("x-kubernetes-list-type") != "map":
            return LEAF
        keys, items = tuple(schema["x-kubernetes-list-map-keys"]), schema["items"]
        defaults = {key: items["properties"][key]["default"] for key in keys if "default" in items["properties"][key]}
        return Shape("list", others=of_schema(items), keys=keys, defaults=defaults)
    if schema.get("type") != "object":
        return LEAF
    fields = {name: of_schema(held) for name, held in schema.get("properties", {}).items()}
    others = schema.get("additionalProperties")
    if schema.get("x-kubernetes-preserve-unknown-fields") or not (fields or isinstance(others, dict)):
        return Shape("map", fields, UNTYPED) if fields else UNTYPED
    return Shape("map", fields, of_schema(others) if isinstance(others, dict) else None)
