"""OpenAPI v2, converted from v3, for clients and API servers that lack v3."""

from functools import cache
from typing import Any

from front.serving.documents import openapi
from front.serving.requests import GROUP_VERSIONS

Json = dict[str, Any]

_REFERENCE, _DEFINITION = "#/components/schemas/", "#/definitions/"
# Keywords that v2 lacks: its schemas have exactly one type and cannot be null.
_UNKNOWN = frozenset({"nullable", "anyOf", "oneOf", "not", "const", "deprecated"})


@cache
def document() -> Json:
    """Return `/openapi/v2`."""
    found: Json = {
        "swagger": "2.0",
        "info": {"title": "Modelplane", "version": "v1alpha1"},
        "paths": {},
        "definitions": {},
    }
    for group, version in GROUP_VERSIONS:
        newer = openapi.document(group, version)
        found["definitions"] |= {
            name: _schema(schema)
            for name, schema in newer["components"]["schemas"].items()
        }
        found["paths"] |= {
            path: {method: _operation(each) for method, each in methods.items()}
            for path, methods in newer["paths"].items()
        }
    return found


def _operation(operation: Json) -> Json:
    body = operation.get("requestBody", {})
    content = body.get("content", {})
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    parameters = [_parameter(each) for each in operation["parameters"]]
    found = {key: value for key, value in operation.items() if key != "requestBody"}
    found |= {
        "parameters": parameters + _body(body),
        "responses": {"200": {"description": "OK", "schema": _schema(schema)}},
        "produces": ["application/json"],
        "schemes": ["https"],
    }
    if content:
        found["consumes"] = list(content)
    return found


def _parameter(parameter: Json) -> Json:
    required = {"required": True} if parameter["in"] == "path" else {}
    return {
        "name": parameter["name"],
        "in": parameter["in"],
        **required,
        **_schema(parameter["schema"]),
    }


def _body(body: Json) -> list[Json]:
    # In v2 all media types share one schema.
    found = [each["schema"] for each in body.get("content", {}).values()]
    if not found:
        return []
    schema = _schema(found[0]) if all(each == found[0] for each in found) else {}
    parameter = {"name": "body", "in": "body", "schema": schema}
    if "required" in body:
        parameter["required"] = True
    return [parameter]


def _schema(node: Any) -> Any:
    if isinstance(node, list):
        return [_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "allOf" in node and len(node["allOf"]) == 1:
        # v3 wraps a reference in allOf to add a description. v2 allows only the
        # reference.
        return _schema(node["allOf"][0])
    if "$ref" in node:
        return {"$ref": node["$ref"].replace(_REFERENCE, _DEFINITION)}
    if "properties" in node and isinstance(node["properties"], dict):
        fields = {name: _schema(field) for name, field in node["properties"].items()}
        others = {key: value for key, value in node.items() if key != "properties"}
        return {**_schema(others), "properties": fields}
    return {key: _schema(value) for key, value in node.items() if key not in _UNKNOWN}
