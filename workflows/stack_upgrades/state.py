"""The state that StackUpgrades carries from run to run."""

from pydantic import Field

from api_types.base import Message
from api_types.messages.versions import MessageVersion
from api_types.payloads.packing import Compact
from api_types.resources.status import EventRecord


class TurnRequest(Message):
    """A cluster's request for a turn.

    Attributes:
        since: the time of the turn or of the last progress; empty while the cluster waits.
        progress: the progress at that time.
        told: the digest of the last answer.

    """

    uid: str
    turn: int
    at_once: int
    since: str = ""
    progress: str = ""
    told: str = ""


class UpgradesState(Message):
    """The requests by cluster, in the order of their turns.

    Attributes:
        surveyed: whether the turns of an earlier StackUpgrades, whose state was lost,
            are known.
        known: the newest message of each cluster.
        time: the time at the end of the last run (see `SteadyTime`).

    """

    surveyed: bool = False
    requests: Compact[dict[str, TurnRequest]] = Field(default_factory=dict)
    known: Compact[dict[str, MessageVersion]] = Field(default_factory=dict)
    last_number: int = 0
    events: list[EventRecord] = Field(default_factory=list)
    time: str = ""
