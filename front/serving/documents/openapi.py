"""OpenAPI v3 of the served kinds, from their models: what `kubectl explain` and the validation of clients read."""

import hashlib
import json
from functools import cache
from typing import Any

from api_types.resources.kinds import SERVED, KindInfo
from api_types.validation.schema import json_schema
from front.serving.documents import operations
from front.serving.requests import GROUP_VERSIONS, SCALE, subresources, verbs

Json = dict[str, Any]

# Of JSON Schema, and not of OpenAPI 3.0.
_FOREIGN = frozenset({"$schema", "title", "examples", "propertyNames", "patternProperties", "contentMediaType"})
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_WRITING = ("post", "put", "patch")
# By the second, clients know that this server finds unknown fields itself, so they need not.
_PARAMETERS: list[Json] = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldValidation", "fieldManager")
]
_METHODS = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}


@cache
def index() -> Json:
    """Give `/openapi/v3`: where the document of each group and version is, with its hash."""
    paths = {f"apis/{group}/{version}": _address(group, version) for group, version in GROUP_VERSIONS}
    return {"paths": {path: {"serverRelativeURL": address} for path, address in paths.items()}}


def _address(group: str, version: str) -> str:
    return f"/openapi/v3/apis/{group}/{version}?hash={digest(group, version)}"


@cache
def digest(group: str, version: str) -> str:
    """Give the hash of a document, which changes with it."""
    return hashlib.sha256(json.dumps(document(group, version), sort_keys=True).encode()).hexdigest()[:32].upper()


@cache
def document(group: str, version: str) -> Json:
    """Give the document of a group and version."""
    kinds = [info for info in SERVED if (info.group, info.version) == (group, version)]
    schemas: Json = {_name(info): _schema(info) for info in kinds}
    schemas[_METADATA] = {"type": "object", "description": "ObjectMeta is metadata that all objects have.", "properties": _metadata()}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Modelplane", "version": version},
        "paths": {path: methods for info in kinds for path, methods in _paths(info).items()},
        "components": {"schemas": schemas},
    }


def _name(info: KindInfo) -> str:
    return ".".join([*reversed(info.group.split(".")), info.version, info.kind])


def _schema(info: KindInfo) -> Json:
    schema: Json = _converted(json_schema(info.kind))
    schema["properties"]["metadata"] = {"allOf": [{"$ref": f"#/components/schemas/{_METADATA}"}], "default": {}}
    schema["x-kubernetes-group-version-kind"] = [_kind(info)]
    return schema


def _converted(node: Any) -> Any:
    if isinstance(node, list):
        return [_converted(item) for item in node]
    if not isinstance(node, dict):
        return node
    result: Json = {}
    for key, value in node.items():
        if key in _FOREIGN:
            continue
        if key == "properties":
            result[key] = {name: _converted(field) for name, field in value.items()}
        elif key in _BOUNDS:
            result |= {_BOUNDS[key]: value, key: True}
        else:
            result[key] = _converted(value)
    return result


def _metadata() -> Json:
    text = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    plain = ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    plain_objects = {"type": "array", "items": {"type": "object"}}
    return {
        **dict.fromkeys(plain, text),
        "managedFields": plain_objects,
        "generation": {"type": "integer", "format": "int64"},
        "labels": texts,
        "annotations": texts,
    }


def _kind(info: KindInfo) -> Json:
    return {"group": info.group, "version": info.version, "kind": info.kind}


def _paths(info: KindInfo) -> Json:
    base = f"/apis/{info.group}/{info.version}"
    scope = f"{base}/namespaces/{{namespace}}" if info.namespaced else base
    allowed = verbs(info)
    on_all = {"get": "list"} | ({"post": "post", "delete": "deletecollection"} if "create" in allowed else {})
    on_one = f"{scope}/{info.plural}/{{name}}"
    found: Json = {f"{scope}/{info.plural}": _methods(info, scope, on_all)}
    found[on_one] = _methods(info, on_one, {_METHODS[verb]: _METHODS[verb] for verb in allowed if verb in _METHODS})
    for subresource in filter(None, subresources(info)):
        path = f"{scope}/{info.plural}/{{name}}/{subresource}"
        found[path] = _methods(info, path, {"get": "get"} | ({"put": "put", "patch": "patch"} if subresource == SCALE else {}))
    if info.namespaced:
        found[f"{base}/{info.plural}"] = _methods(info, base, {"get": "list"})
    return found


def _methods(info: KindInfo, path: str, methods: dict[str, str]) -> Json:
    schema, scale = {"$ref": f"#/components/schemas/{_name(info)}"}, path.endswith(f"/{SCALE}")
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}
    return {
        method: {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": operations.SCALE_KIND if scale else _kind(info),
            "parameters": [*operations.in_path(path), *(_PARAMETERS if method in _WRITING else operations.in_query(action))],
            **operations.body(action, schema, scale=scale),
            "responses": answer,
        }
        for method, action in methods.items()
    }
