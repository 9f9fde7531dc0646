"""Decodes access reviews, which clients send as protobuf instead of JSON.

Only the fields of the question are decoded.
"""

from collections.abc import Iterator

from front.serving import errors
from front.store.projection import Tree

MAGIC = b"k8s\0"
_RAW, _SPEC, _RESOURCE, _NAMESPACE = 2, 2, 1, 1
_ATTRIBUTES = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}

_VARINT_BYTES_MAX = 10
_MORE = 0x80


def review(body: bytes, kind: str) -> Tree:
    """Decode the `spec` of a review in Kubernetes' envelope.

    Raises `RejectedRequest`.
    """
    try:
        spec = _field(_field(body.removeprefix(MAGIC), _RAW), _SPEC)
        match kind:
            case "SelfSubjectAccessReview":
                found = {
                    number: value.decode()
                    for number, value in _fields(_field(spec, _RESOURCE))
                    if number in _ATTRIBUTES
                }
                return {
                    "spec": {
                        "resourceAttributes": {
                            _ATTRIBUTES[number]: text for number, text in found.items()
                        }
                    }
                }
            case "SelfSubjectRulesReview":
                return {"spec": {"namespace": _field(spec, _NAMESPACE).decode()}}
            case _:
                # A SelfSubjectReview has no parameters.
                return {}
    except (IndexError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body is not a {kind} in protobuf") from error


def _field(message: bytes, wanted: int) -> bytes:
    """Return a nested message; empty if it is missing."""
    return next((value for number, value in _fields(message) if number == wanted), b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the length-delimited fields. Raises `IndexError` for truncated messages."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _varint(message, at)
                if at + length > len(message):
                    raise IndexError(length)
                yield key >> 3, message[at : at + length]
                at += length
            case other:
                raise IndexError(other)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = message[at + place]
        value |= (byte & ~_MORE) << (7 * place)
        if not byte & _MORE:
            return value, at + place + 1
    raise IndexError(at)
