"""The state that every entity carries from run to run."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.delivery import Delivery
from api_types.resources.status import Condition, EventRecord, LeftBehind

# Users read the list of left-behind objects, and an object may exist for years. The
# newest items are enough.
LEFT_BEHIND_KEPT = 200


class EntityState(BaseModel):
    """The state of an entity, which continue-as-new carries.

    Attributes:
        requests: the ids of accepted requests.
        changing_requests: the ids of the last requests that changed the manifest.
        receivers: the first run of each workflow that this object reports to or
            registers at, as of the last check.
        published: phase and readiness in the search attributes; empty while these
            are unchanged since the start.
        published_version: the resource version in the search attributes.
        manifest_version: the resource version of the last change of labels,
            annotations or spec; 0 if an earlier release made the change.
        registration: the number of the last message in the series of registrations.
        reset: an operator reset the workflow, so it may have made objects and sent
            reports that it does not know, under another uid. Set after the tasks that
            the reset kept, because their replay must stay the same.
        time: the time at the end of the last run (see `SteadyTime`).
        deliveries: the last report about each receiver that refused signals.

    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    uid: str = ""
    generation: int = 0
    resource_version: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
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
    reset: bool = False
    time: str = ""
    deliveries: dict[str, Delivery] = Field(default_factory=dict)

    @property
    def written(self) -> tuple[dict[str, str], dict[str, str], dict[str, Any] | None]:
        """Return the fields that a manifest sets: labels, annotations and spec."""
        return self.labels, self.annotations, self.spec

    @property
    def deleting(self) -> bool:
        """Return whether the deletion of the object was requested."""
        return bool(self.deletion_timestamp)

    def add_left_behind(self, items: Sequence[LeftBehind]) -> None:
        """Add objects that stay on a cluster.

        An object that is already listed moves to the end.
        """
        self.left_behind = [
            *(item for item in self.left_behind if item not in items),
            *items,
        ][-LEFT_BEHIND_KEPT:]
