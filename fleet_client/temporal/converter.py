"""Converts values to payloads: pydantic's JSON, as in the SDK's own converter.

The SDK builds the validator of a type again for every payload, which is a large part of
the cost of a workflow task. There are few types, so this module builds each validator
once per process.
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
        return _adapter(Any if type_hint is None else type_hint).validate_json(
            payload.data
        )


class _UnreadableConverter(EncodingPayloadConverter):
    """Decodes payloads that the codec marked as unreadable.

    Raises `UnreadablePayload` for a payload that could not be decrypted. A payload that
    was merely not encrypted is decoded, because only messages must be encrypted.
    """

    @property
    def encoding(self) -> str:
        return unreadable.ENCODING.decode()

    def to_payload(self, value: Any) -> Payload | None:  # noqa: ARG002
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        if not payload.data:
            raise unreadable.UnreadablePayload(
                payload.metadata.get(unreadable.PROBLEM, b"").decode(errors="replace")
            )
        original = Payload.FromString(payload.data)
        return PayloadConverter().from_payloads(
            [original], None if type_hint is None else [type_hint]
        )[0]


class PayloadConverter(CompositePayloadConverter):
    """The SDK's converters, with pydantic for JSON."""

    def __init__(self) -> None:
        super().__init__(
            *(
                _JsonConverter()
                if isinstance(each, JSONPlainPayloadConverter)
                else each
                for each in DefaultPayloadConverter.default_encoding_payload_converters
            ),
            _UnreadableConverter(),
        )


DATA_CONVERTER = dataclasses.replace(
    DataConverter.default, payload_converter_class=PayloadConverter
)
