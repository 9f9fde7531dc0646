"""How values become payloads: the JSON of pydantic, as in the SDK's own converter.

The SDK builds the validator of a type anew for every payload, which is a good part of what a workflow task costs. Types are few,
so here each validator is built once in a process.
"""

import dataclasses
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
)

from api_types.payloads import unreadable


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


class _JsonConverter(PydanticJSONPlainPayloadConverter):
    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return _adapter(Any if type_hint is None else type_hint).validate_json(payload.data)


class _UnreadableConverter(EncodingPayloadConverter):
    """Reads what was not encrypted, for only messages have to be, and raises for what cannot be decrypted."""

    @property
    def encoding(self) -> str:
        return unreadable.ENCODING.decode()

    def to_payload(self, value: Any) -> Payload | None:  # noqa: ARG002
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        if not payload.data:
            raise unreadable.UnreadablePayload(payload.metadata.get(unreadable.PROBLEM, b"").decode(errors="replace"))
        original = Payload.FromString(payload.data)
        return PayloadConverter().from_payloads([original], None if type_hint is None else [type_hint])[0]


class PayloadConverter(CompositePayloadConverter):
    """The SDK's converters, with pydantic for JSON."""

    def __init__(self) -> None:
        super().__init__(
            *(
                _JsonConverter() if isinstance(each, JSONPlainPayloadConverter) else each
                for each in DefaultPayloadConverter.default_encoding_payload_converters
            ),
            _UnreadableConverter(),
        )


DATA_CONVERTER = dataclasses.replace(DataConverter.default, payload_converter_class=PayloadConverter)
