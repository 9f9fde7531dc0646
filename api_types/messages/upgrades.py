"""Messages between InferenceClusters and StackUpgrades, which gives them their turns to upgrade serving stacks."""

from typing import Annotated

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt
from api_types.limits import UPGRADES_AT_ONCE_MAX

HOLDERS_SHOWN_MAX = 8


class UpgradeRequest(Message):
    """A cluster wants a turn, still wants it, or (`wanted` False) gives it back or wants none any more.

    `turn` is one number for as long as it wants one; `sequence` orders the messages of the cluster with this uid. `at_once`: how many
    clusters may upgrade at the same time, as its workers' settings say. `holds`: it has the turn, as far as it knows. `progress`: how far
    the upgrade is; another one is progress. `answer`: number of the last answer that it has.
    """

    cluster: Name
    uid: Id
    turn: SentAt
    sequence: SentAt
    wanted: bool = True
    at_once: Annotated[int, Field(ge=1, le=UPGRADES_AT_ONCE_MAX)] = 1
    holds: bool = False
    progress: Id = ""
    answer: SentAt = 0


class UpgradeTurn(Message):
    """Whether the cluster with this uid has the turn that it asked for; if not, `holders` are the clusters that upgrade now, or some.

    `sequence` orders the answers.
    """

    uid: Id
    turn: SentAt
    sequence: SentAt
    granted: bool = False
    holders: Annotated[list[Name], Field(max_length=HOLDERS_SHOWN_MAX)] = Field(default_factory=list)
