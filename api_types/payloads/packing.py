"""Compression of large JSON: carried state, placements of many replicas, ledger pages.

Replicas of one deployment differ little: their ledger entries have the same engines,
labels and affinity terms. `share` writes repeated parts once; zlib alone would miss
them, because it looks back no further than 32 KiB. `Compact` does both to a field of a
message, and only if the field is large: a message that a person reads in the Temporal
UI stays plain.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, WrapSerializer
from pydantic_core import to_json

PLAIN_BYTES_MAX = 64 * 1024
"""The size up to which a `Compact` field is written plain.

It is enough for some forty placements of a replica with two engines.
"""

EXPANDED_BYTES_MAX = 32 * 1024 * 1024
"""The maximum size of packed data in a message after decompression.

It is several times the data that any sender packs into a payload, because each item has
a random uid.
"""

WRITTEN_VALUES_MAX = 1_000_000
"""The maximum number of written values of a packed tree.

A megabyte of packed data has a third of this number. Without the limit, ten million
values from a text of 40 KB would take ten seconds and 1.5 GB to read.
"""

EXPANDED_NODES_MAX = 16 * 1024 * 1024
"""The maximum number of values of an unpacked tree, counting shared ones at each use.

It is enough for a thousand replicas of the largest manifest.
"""

# Slightly more than the size of a reference: a shorter value is not worth one.
_SHARED_BYTES_MIN = 40
_USES_MIN = 2
# No key of a tree has these prefixes. User-given names, such as names of labels, are
# not keys but parts of lists in shared trees.
_REFERENCE = "$shared"
_PACKED = "$packed"


def pack(value: Any) -> str:
    """Compress a JSON tree into text."""
    return base64.b85encode(
        zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 6)
    ).decode()


def unpack(text: str) -> Any:
    """Return the JSON tree from the output of `pack`; None for an empty text."""
    return json.loads(zlib.decompress(base64.b85decode(text))) if text else None


def pack_bytes(data: bytes) -> str:
    """Encode bytes as base85 text."""
    return base64.b85encode(data).decode()


def unpack_bytes(text: str) -> bytes:
    return base64.b85decode(text)


def share(tree: Any) -> dict[str, Any]:
    """Write each repeated subtree or text of a JSON tree once, with references to it."""
    distinct = _Distinct()
    root = distinct.number(tree)
    shared: list[Any] = []
    references: dict[int, dict[str, int]] = {}

    def write(number: int) -> Any:
        node = distinct.nodes[number]
        if (
            distinct.uses[number] < _USES_MIN
            or distinct.sizes[number] < _SHARED_BYTES_MIN
        ):
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
    """The distinct values of a tree by number.

    Each has its parts, its size in characters, and the number of times it is written.
    """

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
        self.sizes.append(
            len(node)
            if isinstance(node, str)
            else 2 + sum(self.sizes[part] + 1 for part in parts)
        )
        self.uses.append(0)
        # A repeated value is written once, so it uses each of its parts once.
        for part in parts:
            self.uses[part] += 1
        return number


def unshare(written: Mapping[str, Any]) -> Any:
    """Return the tree from the output of `share`.

    Equal parts of the tree are one object, so callers must not change it.
    """
    shared: list[Any] = []
    # The number of values in each shared subtree. Nested references can expand a few
    # lines into billions of values.
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
        # Check on every addition: a number that doubles with each line has as many
        # digits as there are lines.
        nonlocal values
        values += more
        if values > EXPANDED_NODES_MAX:
            raise ValueError(
                f"has {values} or more values when unpacked; "
                f"at most {EXPANDED_NODES_MAX} are read"
            )

    for node in written["shared"]:
        values = 0
        shared.append(read(node))
        counts.append(values)
    values = 0
    return read(written["tree"])


def compact(tree: Any) -> Any:
    """Return a JSON tree unchanged, or packed if it is large."""
    return (
        tree if len(to_json(tree)) <= PLAIN_BYTES_MAX else {_PACKED: pack(share(tree))}
    )


def expand(written: Any) -> Any:
    """Return the tree from the output of `compact`.

    Raises:
        ValueError: the input is invalid, or larger than any sender would produce.

    """
    if not isinstance(written, Mapping) or _PACKED not in written:
        return written
    try:
        return unshare(json.loads(_decompressed(written[_PACKED])))
    except Exception as error:
        # Received text can make base85, zlib, JSON or a wrong reference raise many
        # types. pydantic reports only a ValueError, and any other type would block the
        # receiving workflow.
        raise ValueError(f"cannot be unpacked: {error}") from error


def _decompressed(text: str) -> bytes:
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b85decode(text), EXPANDED_BYTES_MAX)
    if not unpacking.eof:
        raise ValueError(
            f"is cut off, or has more than {EXPANDED_BYTES_MAX} bytes when unpacked"
        )
    # Each value of a list or mapping, except the first, has a comma before it. Commas
    # in texts count too, and repeated texts are written once.
    written = sum(map(data.count, (b",", b"[", b"{")))
    if written > WRITTEN_VALUES_MAX:
        raise ValueError(
            f"has about {written} values when unpacked; "
            f"at most {WRITTEN_VALUES_MAX} are read"
        )
    return data


def _write_compact(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return compact(write(value))


FieldT = TypeVar("FieldT")

Compact = Annotated[FieldT, BeforeValidator(expand), WrapSerializer(_write_compact)]
"""A list or mapping that is written as `{"$packed": text}` if it is large.

`text` is the output of `pack(share(...))`.
"""
