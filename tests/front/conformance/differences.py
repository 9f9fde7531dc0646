"""The documented differences of differences.yaml.

Each one removes itself from the two outcomes of a case. What then still differs is
undocumented. `python -m tests.docs.generated` writes the table for users.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.front.conformance.cases import BASE, Request
from tests.front.conformance.comparing import Json, in_order

FILE = Path(__file__).with_suffix(".yaml")
Pair = tuple[Json, Json]
Remove = Callable[[Request, Json, Json], Pair]


@dataclass(frozen=True)
class Difference:
    """A row of the table, and the function that removes it from two outcomes.

    A `common` difference shows in so many cases that they do not name it.
    """

    key: str
    request: str
    kubernetes: str
    front: str
    reason: str
    remove: Remove
    common: bool


@cache
def differences() -> tuple[Difference, ...]:
    return tuple(
        Difference(
            **{name: str(row[name]) for name in ("key", *COLUMNS)},
            remove=_REMOVED[row["removed_by"]]
            if "removed_by" in row
            else accepted(row),
            common=row.get("common", False),
        )
        for row in yaml.safe_load(FILE.read_text())
    )


COLUMNS = ("request", "kubernetes", "front", "reason")


def without(
    requests: tuple[Request, ...],
    front: Json,
    real: Json,
    keys: Collection[str] | None = None,
) -> tuple[Json, Json, tuple[str, ...]]:
    """Remove documented differences; return the outcomes and the keys of the rows.

    Without `keys`, every row may remove its difference.
    """
    used = []
    for each in differences():
        if keys is not None and not each.common and each.key not in keys:
            continue
        if front == real:
            break
        after = each.remove(requests[-1], front, real)
        if after != (front, real):
            front, real = after
            if not each.common:
                used.append(each.key)
    return front, real, tuple(used)


def accepted(row: Mapping[str, Any]) -> Remove:
    """Accept pairs of status codes; the rest of such answers cannot be compared."""
    pairs = [tuple(pair) for pair in row["statuses"]]
    cause = row.get("cause")

    def remove(request: Request, front: Json, real: Json) -> Pair:
        causes = _causes_of(front)
        is_meant = (
            (front["status"], real["status"]) in pairs
            and row.get("path", "") in request.path
            and row.get("method", request.method) == request.method
            and row.get("lacks") not in request.headers
            and ("has" not in row or row["has"] in request.headers)
            and (cause != "" or not causes)
            and (not cause or any(cause in each for each in causes))
        )
        return _as_front(front, real) if is_meant else (front, real)

    return remove


def _as_front(front: Json, real: Json) -> Pair:
    return front, {**front, "before": real["before"]}


def _causes_of(answer: Json) -> list[str]:
    body = answer["body"]
    details = body.get("details", {}) if isinstance(body, dict) else {}
    return list(details.get("causes", ()))


def _dropped(node: Any, *fields: str) -> Any:
    """Return a tree without fields of a name, at any depth."""
    if isinstance(node, list):
        return [_dropped(each, *fields) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _dropped(value, *fields)
        for key, value in node.items()
        if key not in fields
    }


def _both_without(front: Json, real: Json, *fields: str) -> Pair:
    """Remove fields from both bodies."""
    mine, theirs = (
        {**each, "body": _dropped(each["body"], *fields)} for each in (front, real)
    )
    return mine, theirs


def _kind(answer: Json) -> str:
    return str(answer["body"].get("kind")) if isinstance(answer["body"], dict) else ""


def _no_owners(_: Request, front: Json, real: Json) -> Pair:
    if "managedFields" not in str(front):
        return front, _dropped(real, "managedFields")
    return front, real


def _first_owner(_: Request, front: Json, real: Json) -> Pair:
    text = json.dumps(front).replace('"before-first-apply"', '"conformance"')
    if text == json.dumps(front):
        return front, real
    return _owners_in_order(json.loads(text)), real


def _owners_in_order(node: Any) -> Any:
    if isinstance(node, list):
        return [_owners_in_order(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: in_order(value) if key == "managedFields" else _owners_in_order(value)
        for key, value in node.items()
    }


def _empty_maps(_: Request, front: Json, real: Json) -> Pair:
    return front, _without_empty(real)


def _without_empty(node: Any) -> Any:
    """Remove the ownership of empty labels and annotations."""
    if isinstance(node, list):
        found = [_without_empty(each) for each in node]
        return [each for each in found if not _owns_nothing(each)]
    if not isinstance(node, dict):
        return node
    kept = {
        key: _without_empty(value)
        for key, value in node.items()
        if value != {} or key not in ("f:labels", "f:annotations")
    }
    if kept.get("f:metadata") == {}:
        del kept["f:metadata"]
    return kept


def _owns_nothing(node: Any) -> bool:
    return isinstance(node, dict) and node.get("fieldsV1") == {}


def _empty_lists(_: Request, front: Json, real: Json) -> Pair:
    if _kind(real).endswith("List") and real["body"].get("items", ()) is None:
        return front, {**real, "body": {**real["body"], "items": []}}
    return front, real


def _null_owners(request: Request, front: Json, real: Json) -> Pair:
    is_null = request.method == "PATCH" and b": null" in (request.body or b"")
    if is_null and (front["status"], real["status"]) == (200, 409):
        return _as_front(front, real)
    return front, real


def _unknown_path(_: Request, front: Json, real: Json) -> Pair:
    """Accept a Status instead of a text, or of nothing."""
    is_text = real["body"] in ("404 page not found\n", "")
    same = front["status"] == real["status"] and real["status"] in (404, 406)
    return _as_front(front, real) if is_text and same else (front, real)


def _server_errors(_: Request, front: Json, real: Json) -> Pair:
    is_rejected = 400 <= front["status"] < 500
    return (
        _as_front(front, real)
        if is_rejected and real["status"] == 500
        else (front, real)
    )


def _repeats(request: Request, front: Json, real: Json) -> Pair:
    """Accept events of the front in addition to those of the API server, in order."""
    mine, theirs = front["body"], real["body"]
    if (
        not request.is_watch
        or not isinstance(mine, list)
        or not isinstance(theirs, list)
    ):
        return front, real
    left = iter(mine)
    is_part = all(event in left for event in theirs)
    return (front, {**real, "body": mine}) if is_part else (front, real)


def _left_selections(request: Request, front: Json, real: Json) -> Pair:
    if not request.is_watch or "labelSelector" not in request.path:
        return front, real
    mine, theirs = (
        {**each, "body": [_without_labels(event) for event in each["body"]]}
        for each in (front, real)
    )
    return mine, theirs


def _without_labels(event: Json) -> Any:
    return _dropped(event, "labels") if event.get("type") == "DELETED" else event


def _later_pages(request: Request, front: Json, real: Json) -> Pair:
    if "continue=" in request.path and front["status"] == real["status"] == 200:
        return _both_without(front, real, "items")
    return front, real


def _causes(_: Request, front: Json, real: Json) -> Pair:
    """Compare the causes of two rejections only by their presence."""
    if front["status"] == real["status"] == 422 and all(map(_causes_of, (front, real))):
        return _both_without(front, real, "causes")
    return front, real


def _details(_: Request, front: Json, real: Json) -> Pair:
    if front["status"] == real["status"] == 422:
        return _both_without(front, real, "details")
    return front, real


def _generated(request: Request, front: Json, real: Json) -> Pair:
    if b"generateName" in (request.body or b""):
        fields = ("generateName", "name", "retryAfterSeconds", "managedFields")
        return _both_without(front, real, *fields)
    return front, real


def _self_links(_: Request, front: Json, real: Json) -> Pair:
    return front, {**real, "body": _dropped(real["body"], "selfLink", "f:selfLink")}


def _first_problem(_: Request, front: Json, real: Json) -> Pair:
    rejected = all(each["status"] in _REJECTED for each in (front, real))
    return _as_front(front, real) if rejected else (front, real)


def _forms_of_scales(_: Request, front: Json, real: Json) -> Pair:
    is_form = _kind(front) == "Scale" and _kind(real) in _FORMS
    return _as_front(front, real) if is_form else (front, real)


def _null_labels(_: Request, front: Json, real: Json) -> Pair:
    metadata = real["body"].get("metadata", {}) if _kind(real) else {}
    if set(metadata.get("labels", {}).values()) == {""}:
        return _both_without(front, real, "labels")
    return front, real


def _warnings(_: Request, front: Json, real: Json) -> Pair:
    return _without_header(front, real, "warning")


def _protobuf(_: Request, front: Json, real: Json) -> Pair:
    is_protobuf = str(real["body"]).startswith("k8s\x00")
    same = front["status"] == real["status"]
    return _as_front(front, real) if is_protobuf and same else (front, real)


def _deleted(request: Request, front: Json, real: Json) -> Pair:
    """Accept a Status instead of an object, and an object that is not yet deleted."""
    same = request.method == "DELETE" and front["status"] == real["status"] == 200
    is_other = _kind(front) != _kind(real) or "Foreground" in request.path
    return _as_front(front, real) if same and is_other else (front, real)


def _verbs(_: Request, front: Json, real: Json) -> Pair:
    """Remove the writes of status and of kinds of the control plane."""
    operations = real["body"].get("operations") if _is_tree(real) else None
    if operations is None:
        return _both_without(front, real, "verbs")
    allowed = {
        path: {
            method: action
            for method, action in methods.items()
            if method == "get" or not ("/status" in path or "/modelreplicas" in path)
        }
        for path, methods in operations.items()
    }
    return front, {**real, "body": {**real["body"], "operations": allowed}}


def _lists(_: Request, front: Json, real: Json) -> Pair:
    if not _is_tree(real) or "kinds" not in real["body"]:
        return front, real
    kinds = [
        each for each in real["body"]["kinds"] if not each["kind"].endswith("List")
    ]
    return front, {**real, "body": {**real["body"], "kinds": kinds}}


def _is_tree(answer: Json) -> bool:
    return isinstance(answer["body"], dict)


def _version_fields(_: Request, front: Json, real: Json) -> Pair:
    """Compare the fields that clients require."""
    if "gitVersion" not in front["body"]:
        return front, real
    mine, theirs = (
        {**each, "body": [name for name in each["body"] if name in _VERSION_FIELDS]}
        for each in (front, real)
    )
    return mine, theirs


def _caching(request: Request, front: Json, real: Json) -> Pair:
    if not request.path.startswith(("/apis", "/api")) or BASE in request.path:
        return front, real
    return _without_header(front, real, "cache-control")


def _without_header(front: Json, real: Json, name: str) -> Pair:
    """Remove a header in which the answers differ."""
    if front["headers"].get(name) == real["headers"].get(name):
        return front, real
    mine, theirs = (
        {**each, "headers": _dropped(each["headers"], name)} for each in (front, real)
    )
    return mine, theirs


def _core(request: Request, front: Json, real: Json) -> Pair:
    if request.path == "/api/v1":
        return _both_without(front, real, "resources")
    return front, real


def _zero(_: Request, front: Json, real: Json) -> Pair:
    if _kind(front) == "Scale" and front["body"]["spec"] == {"replicas": 0}:
        return _both_without(front, real, "replicas")
    return front, real


# The fields that the Python client requires.
_VERSION_FIELDS = (
    "buildDate",
    "compiler",
    "gitCommit",
    "gitTreeState",
    "gitVersion",
    "goVersion",
    "major",
    "minor",
    "platform",
)
_REJECTED = (*range(400, 500), 504)
_FORMS = ("Table", "PartialObjectMetadata")
_REMOVED: Mapping[str, Remove] = {
    "caching": _caching,
    "core": _core,
    "lists": _lists,
    "verbs": _verbs,
    "version_fields": _version_fields,
    "causes": _causes,
    "deleted": _deleted,
    "details": _details,
    "first_owner": _first_owner,
    "empty_lists": _empty_lists,
    "empty_maps": _empty_maps,
    "null_owners": _null_owners,
    "first_problem": _first_problem,
    "forms_of_scales": _forms_of_scales,
    "generated": _generated,
    "self_links": _self_links,
    "later_pages": _later_pages,
    "left_selections": _left_selections,
    "no_owners": _no_owners,
    "null_labels": _null_labels,
    "protobuf": _protobuf,
    "repeats": _repeats,
    "server_errors": _server_errors,
    "unknown_path": _unknown_path,
    "warnings": _warnings,
    "zero": _zero,
}
