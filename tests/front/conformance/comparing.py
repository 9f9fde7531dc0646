"""The parts of two answers that must be equal."""

import gzip
import json
import re
from collections.abc import Iterable
from typing import Any

from tests.front.conformance.servers import Answer

Json = dict[str, Any]
HEADERS = ("content-type", "warning", "cache-control", "content-encoding", "allow")
GROUP = "modelplane.ai"
_OF_DISCOVERY = (
    "APIGroup",
    "APIGroupDiscoveryList",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
)
_TIMES = ("creationTimestamp", "deletionTimestamp")
_IDENTITIES = {"uid": "UID", "resourceVersion": "VERSION", "continue": "TOKEN"}
_AGE = re.compile(r"\d+[smhdy]\S*|<unknown>|<invalid>")


def compared(answer: Answer, *, watch: bool = False) -> Json:
    """Return the status, headers and body without what each server chooses itself."""
    headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    if "content-type" in headers:
        headers["content-type"] = [each.lower() for each in headers["content-type"]]
    return {
        "status": answer.status,
        "headers": headers,
        "body": _events(answer.body)
        if watch and answer.status == 200
        else _body(answer),
    }


def _events(body: bytes) -> list[Any]:
    """Return the events without periodic bookmarks, which come at any time."""
    events = [normal(json.loads(line)) for line in body.splitlines() if line.strip()]
    return [event for event in events if not _is_periodic(event)]


def _is_periodic(event: Json) -> bool:
    return event.get("type") == "BOOKMARK" and "annotations" not in str(event)


def _body(answer: Answer) -> Any:
    body = answer.body
    if answer.headers.get("content-encoding") == ["gzip"] and body:
        body = gzip.decompress(body)
    try:
        return normal(json.loads(body))
    except ValueError:
        return body.decode(errors="replace")


def normal(node: Any) -> Any:
    """Return a tree without identities, times and the texts of errors."""
    if isinstance(node, list):
        return [normal(each) for each in node]
    if not isinstance(node, dict):
        return node
    if node.get("kind") == "Status" and "status" in node:
        return _status(node)
    if node.get("kind") == "Table":
        return _table(node)
    if "openapi" in node or "swagger" in node:
        return _document(node)
    if node.get("kind") in _OF_DISCOVERY:
        return _discovery(node)
    if "gitVersion" in node:
        return sorted(node)
    result = {key: normal(value) for key, value in node.items()}
    if isinstance(node.get("metadata"), dict):
        result["metadata"] = _metadata(result["metadata"])
    return result


def _discovery(node: Json) -> Json:
    """Return a discovery document with our group only, without hashes and in order."""
    named = {
        "groups": [each for each in node.get("groups", ()) if each["name"] == GROUP],
        "items": [
            each
            for each in node.get("items", ())
            if each["metadata"].get("name") == GROUP
        ],
        "resources": sorted(
            node.get("resources", ()), key=lambda each: str(each["name"])
        ),
    }
    kept: Json = {key: named.get(key, value) for key, value in node.items()}
    if "serverAddressByClientCIDRs" in kept:
        kept["serverAddressByClientCIDRs"] = "ADDRESSES"
    result: Json = _without_hashes(kept)
    return result


def _without_hashes(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_hashes(each) for each in node]
    if not isinstance(node, dict):
        return node
    result = {
        key: _without_hashes(value)
        for key, value in node.items()
        if key not in ("storageVersionHash", "creationTimestamp")
    }
    for name in ("resources", "subresources"):
        if name in result:
            result[name] = sorted(result[name], key=str)
    if "verbs" in result:
        result["verbs"] = sorted(result["verbs"])
    return result


def _document(node: Json) -> Json:
    """Return the operations and the kinds of our group in an OpenAPI document."""
    operations = {
        path: {
            method: each.get("x-kubernetes-action")
            for method, each in methods.items()
            if method != "parameters"
        }
        for path, methods in node["paths"].items()
        if path.startswith(f"/apis/{GROUP}/v1alpha1/")
    }
    schemas = node.get("components", {}).get("schemas", node.get("definitions", {}))
    kinds = [
        each
        for schema in schemas.values()
        for each in schema.get("x-kubernetes-group-version-kind", ())
        if each["group"] == GROUP
    ]
    return {"operations": operations, "kinds": sorted(kinds, key=str)}


def _metadata(held: Json) -> Json:
    result = dict(held)
    for field, name in _IDENTITIES.items():
        if result.get(field):
            result[field] = name
    for field in _TIMES:
        if field in result:
            result[field] = "TIME"
    if prefix := result.get("generateName"):
        suffix = str(result.get("name", "")).removeprefix(prefix)
        result["name"] = f"{prefix}{len(suffix)} letters"
    if isinstance(result.get("managedFields"), list):
        result["managedFields"] = in_order(
            {**entry, "time": "TIME"} for entry in result["managedFields"]
        )
    return result


def in_order(entries: Iterable[Json]) -> list[Json]:
    """Sort managed fields, whose order depends on the second of each write."""
    return sorted(
        entries,
        key=lambda entry: (str(entry.get("manager")), str(entry.get("operation"))),
    )


def _status(node: Json) -> Json:
    """Return a Status without its text. Causes are compared by reason and field."""
    result = {key: value for key, value in node.items() if key != "message"}
    result["metadata"] = _metadata(node.get("metadata") or {})
    result.pop("details", None)
    details = dict(node.get("details") or {})
    if "uid" in details:
        details["uid"] = "UID"
    if "causes" in details:
        causes = [
            f"{cause.get('reason', '')} {cause.get('field', '')}"
            for cause in details["causes"]
        ]
        details["causes"] = sorted(set(causes))
    if details:
        result["details"] = details
    return result


def _table(node: Json) -> Json:
    rows = [
        {
            **row,
            "cells": ["AGE" if _is_age(cell) else cell for cell in row["cells"]],
            **({"object": normal(row["object"])} if row.get("object") else {}),
        }
        for row in node.get("rows") or []
    ]
    columns = [
        {key: value for key, value in column.items() if key != "description"}
        for column in node.get("columnDefinitions") or []
    ]
    return {
        **node,
        "metadata": _metadata(node.get("metadata") or {}),
        "columnDefinitions": columns,
        "rows": rows,
    }


def _is_age(cell: Any) -> bool:
    return isinstance(cell, str) and bool(_AGE.fullmatch(cell))


def differing(front: Any, real: Any, at: str = "") -> list[str]:
    """Return one line for each place at which two compared answers differ."""
    if isinstance(front, dict) and isinstance(real, dict):
        return [
            line
            for key in sorted({*front, *real})
            for line in differing(
                front.get(key, _ABSENT), real.get(key, _ABSENT), f"{at}.{key}"
            )
        ]
    if isinstance(front, list) and isinstance(real, list) and len(front) == len(real):
        return [
            line
            for number, (mine, theirs) in enumerate(zip(front, real, strict=True))
            for line in differing(mine, theirs, f"{at}[{number}]")
        ]
    if front == real and type(front) is type(real):
        return []
    return [f"{at}: front {_short(front)}, kube-apiserver {_short(real)}"]


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _short(value: Any) -> str:
    return repr(value)[:400]
