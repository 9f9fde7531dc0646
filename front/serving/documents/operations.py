"""Parameters and request bodies of OpenAPI v3 operations."""

from typing import Any

from front.serving import bodies

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_LIST = {
    "labelSelector": _TEXT,
    "fieldSelector": _TEXT,
    "limit": {"type": "integer", "minimum": 0},
    "continue": _TEXT,
}
_WATCH = {
    "watch": {"type": "boolean"},
    "resourceVersion": _TEXT,
    "timeoutSeconds": {"type": "integer", "minimum": 0},
    "allowWatchBookmarks": {"type": "boolean"},
    "sendInitialEvents": {"type": "boolean"},
}
_DELETE = {
    "dryRun": {"type": "string", "enum": ["All"]},
    "propagationPolicy": {"type": "string", "enum": ["Foreground", "Background"]},
}
_QUERIES = {
    "list": {**_LIST, **_WATCH},
    # Not in Kubernetes: the reason for a change, for kinds that record it.
    "put": {"reason": _TEXT},
    "patch": {"force": {"type": "boolean"}},
    "delete": _DELETE,
    "deletecollection": {**_DELETE, **_LIST},
}
_OPTIONS: Json = {
    "type": "object",
    "properties": {
        "dryRun": {"type": "array", "items": _TEXT},
        "propagationPolicy": _DELETE["propagationPolicy"],
        "preconditions": {
            "type": "object",
            "properties": {"uid": _TEXT, "resourceVersion": _TEXT},
        },
    },
}
_OPERATION: Json = {
    "type": "object",
    "required": ["op", "path"],
    "properties": {
        "op": {
            "type": "string",
            "enum": ["add", "remove", "replace", "move", "copy", "test"],
        },
        "path": _TEXT,
        "from": _TEXT,
        "value": {},
    },
}
_SCALE: Json = {
    "type": "object",
    "required": ["metadata", "spec"],
    "properties": {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": {
            "type": "object",
            "properties": {"name": _TEXT, "namespace": _TEXT, "resourceVersion": _TEXT},
        },
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "format": "int32", "minimum": 0}
            },
        },
    },
}
SCALE_KIND = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


def in_path(path: str) -> list[Json]:
    """Return the parameters of a path."""
    return [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in ("namespace", "name")
        if f"{{{name}}}" in path
    ]


def in_query(action: str) -> list[Json]:
    """Return the query parameters of an action."""
    return [
        {"name": name, "in": "query", "schema": schema}
        for name, schema in _QUERIES.get(action, {}).items()
    ]


def body(action: str, of_objects: Json, *, scale: bool) -> Json:
    """Return the field `requestBody` of an operation, or {} if it has no body.

    `of_objects` is the schema of the kind.
    """
    whole = _SCALE if scale else of_objects
    match action:
        case "post" | "put":
            content = {media_type: {"schema": whole} for media_type in bodies.OBJECTS}
        case "patch":
            content = {bodies.MERGE: {"schema": {"type": "object"}}}
            content[bodies.JSON_PATCH] = {
                "schema": {"type": "array", "items": _OPERATION}
            }
            if not scale:
                content[bodies.APPLY] = {"schema": of_objects}
        case "delete" | "deletecollection":
            return {"requestBody": {"content": {bodies.JSON: {"schema": _OPTIONS}}}}
        case _:
            return {}
    return {"requestBody": {"content": content, "required": True}}
