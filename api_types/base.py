"""The base class of every model that is stored or sent.

Models are frozen and tolerant: an old history or a newer sender may have fields that this version does not know. Only admission is strict
(`model_validate(document, extra="forbid")`), because a strict model could not read what an earlier version wrote.
"""

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

# Numbers below are counters, or from a time before there were computers that sent them.
_FIRST_TIME = 10**12
_NUMBER_MAX = 2**53 - 1

SentAt = Annotated[int, Field(le=_NUMBER_MAX)]
"""A number that orders the messages of one sender to one receiver, which takes the greatest only.

It is one more than the last, or the sender's time in ms if that is greater. A clock that is set back so changes nothing while the
sender lives. One that was lost and started anew has another uid, or learns from its receivers which number they have seen.
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
