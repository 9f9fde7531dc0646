"""What every entity carries from run to run."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.resources.status import Condition, EventRecord, LeftBehind


class EntityState(BaseModel):
    """All that an entity knows; continue-as-new carries it whole."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    uid: str = ""
    generation: int = 0
    resource_version: int = Field(default=0, alias="revision")
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: str = Field(default="", alias="created")
    deletion_timestamp: str = Field(default="", alias="deleted")
    spec: dict[str, Any] | None = None
    observed_generation: int = 0
    conditions: list[Condition] = Field(default_factory=list)
    events: list[EventRecord] = Field(default_factory=list)
    requests: list[str] = Field(default_factory=list)
    left_behind: list[LeftBehind] = Field(default_factory=list)
    forced: str = ""
    attempts: int = 0

    @property
    def deleting(self) -> bool:
        """Whether the deletion of the object was requested."""
        return bool(self.deletion_timestamp)


def none_if_empty(value: Any) -> Any:
    """Read an empty value, which earlier versions carried, as None."""
    return value or None
