"""Parses request bodies, and applies patches to objects.

A client may send any text. Size limits apply before anything is built from it. The work
runs in a separate thread (`apart`), one request per user at a time, so a user delays
others at most for the time of one body.
"""

import asyncio
import copy
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from itertools import chain
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import jsonpatch
import jsonpointer

from api_types.payloads.limits import MANIFEST_BYTES_MAX
from api_types.text.merge_patch import merged
from api_types.text.reader import DEPTH_MAX, Unreadable, read_one
from front.serving import errors
from front.store.projection import Tree

BYTES_MAX = 2 * 1024 * 1024
SMALL_BYTES_MAX = 16 * 1024
"""The limit for bodies that every user may send.

These are a Scale, its patches, and access reviews.
"""
JSON = "application/json"
YAML = "application/yaml"
OBJECTS = (JSON, YAML)
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
PATCHES = (JSON_PATCH, MERGE)
"""The supported patches, as for custom resources.

A strategic merge patch needs merge rules for lists, which custom resources lack.
Without them, it would replace a whole list for a change of one item.
"""
APPLY = "application/apply-patch+yaml"
"""A configuration for server-side apply. Scales do not support it."""
_OPERATIONS_MAX = 1_000
_SHOWN_MAX = 256
# For all copy operations of a JSON patch together, because each may copy the result of
# the one before it.
_COPIED_BYTES_MAX = 1024 * 1024
# The operations of a JSON patch that read a field, with the key that names it, and the
# paths that users write.
_READS = {"test": "path", "copy": "from", "move": "from"}
_WRITTEN = ("/spec/", "/metadata/labels/", "/metadata/annotations/")
# The exceptions of the library for malformed operations.
_NOT_A_PATCH = (
    TypeError,
    KeyError,
    IndexError,
    ValueError,
    AttributeError,
    RecursionError,
)
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="front")
USER: ContextVar[str] = ContextVar("USER", default="")
"""The user whose request the current task handles."""
# The locks that are in use.
_TURNS: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
ResultT = TypeVar("ResultT")


async def apart(work: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Run CPU-bound work on a body in the worker thread.

    It may take seconds. Other users are served meanwhile, other requests of this user
    wait.
    """
    async with _TURNS.setdefault(USER.get(), asyncio.Lock()):
        return await asyncio.get_running_loop().run_in_executor(
            _THREAD, work, *arguments
        )


def parse(body: bytes, kind: str = YAML) -> Any:
    """Parse the document of a body in YAML or JSON. Raises `RejectedRequest`."""
    try:
        text = body.decode()
        if kind not in (YAML, APPLY):
            json.loads(text)
        tree = read_one(text) if len(body) <= MANIFEST_BYTES_MAX else json.loads(text)
    except (Unreadable, ValueError, RecursionError) as error:
        raise errors.bad_request(f"the body is malformed: {str(error)[:512]}") from None
    if _is_deep(tree):
        raise errors.bad_request(
            f"the body is nested more than {DEPTH_MAX} levels deep"
        )
    return tree


def parse_object(body: bytes, kind: str = YAML) -> Tree:
    """Parse the object of a body in YAML or JSON. Raises `RejectedRequest`."""
    tree = parse(body, kind)
    if not isinstance(tree, dict):
        raise errors.bad_request("the body must be an object")
    return tree


def _is_deep(tree: Any) -> bool:
    level = [tree]
    for _ in range(DEPTH_MAX):
        level = list(chain.from_iterable(map(_children, level)))
        if not level:
            return False
    return True


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def media_type(content_type: str, allowed: tuple[str, ...], *, silent: str = "") -> str:
    """Return the media type of a body.

    `silent` is used if the header is missing: the HorizontalPodAutoscaler and KEDA send
    no Content-Type with updates. A web page in a browser can also omit it, but only in
    a POST. Raises `RejectedRequest` for unsupported types.
    """
    found = content_type.partition(";")[0].strip().lower() or silent
    if found not in allowed:
        raise errors.unsupported_media_type(allowed)
    return found


def names_version(kind: str, patch: Any) -> bool:
    """Return whether a patch is for one version of the object only."""
    if kind == JSON_PATCH:
        return "resourceVersion" in json.dumps(patch)
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))


def reads_status(kind: str, patch: Any) -> bool:
    """Return whether a patch reads more than labels, annotations and spec."""
    if kind != JSON_PATCH or not isinstance(patch, list):
        return False
    for operation in patch:
        if isinstance(operation, dict):
            path = operation.get(_READS.get(str(operation.get("op")), ""))
            if path is not None and not str(path).startswith(_WRITTEN):
                return True
    return False


def patched(tree: Tree, kind: str, patch: Any) -> Tree:
    """Apply a patch to a copy of an object. Raises `RejectedRequest`."""
    if kind == JSON_PATCH:
        return _json_patched(tree, patch)
    if not isinstance(patch, dict):
        raise errors.bad_request("a merge patch must be an object")
    result: Tree = merged(tree, patch)
    return result


def _json_patched(tree: Tree, patch: Any) -> Tree:
    operations = [] if patch is None else patch
    if not isinstance(operations, list) or not all(
        isinstance(each, dict) for each in operations
    ):
        raise errors.bad_request("a JSON patch must be a list of operations")
    if len(operations) > _OPERATIONS_MAX:
        raise errors.too_many_operations(_OPERATIONS_MAX, len(operations))
    result: Any = copy.deepcopy(tree)
    left = _COPIED_BYTES_MAX
    for number, operation in enumerate(operations, 1):
        try:
            if operation.get("op") == "copy":
                copied = jsonpointer.resolve_pointer(result, operation["from"])
                left -= len(json.dumps(copied))
                if left < 0:
                    raise errors.bad_request(
                        f"a JSON patch may copy at most {_COPIED_BYTES_MAX} bytes in total"
                    )
            result = jsonpatch.apply_patch(result, [operation], in_place=True)
        except (
            jsonpatch.JsonPatchException,
            jsonpointer.JsonPointerException,
            *_NOT_A_PATCH,
        ):
            raise _failed(number, operation) from None
    if not isinstance(result, dict):
        raise errors.RejectedRequest(
            422,
            "Invalid",
            "the result of the patch is not an object",
            causes=[
                {
                    "reason": "FieldValueInvalid",
                    "message": "Invalid value: it is not an object",
                    "field": "patch",
                }
            ],
        )
    return result


def _failed(number: int, operation: Tree) -> errors.RejectedRequest:
    """Return the error for an operation that does not fit the object."""
    described = json.dumps(operation)[:_SHOWN_MAX]
    return errors.RejectedRequest(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request: operation "
        f"{number} of the JSON patch cannot be applied: {described}",
    )
