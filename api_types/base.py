"""The one base of every model that is stored or sent.

Models are frozen and tolerant: an old history or a newer sender may carry fields that this version does not know. Strictness is a word
said at the door (`model_validate(document, extra="forbid")`), because a strict model could no longer read what it once wrote.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


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
        """Give the JSON tree as it travels: camelCase, without fields that are null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
