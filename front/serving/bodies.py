"""Bodies of requests: read in bounded size, as JSON or YAML, and patches applied to objects.

A client may send any text. What is small and large to build is refused before it is built, and all of it is done apart from the thread that
answers requests (`apart`), for one request of each user at a time: no user holds up the others for longer than one body takes.
"""

import asyncio
import copy
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import jsonpatch
import jsonpointer

from api_types.payloads.limits import MANIFEST_BYTES_MAX
from api_types.text.reader import DEPTH_MAX, Unreadable, read_one
from front.serving import errors
from front.store.projection import Tree

BYTES_MAX = 2 * 1024 * 1024
SMALL_BYTES_MAX = 16 * 1024
"""Of a Scale, a patch of one, and an access review, which every user may send."""
JSON = "application/json"
OBJECTS = (JSON, "application/yaml")
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
PATCHES = (JSON_PATCH, MERGE)
"""As for custom resources. A strategic merge patch needs rules for lists, which custom resources lack. Merged without them, it would
replace a whole list for a change of one item.
"""
APPLY = "application/apply-patch+yaml"
"""A configuration for server-side apply: of objects, and of no Scale."""
_OPERATIONS_MAX = 1_000
# All that the operations of one JSON patch copy: each may copy what the one before it has made.
_COPIED_BYTES_MAX = 1024 * 1024
# The operations of a JSON patch that read a field, each with where it names it; and what users write of an object.
_READS = {"test": "path", "copy": "from", "move": "from"}
_WRITTEN = ("/spec/", "/metadata/labels/", "/metadata/annotations/")
# What the library raises for operations that are not written as such.
_NOT_A_PATCH = (TypeError, KeyError, IndexError, ValueError, AttributeError, RecursionError)
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="front")
USER: ContextVar[str] = ContextVar("USER", default="")
"""Whose request the present task answers."""
# Those that a request uses now.
_TURNS: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
ResultT = TypeVar("ResultT")


async def apart(work: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Work on what a client sent, for a second or more, while others are answered; other requests of its user wait."""
    async with _TURNS.setdefault(USER.get(), asyncio.Lock()):
        return await asyncio.get_running_loop().run_in_executor(_THREAD, work, *arguments)


def parse(body: bytes) -> Any:
    """Read the one document of a body. Raises `Refused`."""
    try:
        text = body.decode()
        tree = read_one(text) if len(body) <= MANIFEST_BYTES_MAX else json.loads(text)
    except (Unreadable, ValueError, RecursionError) as error:
        raise errors.bad_request(f"the body cannot be read: {str(error)[:512]}") from None
    if _is_deep(tree):
        raise errors.bad_request(f"the body is nested more than {DEPTH_MAX} levels deep")
    return tree


def parse_object(body: bytes) -> Tree:
    """Read the one object of a body. Raises `Refused`."""
    tree = parse(body)
    if not isinstance(tree, dict):
        raise errors.bad_request("the body must be an object")
    return tree


def _is_deep(tree: Any) -> bool:
    level = [tree]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())]
        if not level:
            return False
    return True


def media_type(content_type: str, allowed: tuple[str, ...], *, silent: str = "") -> str:
    """Give the media type of a body. Raises `Refused` for one that is not read.

    `silent`: what a body without one is. The HorizontalPodAutoscaler and KEDA update scales so; a page of a browser can send one too, by
    POST.
    """
    found = content_type.partition(";")[0].strip().lower() or silent
    if found not in allowed:
        raise errors.unsupported_media_type(allowed)
    return found


def names_version(kind: str, patch: Any) -> bool:
    """Whether a patch is meant for one version of the object alone."""
    if kind == JSON_PATCH:
        return "resourceVersion" in json.dumps(patch)
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))


def reads_status(kind: str, patch: Any) -> bool:
    """Whether what a patch does depends on more of the object than labels, annotations and spec."""
    operations = patch if kind == JSON_PATCH and isinstance(patch, list) else []
    read = (operation.get(_READS.get(str(operation.get("op")), "")) for operation in operations if isinstance(operation, dict))
    return any(path is not None and not str(path).startswith(_WRITTEN) for path in read)


def patched(tree: Tree, kind: str, patch: Any) -> Tree:
    """Apply a patch to a copy of an object. Raises `Refused`."""
    if kind == JSON_PATCH:
        return _json_patched(tree, patch)
    if not isinstance(patch, dict):
        raise errors.bad_request("a merge patch must be an object")
    merged: Tree = _merged(copy.deepcopy(tree), patch)
    return merged


def _json_patched(tree: Tree, patch: Any) -> Tree:
    if not isinstance(patch, list) or len(patch) > _OPERATIONS_MAX:
        raise errors.bad_request(f"a JSON patch must be a list of at most {_OPERATIONS_MAX} operations")
    result: Any = copy.deepcopy(tree)
    left = _COPIED_BYTES_MAX
    try:
        for operation in patch:
            if operation.get("op") == "copy":
                left -= len(json.dumps(jsonpointer.resolve_pointer(result, operation["from"])))
                if left < 0:
                    raise errors.bad_request(f"a JSON patch may copy {_COPIED_BYTES_MAX} bytes in all")
            result = jsonpatch.apply_patch(result, [operation], in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, *_NOT_A_PATCH) as error:
        message = f"the server rejected our request due to an error in our request: {str(error)[:512]}"
        raise errors.Refused(422, "Invalid", message) from None
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
