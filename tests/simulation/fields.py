"""Server-side apply in the forms that the product uses: field owners and merging.

Field sets are in the form of `metadata.managedFields[].fieldsV1`: `f:name` for a field,
`k:{…}` for an element of a list with keys, `v:…` for an element of a set, `.` for the
element itself. A list without keys is one field.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]
Fields = dict[str, Any]

# The keys of lists that are merged element by element, by the name of the field; with the value
# that the server fills in for an absent one.
_KEYS: Mapping[str, Mapping[str, Any]] = {
    "containers": {"name": None},
    "initContainers": {"name": None},
    "volumes": {"name": None},
    "env": {"name": None},
    "resourceClaims": {"name": None},
    "claims": {"name": None},
    "imagePullSecrets": {"name": None},
    "listeners": {"name": None},
    "volumeMounts": {"mountPath": None},
    "conditions": {"type": None},
    "ownerReferences": {"uid": None},
}
_CONTAINER_PORT: Mapping[str, Any] = {"containerPort": None, "protocol": "TCP"}
_SERVICE_PORT: Mapping[str, Any] = {"port": None, "protocol": "TCP"}
_SETS = frozenset({"finalizers"})
# Fields that identify an object, and fields of the server, belong to no manager.
_OF_NOBODY = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
    }
)


def copied(value: Any) -> Any:
    """Copy a tree of JSON."""
    if isinstance(value, dict):
        return {name: copied(inner) for name, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def content(manifest: Mapping[str, Any]) -> Json:
    """Return the part of an object that managers can own."""
    metadata = {
        name: value
        for name, value in (manifest.get("metadata") or {}).items()
        if name not in _OF_NOBODY
    }
    rest = {
        name: value
        for name, value in manifest.items()
        if name not in ("apiVersion", "kind", "metadata", "status")
    }
    return {**({"metadata": metadata} if metadata else {}), **rest}


def field_set(value: Any, name: str = "") -> Fields:
    """Return the fields of a value; empty for a leaf."""
    if isinstance(value, dict):
        return {f"f:{key}": field_set(inner, key) for key, inner in value.items()}
    if isinstance(value, list) and name in _SETS:
        return {f"v:{json.dumps(each)}": {} for each in value}
    if isinstance(value, list) and (keys := _keys(name, value)):
        return {_step(each, keys): {".": {}, **field_set(each)} for each in value}
    return {}


def merged(live: Any, applied: Any, name: str = "") -> Any:
    """Return a value after an apply: fields that the apply does not name stay."""
    if isinstance(live, dict) and isinstance(applied, dict):
        return {
            **live,
            **{key: merged(live.get(key), inner, key) for key, inner in applied.items()},
        }
    if isinstance(applied, list) and name in _SETS:
        return [*(live or ()), *(each for each in applied if each not in (live or ()))]
    if isinstance(applied, list) and (keys := _keys(name, applied)):
        old = {_step(each, keys): each for each in live or ()} if isinstance(live, list) else {}
        new = {
            _step(each, keys): merged(old.get(_step(each, keys)), _defaulted(each, keys))
            for each in applied
        }
        return [*(new.pop(step, each) for step, each in old.items()), *new.values()]
    if isinstance(applied, dict):
        return {key: merged(None, inner, key) for key, inner in applied.items()}
    return copied(applied)


def without(value: Any, dropped: Fields, name: str = "") -> Any:
    """Return a value without these fields."""
    if isinstance(value, dict):
        kept = {}
        for key, inner in value.items():
            below = dropped.get(f"f:{key}")
            if below is None:
                kept[key] = inner
            elif below:
                left = without(inner, below, key)
                # A struct without fields is removed, like an unset one.
                if left not in ({}, []) or inner in ({}, []):
                    kept[key] = left
        return kept
    if isinstance(value, list) and name in _SETS:
        return [each for each in value if f"v:{json.dumps(each)}" not in dropped]
    if isinstance(value, list) and (keys := _keys(name, value)):
        steps = [(_step(each, keys), each) for each in value]
        return [
            without(each, dropped.get(step, {}))
            for step, each in steps
            if "." not in dropped.get(step, {})
        ]
    return value


def minus(fields: Fields, others: Fields) -> Fields:
    """Return the fields that are not among `others`."""
    left: Fields = {}
    for step, inner in fields.items():
        if step not in others:
            left[step] = inner
        elif inner and (below := minus(inner, others[step])):
            left[step] = below
    return left


def union(fields: Fields, others: Fields) -> Fields:
    """Return the fields of both."""
    return {
        **fields,
        **{
            step: union(fields[step], inner) if fields.get(step) else inner
            for step, inner in others.items()
            if step not in fields or inner
        },
    }


def changed(before: Any, after: Any, name: str = "") -> Fields:
    """Return the fields of `after` whose values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = {}
        for key, inner in after.items():
            if key not in before:
                found[f"f:{key}"] = field_set(inner, key)
            elif inner != before[key]:
                below = changed(before[key], inner, key)
                if below or not isinstance(inner, dict | list) or _is_atomic(key, inner):
                    found[f"f:{key}"] = below
        return found
    if isinstance(after, list) and name in _SETS:
        return {f"v:{json.dumps(each)}": {} for each in after if each not in (before or ())}
    if isinstance(after, list) and (keys := _keys(name, after)):
        old = {_step(each, keys): each for each in before or ()}
        found = {}
        for each in after:
            step = _step(each, keys)
            if step not in old:
                found[step] = {".": {}, **field_set(each)}
            elif below := changed(old[step], each):
                found[step] = below
        return found
    return {}


def removed(before: Any, after: Any, name: str = "") -> Fields:
    """Return the fields that only `before` has."""
    return minus(field_set(before, name), field_set(after, name))


def _is_atomic(name: str, value: Any) -> bool:
    return isinstance(value, list) and name not in _SETS and not _keys(name, value)


def _keys(name: str, values: list[Any]) -> Mapping[str, Any]:
    if not values or not all(isinstance(each, dict) for each in values):
        return {}
    if name == "ports":
        keys = (
            _CONTAINER_PORT
            if "containerPort" in values[0]
            else _SERVICE_PORT
            if "targetPort" in values[0]
            else {}
        )
    else:
        keys = _KEYS.get(name, {})
    return keys if all(_has(each, keys) for each in values) else {}


def _has(element: Json, keys: Mapping[str, Any]) -> bool:
    return all(key in element or default is not None for key, default in keys.items())


def _step(element: Json, keys: Mapping[str, Any]) -> str:
    wanted = {key: element.get(key, default) for key, default in sorted(keys.items())}
    return f"k:{json.dumps(wanted, separators=(',', ':'))}"


def _defaulted(element: Json, keys: Mapping[str, Any]) -> Json:
    return {**{key: default for key, default in keys.items() if default is not None}, **element}


def managers(entries: Iterable[Json], kept: Fields) -> list[Json]:
    """Remove fields from these entries, and drop entries without fields."""
    found = []
    for entry in entries:
        fields = minus(entry["fieldsV1"], kept)
        if fields:
            found.append({**entry, "fieldsV1": fields})
    return found
