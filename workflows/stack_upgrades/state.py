"""What StackUpgrades carries from run to run."""

from pydantic import Field

from api_types.base import Message
from api_types.messages.versions import Version
from api_types.payloads.packing import Compact
from api_types.resources.status import EventRecord


class Request(Message):
    """A turn that a cluster wants. `since`: when it got it, or last made progress; empty while it waits.

    `progress`: how far it was then. `told`: what it was told last.
    """

    uid: str
    turn: int
    at_once: int
    since: str = ""
    progress: str = ""
    told: str = ""


class UpgradesState(Message):
    """The requests by cluster, in the order of their turns; `known` has the newest message of each cluster.

    `surveyed`: it is known which clusters have a turn of an earlier StackUpgrades, whose state was lost.
    `time`: of the end of the last run (`SteadyTime`).
    """

    surveyed: bool = False
    requests: Compact[dict[str, Request]] = Field(default_factory=dict)
    known: Compact[dict[str, Version]] = Field(default_factory=dict)
    last_number: int = 0
    events: list[EventRecord] = Field(default_factory=list)
    time: str = ""
