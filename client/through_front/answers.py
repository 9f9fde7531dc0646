"""Reading what the front answers: JSON of bounded depth, and objects that are what was asked for.

The rest of this program reads statuses by their names and types. So an object is compared with the models here, which tolerate the fields
of other releases, and one that does not fit is refused as a whole.
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
from client.errors import CommandFailed
from client.refs.targets import Target
from client.refs.tree import FOR_PROGRAMS, Tree

_PROBLEMS_SHOWN = 10
_TOKEN_MAX = 4096


def parsed(body: bytes) -> Any:
    """Read a body; None for one that is no JSON, is nested too deeply, or has text that cannot be printed."""
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
        if not all(is_unicode(node) for node in level if isinstance(node, str)):
            return False
        if not all(is_unicode(key) for node in level if isinstance(node, dict) for key in node):
            return False
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())]
        if not level:
            return True
    return False


def read_object(tree: Any, target: Target) -> Tree:
    """Give the object that was asked for. Raises `CommandFailed` for anything else."""
    found = _read(tree, target.kind, target.title)
    metadata = found["metadata"]
    if (metadata["name"], metadata.get("namespace") or "") != (target.name, target.namespace):
        raise unusable(target.title, ["it is another object"])
    return found


def read_items(tree: Any, kind: KindInfo, namespace: str | None) -> list[tuple[Target, Tree]]:
    """Give the objects of a list, all in that namespace unless it is None. Raises `CommandFailed`."""
    title = f"the list of {kind.plural}"
    items = tree.get("items") if isinstance(tree, dict) else None
    if not isinstance(items, list):
        raise unusable(title, ["it has no items"])
    found = []
    for item in items:
        # Kubernetes leaves these two out of the items of a list.
        filled = {"apiVersion": kind.api_version, "kind": kind.kind, **item} if isinstance(item, dict) else item
        one = _read(filled, kind, title)
        target = Target(kind, one["metadata"].get("namespace") or "", one["metadata"]["name"])
        if bool(target.namespace) is not kind.namespaced or (kind.namespaced and namespace not in (None, target.namespace)):
            raise unusable(title, [f"{target.title} does not belong into it"])
        if not is_dns_subdomain(target.name) or (kind.namespaced and not is_dns_label(target.namespace)):
            raise unusable(title, ["it has an object with a name that none can have"])
        found.append((target, one))
    return found


def read_revisions(tree: Any, target: Target) -> list[Tree]:
    """Give the earlier templates of a deployment; what they have in them the front checks when one is sent. Raises `CommandFailed`."""
    title = f"the earlier templates of {target.title}"
    rows = tree.get("revisions") if isinstance(tree, dict) else None
    if not isinstance(rows, list):
        raise unusable(title, ["there is no list of them"])
    for row in rows:
        generation = row.get("generation") if isinstance(row, dict) else None
        if not isinstance(generation, int) or isinstance(generation, bool) or not isinstance(row.get("template"), dict):
            raise unusable(title, ["one has no generation, or no template"])
    return rows


def next_page(tree: Tree) -> str:
    """Give the token of the next part of a list; empty if this is the last one. Raises `CommandFailed` for one too long to be sent."""
    metadata = tree.get("metadata")
    token = metadata.get("continue") if isinstance(metadata, dict) else ""
    if isinstance(token, str) and len(token) > _TOKEN_MAX:
        raise unusable("the part of a list", ["the token of the next part is too long"])
    return token if isinstance(token, str) else ""


def _read(tree: Any, kind: KindInfo, title: str) -> Tree:
    if not isinstance(tree, dict) or not isinstance(tree.get("metadata"), dict):
        raise unusable(title, ["it is no object"])
    if (tree.get("apiVersion"), tree.get("kind")) != (kind.api_version, kind.kind):
        raise unusable(title, ["it is of another kind"])
    problems = _problems("metadata", ObjectMeta, tree["metadata"])
    for field in ("spec", "status"):
        # An object whose specs were all refused has none.
        if tree.get(field) is not None:
            problems += _problems(field, kind.model.model_fields[field].annotation, tree[field])
    if problems:
        raise unusable(title, problems)
    # Only this program knows which requests were its own.
    return {key: value for key, value in tree.items() if key not in FOR_PROGRAMS}


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _problems(field: str, annotation: Any, value: Any) -> list[str]:
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError as error:
        return [f"{'.'.join((field, *map(str, each['loc'])))}: {each['msg']}" for each in error.errors()[:_PROBLEMS_SHOWN]]
    return []


def unusable(title: str, problems: list[str]) -> CommandFailed:
    """Make the error for an answer that is not what it should be."""
    return CommandFailed(
        f"the front did not answer with {title} as this program knows it",
        details=problems,
        next_step="check that --server names a front, and use the version of modelplane that the front has",
    )
