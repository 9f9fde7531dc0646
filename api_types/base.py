"""The base class of every model that is stored or sent.

Models are frozen and tolerant: an old history or a newer sender may have fields that this version does not know. Only admission is strict
(`model_validate(document, extra="forbid")`), because a strict model could not read what an earlier version wrote.
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
        """Give the JSON tree as it is sent: camelCase, without fields that are null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
