"""An OpenAPI document of the requests below `/v1`.

The front does not publish one, because Kubernetes clients do not use these paths.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from api_types.clock import utc_now
from api_types.resources.kinds import SERVED
from front.access import signing
from front.access.signing import signed_text
from front.scaling import events
from front.serving.bodies import JSON
from tests.front.fleet_of_tenants import AUDIENCE, KEYS

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "number", "minimum": 0}
_PLURAL: Json = {
    "type": "string",
    "enum": [*(info.plural for info in SERVED), "servingstacks", "nothing"],
}
_DRY: Json = {"name": "dryRun", "in": "query", "schema": _TEXT}
_COUNT: Json = {
    "type": "object",
    "required": ["replicas"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "maximum": 1000},
        "reason": _TEXT,
    },
}
_NUMBERS: Json = {
    "type": "object",
    "required": ["queueDepth"],
    "properties": {
        "queueDepth": _NUMBER,
        "runningRequests": _NUMBER,
        "observedAt": {"type": "string", "format": "date-time"},
    },
}
_ATTRIBUTES: Mapping[str, Json] = {
    "specversion": {"type": "string", "enum": ["1.0"]},
    "id": {"type": "string", "minLength": 1},
    "source": {"type": "string", "minLength": 1},
    "type": {"type": "string", "enum": [*events.RECORDED, "keda.scaledjob.ready.v1"]},
    "subject": {
        "type": "string",
        "enum": [f"/eu/a/scaledobject/{name}" for name in ("mine", "none")]
        + ["/eu/a/scaledjob/mine", "mine"],
    },
}
_DATA: Json = {
    "type": "object",
    "required": ["reason", "message"],
    "properties": {"reason": _TEXT, "message": _TEXT},
}
_STRUCTURED: Json = {
    "type": "object",
    "required": list(_ATTRIBUTES),
    "properties": {**_ATTRIBUTES, "data": _DATA},
}
_BINARY = [
    {"name": f"ce-{name}", "in": "header", "required": True, "schema": schema}
    for name, schema in _ATTRIBUTES.items()
]


def document() -> Json:
    """Return the document for every path of the router except the Kubernetes API."""
    scaled = "/v1/namespaces/{namespace}/modeldeployments/{name}"
    paths: dict[str, Json] = {
        f"{scaled}/scale": {"post": _body(JSON, _COUNT)},
        f"{scaled}/metrics": {
            "get": {},
            "put": _body(JSON, _NUMBERS),
            "post": _body(JSON, _NUMBERS),
        },
        # A client may send the headers of one mode with the body of the other.
        "/v1/events": {
            "post": {
                **_body(events.STRUCTURED, _STRUCTURED, JSON, _DATA),
                "parameters": _BINARY,
            }
        },
        "/v1/namespaces/{namespace}/{plural}/{name}/retry": {
            "post": _body(JSON, {"type": "object"})
        },
        "/v1/{plural}/{name}/retry": {"post": _body(JSON, {"type": "object"})},
        "/v1/namespaces/{namespace}/{plural}/{name}/revisions": {"get": {}},
        "/v1/servingstacks": {"get": {}},
        "/v1/servingstacks/{name}": {"get": {}},
    }
    for path, methods in paths.items():
        for operation in methods.values():
            operation["parameters"] = [
                *_in_path(path),
                _DRY,
                *operation.get("parameters", ()),
            ]
            operation["responses"] = {"200": {"description": "OK"}}
    return {
        "openapi": "3.0.0",
        "info": {"title": "below /v1", "version": "v1"},
        "paths": paths,
    }


def _body(
    media_type: str, schema: Json, other_type: str = "", other: Json | None = None
) -> Json:
    content = {media_type: {"schema": schema}} | (
        {other_type: {"schema": other}} if other_type else {}
    )
    return {"requestBody": {"required": True, "content": content}}


def _in_path(path: str) -> list[Json]:
    schemas = {"namespace": _TEXT, "plural": _PLURAL, "name": _TEXT}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in schemas.items()
        if f"{{{name}}}" in path
    ]


def sign(request: requests.PreparedRequest) -> None:
    """Add credentials of a caller with all rights to a request."""
    parts, body = urlsplit(str(request.url)), request.body or b""
    assert isinstance(body, str | bytes)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    timestamp, request_id, said = (
        str(int(utc_now().timestamp())),
        "r" * 16,
        body.encode() if isinstance(body, str) else body,
    )
    text = signed_text(
        AUDIENCE,
        timestamp,
        request_id,
        method=str(request.method),
        target=target,
        body=said,
    )
    proof = hmac.digest(bytes.fromhex(KEYS["root"]), text, hashlib.sha256).hex()
    request.headers.update(
        zip(signing.HEADERS, ("root", timestamp, request_id, proof), strict=True)
    )
