"""Inputs that a client may send in place of a message, for all handlers."""

import json
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

JSON = {"encoding": b"json/plain"}
# With the name and the metadata of a signal this is the largest input that the server
# accepts.
LARGEST = 2 * 1024 * 1024 - 20_000
LONG_ID_MAX = 100_000
FAR_FUTURE = 2**62
UNKNOWN_FIELDS = 80_000
DEPTH = 10_000


def raw(data: bytes, metadata: Mapping[str, bytes] | None = None) -> RawValue:
    return RawValue(Payload(metadata=JSON if metadata is None else metadata, data=data))


def value(tree: Any) -> RawValue:
    return raw(json.dumps(tree).encode())


def with_fields(model: Any, give: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a message with the given values for fields."""
    fields = (
        model.model_fields
        if isinstance(model, type) and issubclass(model, BaseModel)
        else {}
    )
    given = {
        field.alias or name: give(field.annotation) for name, field in fields.items()
    }
    return {name: each for name, each in given.items() if each is not None}


def of_kind(kind: type, instead: Any) -> Callable[[Any], Any]:
    """Set this value in all fields of a kind, also in inner messages."""

    def give(annotation: Any) -> Any:
        if get_origin(annotation) in (Union, types.UnionType):
            return next(
                (
                    found
                    for part in get_args(annotation)
                    if (found := give(part)) is not None
                ),
                None,
            )
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return with_fields(annotation, give) or None
        return instead if annotation is kind else None

    return give


def long_ids(model: Any) -> Any:
    """Return a message with long texts in all fields of a kind, within the server's
    limit.
    """
    texts = json.dumps(with_fields(model, of_kind(str, "x"))).count('"x"')
    text = "x" * min(LONG_ID_MAX, LARGEST // 2 // max(texts, 1))
    return with_fields(model, of_kind(str, text)) or text


def nonsense(_annotation: Any) -> Any:
    return [{"this": ["is no such field"]}]


@cache
def _unknown_fields() -> str:
    return ", ".join(f'"u{number}": 0' for number in range(UNKNOWN_FIELDS))


def with_unknown_fields(fields: dict[str, Any]) -> bytes:
    """Return an object of some fields and many that no message has."""
    return f"{json.dumps(fields)[:-1]}, {_unknown_fields()}}}".encode()


# Inputs of megabytes. A server accepts 50 MiB per run of a workflow, so on a real
# server each goes to one handler only.
LARGE = ("unknown fields", "2 MiB")


def bad_inputs(model: Any) -> dict[str, list[RawValue]]:
    """Return arguments that are not this message, by the mistake in them."""
    wrong = with_fields(model, nonsense)
    return {
        "no input": [],
        "three inputs": [value({}), value(None), value("more")],
        "null": [raw(b"", {"encoding": b"binary/null"})],
        "null in JSON": [value(None)],
        "text": [value("text")],
        "number": [value(-1)],
        "list": [value([[], {}])],
        "fields of wrong types": [value(wrong or 7)],
        "bytes": [raw(b"\x00\xff\xfe", {"encoding": b"binary/plain"})],
        "an unknown encoding": [raw(b"data", {"encoding": b"of/none"})],
        "no encoding": [raw(b"{}", {})],
        "encrypted, without the key": [
            raw(
                b"\x01" * 40,
                {"encoding": b"binary/encrypted", "encryption-key-id": b"lost"},
            )
        ],
        "marked as unreadable": [
            raw(b"", {"encoding": b"modelplane/unreadable", "problem": b"p" * 50_000})
        ],
        "protobuf that is none": [
            raw(
                b"\xff\xff\xff",
                {
                    "encoding": b"binary/protobuf",
                    "messageType": b"temporal.api.common.v1.Payload",
                },
            )
        ],
        "JSON cut off": [raw(b'{"requestId": "a", "man')],
        "invalid UTF-8": [raw(b'{"requestId": "\xff\xfe"}')],
        "a lone surrogate": [raw(b'{"requestId": "\\ud800", "uid": "\\udfff"}')],
        "NaN": [
            raw(
                b'{"requestId": NaN, "sequence": Infinity, "manifest": -Infinity, "any": NaN}'
            )
        ],
        "a number without end": [
            raw(
                b'{"requestId": 1e999, "sequence": 1e999, "generation": '
                + b"9" * 5000
                + b"}"
            )
        ],
        "nested": [raw(b'{"manifest": ' + b"[" * DEPTH + b"]" * DEPTH + b"}")],
        "nested less": [raw(b'{"manifest": ' + b'{"a":' * 100 + b"1" + b"}" * 101)],
        "unknown fields": [
            raw(with_unknown_fields(wrong)) if wrong else value([0] * UNKNOWN_FIELDS)
        ],
        "a long id": [value(long_ids(model))],
        "the far future": [
            value(with_fields(model, of_kind(int, FAR_FUTURE)) or FAR_FUTURE)
        ],
        "2 MiB": [raw(b'{"requestId": "' + b"x" * LARGEST + b'"}')],
    }
