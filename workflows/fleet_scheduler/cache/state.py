"""What one run of the scheduler carries to the next.

The fleet and most of what is beside it are packed for the way, because the input of a workflow may not be large; `SchedulerCache` unpacks
them. Fields with an alias keep the name under which earlier runs carried them.
"""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.scheduling import PlacementRequest


class ReceivedSignal(NamedTuple):
    """A signal as it arrived: its name and its argument. In JSON a list of the two."""

    name: str
    payload: Any


class SchedulerState(BaseModel):
    """All that the scheduler carries.

    Attributes:
        inbox: signals that are not read yet.
        queue: requests that wait for a decision; `unplaced`: those that were decided and wait for capacity.
        unresponsive: entities that did not answer a rebuild, with their clusters.
        clusters, classes: the sequence and the generation that were last reported.
        deleting_clusters: the charged replicas that were last reported to each; None: not reported yet.

    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    epoch: int = 0
    fleet: list[str] = Field(default_factory=list)
    carried_extras: str = ""
    arrived: str = ""
    rebuild: bool = False
    inbox: list[ReceivedSignal] = Field(default_factory=list)
    queue: dict[str, PlacementRequest] = Field(default_factory=dict)
    unplaced: dict[str, PlacementRequest] = Field(default_factory=dict)
    answers: str = ""
    clusters: dict[str, int] = Field(default_factory=dict)
    policy: dict[str, Any] | None = None
    policy_problem: str = ""
    unresponsive: dict[str, str] = Field(default_factory=dict, alias="silent")
    deleting_clusters: dict[str, list[str] | None] = Field(default_factory=dict, alias="leaving")
    classes: dict[str, int] = Field(default_factory=dict)
    reservations_checked: int = Field(default=0, alias="holdsSeen")
    audit: list[str] = Field(default_factory=list)
    decided: int = 0
    placed: int = 0
