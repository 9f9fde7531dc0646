"""The base class of every stored or sent model.

Models are frozen and tolerant: a message from an old history or a newer sender may have
fields that this version does not know. Only admission is strict
(`model_validate(document, extra="forbid")`), because a strict model could not read the
output of an earlier version.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.payloads.limits import shortened

NAME_MAX = 253
Name = Annotated[str, Field(max_length=NAME_MAX)]
"""A name or a request id.

Workflows keep hundreds of them, and one response shows them all.
"""

ID_MAX = 1024
Id = Annotated[str, Field(max_length=ID_MAX)]
"""An identifier or a one-word state: a workflow id, uid, version, phase or address."""

TEXT_BYTES_MAX = 2000
"""The size of a sentence for people in a message.

A longer sentence is shortened, because its length is no reason to reject the message.
"""

Text = Annotated[
    str,
    BeforeValidator(
        lambda value: (
            shortened(value, TEXT_BYTES_MAX) if isinstance(value, str) else value
        )
    ),
]
# Smaller numbers are counters: this time in milliseconds is in the year 2001.
_FIRST_TIME = 10**12
_NUMBER_MAX = 2**53 - 1

SentAt = Annotated[int, Field(le=_NUMBER_MAX)]
"""A number that orders the messages from one sender to one receiver.

The receiver accepts only a number greater than the last. The sender adds one to its
last number, or uses its time in milliseconds if that is greater. So setting the clock
back has no effect while the sender runs. A sender that was lost and restarted has a new
uid, or reads the last number from its receivers.
"""


def is_time(number: int) -> bool:
    """Return whether a message number is a time rather than a counter."""
    return number >= _FIRST_TIME


class Message(BaseModel):
    """A frozen value with camelCase JSON, in which absent fields stay absent."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    def wire(self) -> dict[str, Any]:
        """Return the JSON tree for sending: camelCase, without null fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
