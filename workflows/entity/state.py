"""What every entity carries from run to run."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.delivery import Delivery
from api_types.resources.status import Condition, EventRecord, LeftBehind

# What is left behind on clusters is listed for people, on an object that may exist for years: the newest objects are enough.
LEFT_BEHIND_KEPT = 200


class EntityState(BaseModel):
    """All that an entity knows; continue-as-new carries it whole.

    `requests`: the ids of those that were accepted; `changing_requests`: the last of those that changed the manifest. `receivers`: the
    workflows that it reports to or is registered at, with the first run of each when that was last checked. `published`: the phase and
    readiness in its search attributes; empty while they are those of the start. `published_version`: the resource version there.
    `manifest_version`: the resource version with the last change of labels, annotations or spec; 0 if an earlier release made that.
    `registration`: number of its last registration at another object, or of another message that was numbered with these. `time`: of the
    end of the last run (`SteadyTime`). `deliveries`: the last report of each receiver that took no signals of this object.
    """

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
    changing_requests: list[str] = Field(default_factory=list)
    left_behind: list[LeftBehind] = Field(default_factory=list)
    forced: str = ""
    attempts: int = 0
    receivers: dict[str, str] = Field(default_factory=dict)
    published: list[str] = Field(default_factory=list)
    published_version: int = 0
    manifest_version: int = 0
    registration: int = 0
    time: str = ""
    deliveries: dict[str, Delivery] = Field(default_factory=dict)

    @property
    def written(self) -> tuple[dict[str, str], dict[str, str], dict[str, Any] | None]:
        """Give what a manifest sets: labels, annotations and spec."""
        return self.labels, self.annotations, self.spec

    @property
    def deleting(self) -> bool:
        """Whether the deletion of the object was requested."""
        return bool(self.deletion_timestamp)

    def add_left_behind(self, items: Sequence[LeftBehind]) -> None:
        """List objects that stay on a cluster; what is left behind once more moves to the end."""
        self.left_behind = [*(item for item in self.left_behind if item not in items), *items][-LEFT_BEHIND_KEPT:]


def none_if_empty(value: Any) -> Any:
    """Read an empty value, which earlier versions carried, as None."""
    return value or None
