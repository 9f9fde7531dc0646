"""The base class of every model that is stored or sent.

Models are frozen and tolerant: an old history or a newer sender may have fields that this version does not know. Only admission is strict
(`model_validate(document, extra="forbid")`), because a strict model could not read what an earlier version wrote.
"""

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.payloads.limits import shortened

NAME_MAX = 253
Name = Annotated[str, Field(max_length=NAME_MAX)]
"""A name, or the id of a request: hundreds of them are kept, and shown in one answer."""

ID_MAX = 1024
Id = Annotated[str, Field(max_length=ID_MAX)]
"""What identifies something or is one word of its state: a workflow, a uid, an object on a cluster, a version, a phase, an address."""

TEXT_BYTES_MAX = 2000
"""A sentence for people in a message. A longer one is shortened: it is no reason to refuse what it is about."""

Text = Annotated[str, BeforeValidator(lambda value: shortened(value, TEXT_BYTES_MAX) if isinstance(value, str) else value)]
"""A text for people."""

AHEAD_MS_MAX = 3_600_000
# Numbers below are counters, or from a time before there were computers that sent them.
_FIRST_TIME = 10**12


class _SentAt:
    """Marks a number that is made of the sender's time."""


SentAt = Annotated[int, _SentAt()]
"""A number that orders messages, made of the sender's time in ms where messages may be lost: receivers take the greatest only.

One from the far future would have all that follows it ignored, so receivers refuse what is more than `AHEAD_MS_MAX` ahead of them. The
clocks of one Temporal server differ by less.
"""


def is_time(number: int) -> bool:
    """Tell whether a number that orders messages is made of a time, and is no counter."""
    return number >= _FIRST_TIME


class Message(BaseModel):
    """A frozen value whose JSON is camelCase and whose absent fields stay absent."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    def wire(self) -> dict[str, Any]:
        """Give the JSON tree as it is sent: camelCase, without fields that are null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def newest_time(self) -> tuple[str, int]:
        """Give the greatest number of this message that may be made of a time, with its field; 0 if there is none."""
        found = [(name, getattr(self, name)) for name in _numbers(type(self))]
        for name in _parts(type(self)):
            part = getattr(self, name)
            if isinstance(part, Message):
                within, number = part.newest_time()
                found.append((f"{name}.{within}", number))
        name, number = max(found, key=lambda each: each[1], default=("", 0))
        return (name, number) if is_time(number) else ("", 0)


@cache
def _numbers(model: type[Message]) -> list[str]:
    return [name for name, field in model.model_fields.items() if any(isinstance(mark, _SentAt) for mark in field.metadata)]


@cache
def _parts(model: type[Message]) -> list[str]:
    kinds = (int, str, float, bool)
    return [name for name, field in model.model_fields.items() if field.annotation not in kinds]


def time_problem(message: Message, now_ms: int) -> str:
    """Tell which number of a message is from too far in the future; empty if none is."""
    name, number = message.newest_time()
    if number <= now_ms + AHEAD_MS_MAX:
        return ""
    # Without that time, which differs with each attempt: the same refusal again is counted, and is no other event.
    return f"{to_camel(name)}: {number} ms is more than an hour ahead of the receiver's time"
