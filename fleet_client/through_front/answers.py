"""Validates the responses of the front.

They are JSON of bounded depth, and contain the requested objects. Other code reads the
fields of a status by name and type. So this module validates each object with the
models, which tolerate the fields of other releases, and rejects objects that do not
fit.
"""

import json
import math
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from api_types.resources.kinds import KindInfo
from api_types.resources.parts.base_types import ObjectMeta
from api_types.text.reader import DEPTH_MAX, is_unicode
from api_types.validation.rules.metadata import is_dns_label, is_dns_subdomain
from fleet_client.errors import CommandFailed
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import FOR_PROGRAMS, Tree

_PROBLEMS_SHOWN = 10
_TOKEN_MAX = 4096


def parsed(body: bytes) -> Any:
    """Parse a body.

    Return None if it is not JSON, is nested too deeply, or has unprintable text.
    """
    try:
        tree = json.loads(body, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return tree if _is_usable(tree) else None


def _refused(text: str) -> Any:
    raise ValueError(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _is_usable(tree: Any) -> bool:
    level = [tree]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                if not all(map(is_unicode, node)):
                    return False
                below += node.values()
            elif isinstance(node, list):
                below += node
            elif isinstance(node, str) and not is_unicode(node):
                return False
        if not below:
            return True
        level = below
    return False


def read_object(tree: Any, target: Target) -> Tree:
    """Return the requested object. Raise `CommandFailed` for anything else."""
    found = _read(tree, target.kind, target.title)
    metadata = found["metadata"]
    if (metadata["name"], metadata.get("namespace") or "") != (
        target.name,
        target.namespace,
    ):
        raise unusable(target.title, ["it has another name or namespace"])
    return found


def read_items(
    tree: Any, kind: KindInfo, namespace: str | None
) -> list[tuple[Target, Tree]]:
    """Return the objects of a list.

    Raise `CommandFailed`. All must be in `namespace`, unless it is None.
    """
    title = f"the list of {kind.plural}"
    items = tree.get("items") if isinstance(tree, dict) else None
    if not isinstance(items, list):
        raise unusable(title, ["it has no items"])
    found = []
    for item in items:
        if isinstance(item, dict):
            # Kubernetes omits these two fields in the items of a list.
            item = {"apiVersion": kind.api_version, "kind": kind.kind, **item}  # noqa: PLW2901
        one = _read(item, kind, title)
        target = Target(
            kind, one["metadata"].get("namespace") or "", one["metadata"]["name"]
        )
        is_elsewhere = kind.namespaced and namespace not in (None, target.namespace)
        if bool(target.namespace) is not kind.namespaced or is_elsewhere:
            raise unusable(title, [f"{target.title} does not belong to it"])
        if not is_dns_subdomain(target.name) or (
            kind.namespaced and not is_dns_label(target.namespace)
        ):
            raise unusable(title, ["it has an object with an invalid name"])
        found.append((target, one))
    return found


def read_revisions(tree: Any, target: Target) -> list[Tree]:
    """Return the earlier templates of a deployment.

    Raise `CommandFailed`. The content of a template is not checked here: the front
    checks it when a rollback sends it.
    """
    title = f"the earlier templates of {target.title}"
    rows = tree.get("revisions") if isinstance(tree, dict) else None
    if not isinstance(rows, list):
        raise unusable(title, ["there is no list of revisions"])
    for row in rows:
        generation = row.get("generation") if isinstance(row, dict) else None
        if (
            not isinstance(generation, int)
            or isinstance(generation, bool)
            or not isinstance(row.get("template"), dict)
        ):
            raise unusable(title, ["a revision has no generation or no template"])
    return rows


def next_page(tree: Tree) -> str:
    """Return the token of the next part of a list, or an empty string for the last one.

    Raise `CommandFailed` for a token that is too long.
    """
    metadata = tree.get("metadata")
    token = metadata.get("continue") if isinstance(metadata, dict) else ""
    if isinstance(token, str) and len(token) > _TOKEN_MAX:
        raise unusable("the part of a list", ["the token of the next part is too long"])
    return token if isinstance(token, str) else ""


def _read(tree: Any, kind: KindInfo, title: str) -> Tree:
    if not isinstance(tree, dict) or not isinstance(tree.get("metadata"), dict):
        raise unusable(title, ["it is not an object"])
    if (tree.get("apiVersion"), tree.get("kind")) != (kind.api_version, kind.kind):
        raise unusable(title, ["it has another kind"])
    problems = _problems("metadata", ObjectMeta, tree["metadata"])
    for field in ("spec", "status"):
        # An object whose specs were all refused has no spec.
        if tree.get(field) is not None:
            problems += _problems(
                field, kind.model.model_fields[field].annotation, tree[field]
            )
    if problems:
        raise unusable(title, problems)
    # Drop the request ids of other programs; only this program knows its own.
    return {key: value for key, value in tree.items() if key not in FOR_PROGRAMS}


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _problems(field: str, annotation: Any, value: Any) -> list[str]:
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError as error:
        return [
            f"{'.'.join((field, *map(str, each['loc'])))}: {each['msg']}"
            for each in error.errors()[:_PROBLEMS_SHOWN]
        ]
    return []


def unusable(title: str, problems: list[str]) -> CommandFailed:
    """Return the error for an answer that is invalid."""
    return CommandFailed(
        f"the front's answer about {title} is not valid for this program",
        details=problems,
        next_step="check that --server names a front, and use the front's version of modelplane",
    )
