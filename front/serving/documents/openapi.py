"""OpenAPI v3 of the served kinds, for `kubectl explain` and client-side validation."""

import hashlib
import json
from functools import cache
from typing import Any

from api_types.resources.kinds import SERVED, KindInfo
from api_types.validation.schema import json_schema
from front.serving.documents import operations
from front.serving.requests import GROUP_VERSIONS, SCALE, subresources, verbs

Json = dict[str, Any]

# Keywords of JSON Schema that OpenAPI 3.0 lacks.
_FOREIGN = frozenset(
    {
        "$schema",
        "title",
        "examples",
        "propertyNames",
        "patternProperties",
        "contentMediaType",
    }
)
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_WRITING = ("post", "put", "patch")
# The parameter fieldValidation tells clients that this server finds unknown fields, so
# that they need not.
_PARAMETERS: list[Json] = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldValidation", "fieldManager")
]
_METHODS = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}


@cache
def index() -> Json:
    """Return `/openapi/v3`: the address and hash of each group version's document."""
    paths = {
        f"apis/{group}/{version}": _address(group, version)
        for group, version in GROUP_VERSIONS
    }
    return {
        "paths": {
            path: {"serverRelativeURL": address} for path, address in paths.items()
        }
    }


def _address(group: str, version: str) -> str:
    return f"/openapi/v3/apis/{group}/{version}?hash={digest(group, version)}"


@cache
def digest(group: str, version: str) -> str:
    """Return the hash of a document."""
    text = json.dumps(document(group, version), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32].upper()


@cache
def document(group: str, version: str) -> Json:
    """Return the document of a group and version."""
    kinds = [info for info in SERVED if (info.group, info.version) == (group, version)]
    schemas: Json = {_name(info): _schema(info) for info in kinds}
    schemas[_METADATA] = {
        "type": "object",
        "description": "ObjectMeta is the metadata that all objects have.",
        "properties": _metadata(),
    }
    paths: Json = {}
    for info in kinds:
        paths |= _paths(info)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Modelplane", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _name(info: KindInfo) -> str:
    return ".".join([*reversed(info.group.split(".")), info.version, info.kind])


def _schema(info: KindInfo) -> Json:
    schema: Json = _converted(json_schema(info.kind))
    schema["properties"]["metadata"] = {
        "allOf": [{"$ref": f"#/components/schemas/{_METADATA}"}],
        "default": {},
    }
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
    plain = (
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
    )
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
    on_all = {"get": "list"}
    if "create" in allowed:
        on_all |= {"post": "post", "delete": "deletecollection"}
    found: Json = {f"{scope}/{info.plural}": _methods(info, scope, on_all)}
    path = f"{scope}/{info.plural}/{{name}}"
    on_one = {_METHODS[verb]: _METHODS[verb] for verb in allowed if verb in _METHODS}
    found[path] = _methods(info, path, on_one)
    for subresource in filter(None, subresources(info)):
        on_subresource = {"get": "get"}
        if subresource == SCALE:
            on_subresource |= {"put": "put", "patch": "patch"}
        below = f"{path}/{subresource}"
        found[below] = _methods(info, below, on_subresource)
    if info.namespaced:
        found[f"{base}/{info.plural}"] = _methods(info, base, {"get": "list"})
    return found


def _methods(info: KindInfo, path: str, methods: dict[str, str]) -> Json:
    schema = {"$ref": f"#/components/schemas/{_name(info)}"}
    is_scale = path.endswith(f"/{SCALE}")
    answer = {
        "200": {
            "description": "OK",
            "content": {"application/json": {"schema": schema}},
        }
    }
    kind = operations.SCALE_KIND if is_scale else _kind(info)
    found: Json = {}
    for method, action in methods.items():
        in_query = _PARAMETERS if method in _WRITING else operations.in_query(action)
        found[method] = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "parameters": [*operations.in_path(path), *in_query],
            **operations.body(action, schema, scale=is_scale),
            "responses": answer,
        }
    return found
