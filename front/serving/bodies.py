"""Bodies of requests: read in bounded size, as JSON or YAML, and patches applied to objects."""

import copy
from typing import Any

import jsonpatch

from api_types.text.reader import Unreadable, read_trees
from front.serving import errors
from front.store.projection import Tree

BYTES_MAX = 3 * 1024 * 1024
OBJECTS = ("application/json", "application/yaml")
MERGE, JSON_PATCH, STRATEGIC = "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json"
PATCHES = (MERGE, JSON_PATCH, STRATEGIC)
_OPERATIONS_MAX = 10_000
# What the library raises for operations that are not written as such.
_NOT_A_PATCH = (TypeError, KeyError, IndexError, ValueError, AttributeError)


def parse(body: bytes) -> Any:
    """Read the one document of a body. Raises `Refused`."""
    try:
        (tree, _), *more = [*read_trees(body.decode())] or [(None, 0)]
    except (UnicodeDecodeError, Unreadable) as error:
        raise errors.bad_request(f"the body cannot be read: {error}") from None
    if more:
        raise errors.bad_request("the body has several documents; send one")
    return tree


def parse_object(body: bytes) -> Tree:
    """Read the one object of a body. Raises `Refused`."""
    tree = parse(body)
    if not isinstance(tree, dict):
        raise errors.bad_request("the body must be an object")
    return tree


def media_type(content_type: str, allowed: tuple[str, ...]) -> str:
    """Give the media type of a body. Raises `Refused` for one that is not read."""
    found = content_type.partition(";")[0].strip().lower() or allowed[0]
    if found not in allowed:
        raise errors.unsupported_media_type(allowed)
    return found


def patched(tree: Tree, kind: str, patch: Any) -> Tree:
    """Apply a patch to a copy of an object. Raises `Refused`. Strategic ones are merged: no kind of ours has rules for more."""
    if kind == JSON_PATCH:
        return _json_patched(tree, patch)
    if not isinstance(patch, dict):
        raise errors.bad_request("a merge patch must be an object")
    if kind == STRATEGIC and "$" in "".join(key[:1] for key in _keys(patch)):
        raise errors.bad_request(
            "directives of strategic merge patches, such as $patch, are not understood; send a merge patch or a JSON patch"
        )
    merged: Tree = _merged(copy.deepcopy(tree), patch)
    return merged


def _json_patched(tree: Tree, patch: Any) -> Tree:
    if not isinstance(patch, list) or len(patch) > _OPERATIONS_MAX:
        raise errors.bad_request(f"a JSON patch must be a list of at most {_OPERATIONS_MAX} operations")
    try:
        result = jsonpatch.apply_patch(copy.deepcopy(tree), patch)
    except (
        jsonpatch.JsonPatchException,
        jsonpatch.JsonPointerException,
        *_NOT_A_PATCH,
    ) as error:
        raise errors.Refused(422, "Invalid", f"the server rejected our request due to an error in our request: {error}") from None
    if not isinstance(result, dict):
        raise errors.bad_request("the patch leaves no object")
    return result


def _merged(target: Any, patch: Any) -> Any:
    """Merge as RFC 7386 says: null removes, objects are merged, all else is replaced."""
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _keys(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [*map(str, node), *(key for value in node.values() for key in _keys(value))]
    return [key for item in node for key in _keys(item)] if isinstance(node, list) else []
