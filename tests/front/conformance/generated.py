"""Random cases: a valid request with some of its parameters, headers or fields changed.

Watches are left out, because each takes a second.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.front.conformance.cases import Case, objects, request_of
from tests.front.conformance.comparing import Json

DRY_RUNS = ("All", "Some", "")
SELECTORS = ("a%3Db", "a%20in%20(b,c)", "!a", "a", "a%3D-b", "a%20b", "")
FIELDS = (
    "metadata.name%3Done",
    "metadata.namespace!%3Dx",
    "spec.x%3D1",
    "metadata.name",
    "",
)
VERSIONS = ("<rv>", "", "x", "-1", "9223372036854775807")
MANAGERS = ("alpha", "beta", "<m*129>", "a%07", "")
QUERIES: dict[str, Sequence[str]] = {
    "GET": (),
    "POST": ("dryRun", "fieldManager", "fieldValidation"),
    "PUT": ("dryRun", "fieldManager", "fieldValidation"),
    "PATCH": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "DELETE": ("dryRun", "propagationPolicy", "gracePeriodSeconds", "orphanDependents"),
}
OF_LISTS = (
    "limit",
    "continue",
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
)
VALUES: dict[str, Sequence[str]] = {
    "dryRun": DRY_RUNS,
    "fieldManager": MANAGERS,
    "fieldValidation": ("Strict", "Warn", "Ignore", "Some", ""),
    "force": ("true", "false", "1", ""),
    "propagationPolicy": ("Foreground", "Background", "Some", ""),
    "gracePeriodSeconds": ("0", "30", "-1", "x", ""),
    "orphanDependents": ("false", "0"),
    "limit": ("1", "2", "500", "0", "-1", "x", ""),
    "continue": ("x", "", "WyJhIl0"),
    "labelSelector": SELECTORS,
    "fieldSelector": FIELDS,
    "resourceVersion": VERSIONS,
    "resourceVersionMatch": ("Exact", "NotOlderThan", "Newest", ""),
    "sendInitialEvents": ("true", "false"),
    "timeoutSeconds": ("1", "x", ""),
}
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
ACCEPTS = (
    "application/json",
    "*/*",
    "application/*",
    _TABLE,
    _PARTIAL,
    _LIST,
    f"{_TABLE},application/json",
    f"{_LIST},application/json",
    "application/json;as=Table;v=v9;g=meta.k8s.io",
    "text/xml",
    "text/html,*/*;q=0.8",
)
TYPES = (
    "json",
    "yaml",
    "merge",
    "json-patch",
    "strategic",
    "apply",
    "text/plain",
    "none",
)
TEXTS = (b"", b"null", b"[]", b"{}", b"5", b'"x"', b"{", b"a: b", b"\xff")
METADATA: dict[str, Sequence[Any]] = {
    "name": ("one", "two", "", "ONE", "a b", None, "<absent>"),
    "namespace": ("<ns>", "other", "", "<absent>"),
    "generateName": ("one-", ""),
    "uid": ("<uid>", "x", ""),
    "resourceVersion": ("<rv>", "1", "x", "0"),
    "labels": ({"a": "b"}, {"a": "c"}, {"a": ""}, {"a": "-"}, {"a b": "c"}, {}, None),
    "annotations": ({"a": "b"}, {"a": "-"}, {"a b": "c"}, {}, None),
    "finalizers": ([], ["example.com/one"]),
    "generation": (1, 7),
    "selfLink": ("/x",),
}
SPECS: dict[str, Sequence[Any]] = {
    "replicas": (0, 1, 2, 3, -1, "x", 1.5, None),
    "rollout": ({"maxUnavailable": 1}, {"maxUnavailable": "25%"}, {}, []),
    "replicants": (1,),
    "template": ({}, {"spec": {"engines": []}}),
}
ROOTS: dict[str, Sequence[Any]] = {
    "kind": ("ModelDeployment", "ModelService", "", "<absent>"),
    "apiVersion": ("modelplane.ai/v1alpha1", "modelplane.ai/v9", "v1", "<absent>"),
    "more": (1,),
    "status": ({}, {"phase": "Ready"}),
}
OPERATIONS = (
    {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
    {"op": "replace", "path": "/spec/replicas", "value": 3},
    {"op": "test", "path": "/spec/replicas", "value": 2},
    {"op": "test", "path": "/spec/replicas", "value": 9},
    {"op": "remove", "path": "/metadata/labels/none"},
    {"op": "add", "path": "/metadata/labels/x", "value": "y"},
    {"op": "grow", "path": "/spec/replicas"},
)
_BELOW = ("", "", "", "", "/scale", "/status")


def drawn(seed: str) -> Case:
    """Return the case of a seed."""
    draw = random.Random(seed)  # noqa: S311 - repeatable on purpose
    before = draw.choice(
        [[], ["made"], ["made"], ["made", "labelled"], ["made-by-apply"]]
    )
    tree = draw.choice(REQUESTS)(draw)
    _add_parameters(draw, tree)
    if draw.random() < 0.2:
        tree["headers"] = {"Accept": draw.choice(ACCEPTS)}
    if ("body" in tree or "bytes" in tree) and draw.random() < 0.1:
        tree["type"] = draw.choice(TYPES)
    steps = [objects()[step] for step in before]
    return Case(f"{seed}: {before} {tree}", tuple(map(request_of, (*steps, tree))))


def _add_parameters(draw: random.Random, tree: Json) -> None:
    method = next(iter(tree))
    path = tree[method]
    names = [*QUERIES.get(method, ())]
    if path == "<md>" and method == "GET":
        names += OF_LISTS
    elif path == "<md>" and method == "DELETE":
        names += ("limit", "labelSelector", "fieldSelector")
    elif method == "GET":
        names += ["resourceVersion", "pretty"]
    chosen = draw.sample(names, min(len(names), draw.choice([0, 0, 1, 1, 2, 3])))
    if tree.get("type") == "apply" and "fieldManager" not in chosen:
        chosen.append("fieldManager")
    values = [f"{name}={draw.choice(VALUES.get(name, ('true',)))}" for name in chosen]
    tree[method] = f"{path}?{'&'.join(values)}" if values else path


def _changed(draw: random.Random, *, partial: bool) -> Json:
    """Return an object, or a part of one, with some fields changed."""
    tree: Json = {} if partial else dict(objects()["deployment"])
    for at, fields in (("metadata", METADATA), ("spec", SPECS), ("", ROOTS)):
        if draw.random() < 0.5:
            continue
        names = draw.sample(list(fields), draw.choice([1, 1, 2]) if at else 1)
        into = dict(tree.get(at, {})) if at else tree
        for name in names:
            value = draw.choice(fields[name])
            into.pop(name, None)
            if value != "<absent>":
                into[name] = value
        if at:
            tree[at] = into
    return tree


def _body(draw: random.Random, *, partial: bool) -> Json:
    if draw.random() < 0.05:
        return {"bytes": draw.choice(TEXTS)}
    return {"body": _changed(draw, partial=partial)}


def _get(draw: random.Random) -> Json:
    return {draw.choice(["GET", "GET", "HEAD"]): f"<one>{draw.choice(_BELOW)}"}


def _list(_: random.Random) -> Json:
    return {"GET": "<md>"}


def _create(draw: random.Random) -> Json:
    return {"POST": "<md>", **_body(draw, partial=False)}


def _update(draw: random.Random) -> Json:
    tree = {"PUT": "<one>", **_body(draw, partial=False)}
    if "body" in tree and draw.random() < 0.7:
        metadata = tree["body"].get("metadata")
        if isinstance(metadata, dict):
            metadata = {"resourceVersion": "<rv>", **metadata}
            tree["body"] = {**tree["body"], "metadata": metadata}
    return tree


def _patch(draw: random.Random) -> Json:
    return {"PATCH": "<one>", **_body(draw, partial=True)}


def _json_patch(draw: random.Random) -> Json:
    operations = draw.choices(OPERATIONS, k=draw.choice([0, 1, 1, 2]))
    return {"PATCH": "<one>", "body": operations, "type": "json-patch"}


def _apply(draw: random.Random) -> Json:
    partial = draw.random() < 0.5
    tree = {"PATCH": "<one>", **_body(draw, partial=partial), "type": "apply"}
    if partial and "body" in tree:
        tree["body"] = {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "ModelDeployment",
            **tree["body"],
            "metadata": {"name": "one", **tree["body"].get("metadata", {})},
        }
    return tree


def _delete(draw: random.Random) -> Json:
    tree: Json = {"DELETE": draw.choice(["<one>", "<one>", "<md>"])}
    if draw.random() < 0.5:
        preconditions = draw.choice(
            [{}, {"uid": "<uid>"}, {"uid": "x"}, {"resourceVersion": "1"}]
        )
        tree["body"] = {"preconditions": preconditions}
    return tree


def _scale(draw: random.Random) -> Json:
    spec = {"replicas": draw.choice([0, 1, 5, 5, -1, "x"])}
    if draw.random() < 0.3:
        metadata = {"name": "one", "resourceVersion": draw.choice(["<rv>", "1"])}
        return {"PUT": "<one>/scale", "body": {"metadata": metadata, "spec": spec}}
    return {"PATCH": "<one>/scale", "body": {"spec": spec}}


REQUESTS: tuple[Callable[[random.Random], Json], ...] = (
    _get,
    _list,
    _list,
    _create,
    _create,
    _update,
    _update,
    _patch,
    _patch,
    _json_patch,
    _apply,
    _apply,
    _delete,
    _scale,
)
