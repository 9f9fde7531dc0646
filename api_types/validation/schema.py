"""JSON Schema of a kind, for editors and for `modelplane schema`.

It contains types, bounds, choices, the keys of lists that are maps, and the description
of every field. It does not contain rules over several fields, which only admission
checks. Every definition is inlined, because few editors follow references inside lists.
"""

from typing import Any

from api_types.resources.kinds import find_kind

DIALECT = "https://json-schema.org/draft/2020-12/schema"

# Control planes of every version write metadata and status, so unknown fields are
# allowed there.
_TOLERANT = frozenset({"metadata", "status"})

Tree = dict[str, Any]


def json_schema(kind: str) -> Tree:
    """Return the JSON Schema of a kind, by any of its names.

    Raises:
        UnknownKind: no kind has that name.

    """
    info = find_kind(kind)
    raw = info.model.model_json_schema(by_alias=True, mode="validation")
    schema = _resolved(raw, raw.get("$defs", {}))
    properties = schema["properties"]
    properties["apiVersion"] = {**properties["apiVersion"], "enum": [info.api_version]}
    for field, held in properties.items():
        if field not in _TOLERANT:
            _close(held)
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema["additionalProperties"] = False
    return {"$schema": DIALECT, "title": info.kind, **schema}


def _resolved(node: Any, definitions: Tree) -> Any:
    """Inline definitions and remove pydantic's titles, nulls and defaults for absence."""
    if isinstance(node, list):
        return [_resolved(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        # Keys next to a reference describe this field and override the keys of the
        # model.
        node = {
            **target,
            **{key: value for key, value in node.items() if key != "$ref"},
        }
    choices = [one for one in node.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return _resolved({**choices[0], **rest}, definitions)
    cleaned = {
        key: value
        for key, value in node.items()
        if key not in ("$defs", "title") and not (key == "default" and value is None)
    }
    if "const" in cleaned:
        cleaned["enum"] = [cleaned.pop("const")]
    return {key: _inside(key, value, definitions) for key, value in cleaned.items()}


def _inside(key: str, value: Any, definitions: Tree) -> Any:
    if key == "properties":  # a field may be called `title`
        return {name: _resolved(field, definitions) for name, field in value.items()}
    if key == "description":  # a docstring may have several lines
        return " ".join(value.split())
    return _resolved(value, definitions)


def _close(node: Any) -> None:
    """Forbid unknown fields in every object below, as admission does."""
    if isinstance(node, list):
        for item in node:
            _close(item)
    elif isinstance(node, dict):
        if "properties" in node:
            node.setdefault("additionalProperties", False)
            for field in node["properties"].values():
                _close(field)
        for key in ("items", "additionalProperties", "anyOf"):
            _close(node.get(key))
