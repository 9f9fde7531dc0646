"""Compression of what would be too large as JSON: the carried state of workflows, placements of many replicas, pages of the ledger.

Replicas of one deployment differ in little: their ledger entries have the same engines, labels and terms of affinity. `share` writes what
repeats once; zlib alone would miss it, because it looks back no further than 32 KiB. `Compact` does both to a field of a message, and only
where it is large: a message that a person reads in the Temporal UI stays plain.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, WrapSerializer
from pydantic_core import to_json

PLAIN_BYTES_MAX = 64 * 1024
"""A `Compact` field up to this size is written as it is: some forty placements of a replica with two engines."""

EXPANDED_BYTES_MAX = 32 * 1024 * 1024
"""What is packed in a message, unpacked: several times of what any sender packs into a payload, for each item has a uid that is random."""

WRITTEN_VALUES_MAX = 1_000_000
"""Values of a packed tree as it is written. A megabyte of what is packed has a third of that; ten millions take ten seconds and 1.5 GB
to be read, from a text of 40 KB."""

EXPANDED_NODES_MAX = 16 * 1024 * 1024
"""Values of a packed tree, with what is shared counted wherever it is referred to: a thousand replicas of the largest manifest."""

# What a reference takes, and a little more: a shorter value is not worth one.
_SHARED_BYTES_MIN = 40
_USES_MIN = 2
# No key of a tree begins so: user-given names, such as those of labels, are not keys but parts of lists in what is shared.
_REFERENCE = "$shared"
_PACKED = "$packed"


def pack(value: Any) -> str:
    """Compress a JSON tree into text."""
    return base64.b85encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 6)).decode()


def unpack(text: str) -> Any:
    """Give back what `pack` took; None for an empty text."""
    return json.loads(zlib.decompress(base64.b85decode(text))) if text else None


def pack_bytes(data: bytes) -> str:
    """Write bytes as text."""
    return base64.b85encode(data).decode()


def unpack_bytes(text: str) -> bytes:
    """Give back what `pack_bytes` took."""
    return base64.b85decode(text)


def share(tree: Any) -> dict[str, Any]:
    """Write subtrees and texts of a JSON tree that repeat once, and refer to them by number."""
    distinct = _Distinct()
    root = distinct.number(tree)
    shared: list[Any] = []
    references: dict[int, dict[str, int]] = {}

    def write(number: int) -> Any:
        node = distinct.nodes[number]
        if distinct.uses[number] < _USES_MIN or distinct.sizes[number] < _SHARED_BYTES_MIN:
            return write_parts(node, distinct.parts[number])
        if number not in references:
            written = write_parts(node, distinct.parts[number])
            references[number] = {_REFERENCE: len(shared)}
            shared.append(written)
        return references[number]

    def write_parts(node: Any, parts: Sequence[int]) -> Any:
        if isinstance(node, Mapping):
            return dict(zip(node, map(write, parts), strict=True))
        return [write(part) for part in parts] if isinstance(node, list) else node

    written = write(root)
    return {"shared": shared, "tree": written}


class _Distinct:
    """The different values of a tree by number: each with its parts, its size in characters, and how often it is written."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.parts: list[tuple[int, ...]] = []
        self.sizes: list[int] = []
        self.uses: list[int] = []
        self._numbers: dict[Any, int] = {}

    def number(self, node: Any) -> int:
        parts: tuple[int, ...] = ()
        key: Any = node
        if isinstance(node, Mapping):
            parts = tuple(map(self.number, node.values()))
            key = (dict, tuple(node), parts)
        elif isinstance(node, list):
            parts = tuple(map(self.number, node))
            key = (list, parts)
        elif not isinstance(node, str):
            key = (type(node), node)
        known = self._numbers.get(key)
        if known is not None:
            return known
        number = self._numbers[key] = len(self.nodes)
        self.nodes.append(node)
        self.parts.append(parts)
        self.sizes.append(len(node) if isinstance(node, str) else 2 + sum(self.sizes[part] + 1 for part in parts))
        self.uses.append(0)
        # A value that repeats is written once, so its parts are used once by it.
        for part in parts:
            self.uses[part] += 1
        return number


def unshare(written: Mapping[str, Any]) -> Any:
    """Give back the tree that `share` took. Equal parts of it are one object, so it must not be changed."""
    shared: list[Any] = []
    # How many values each of them is. References to references make billions of a few lines.
    counts: list[int] = []
    values = 0

    def read(node: Any) -> Any:
        if isinstance(node, Mapping):
            if _REFERENCE in node:
                number = node[_REFERENCE]
                count(counts[number])
                return shared[number]
            count(1 + len(node))
            return {key: read(part) for key, part in node.items()}
        if isinstance(node, list):
            count(1 + len(node))
            return [read(part) for part in node]
        return node

    def count(more: int) -> None:
        # At once and not in the end: a number that doubles with each line has as many digits as there are lines.
        nonlocal values
        values += more
        if values > EXPANDED_NODES_MAX:
            raise ValueError(f"is {values} values or more when it is unpacked; at most {EXPANDED_NODES_MAX} are read")

    for node in written["shared"]:
        values = 0
        shared.append(read(node))
        counts.append(values)
    values = 0
    return read(written["tree"])


def compact(tree: Any) -> Any:
    """Give a JSON tree as it is, or packed where it is large."""
    return tree if len(to_json(tree)) <= PLAIN_BYTES_MAX else {_PACKED: pack(share(tree))}


def expand(written: Any) -> Any:
    """Give back what `compact` took; ValueError if it took no such thing, or more than any sender packs."""
    if not isinstance(written, Mapping) or _PACKED not in written:
        return written
    try:
        return unshare(json.loads(_decompressed(written[_PACKED])))
    except Exception as error:
        # Whatever base85, zlib, JSON or a wrong reference raise of a text that was received: pydantic reports only a ValueError, and
        # all else would stop the workflow that received it.
        raise ValueError(f"cannot be unpacked: {error}") from error


def _decompressed(text: str) -> bytes:
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b85decode(text), EXPANDED_BYTES_MAX)
    if not unpacking.eof:
        raise ValueError(f"is cut off, or more than {EXPANDED_BYTES_MAX} bytes when it is unpacked")
    # Each value but the first of a list or mapping has a comma before it. Those in texts count too, and texts that repeat are written once.
    written = sum(map(data.count, (b",", b"[", b"{")))
    if written > WRITTEN_VALUES_MAX:
        raise ValueError(f"is some {written} values when it is unpacked; at most {WRITTEN_VALUES_MAX} are read")
    return data


def _write_compact(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return compact(write(value))


FieldT = TypeVar("FieldT")

Compact = Annotated[FieldT, BeforeValidator(expand), WrapSerializer(_write_compact)]
"""A list or mapping that is written as `{"$packed": text}` where it is large; `text` is what `pack(share(...))` gives."""
