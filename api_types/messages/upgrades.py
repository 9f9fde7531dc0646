"""Messages between InferenceClusters and StackUpgrades.

StackUpgrades grants clusters their turns to upgrade serving stacks.
"""

from typing import Annotated

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt
from api_types.limits import UPGRADES_AT_ONCE_MAX

HOLDERS_SHOWN_MAX = 8


class UpgradeRequest(Message):
    """A cluster requests or keeps a turn, or with `wanted` False gives it up.

    - `turn`: one number for the whole time in which the cluster wants a turn.
    - `sequence`: orders the messages of the cluster with this uid.
    - `at_once`: the number of clusters that may upgrade concurrently, from its workers'
      settings.
    - `holds`: the cluster believes that it has the turn.
    - `progress`: the state of the upgrade; a new value is progress.
    - `answer`: the number of the last response that it has.
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
    """Whether the cluster with this uid has the requested turn.

    If not, `holders` are some of the clusters that upgrade now. `sequence` orders the
    responses.
    """

    uid: Id
    turn: SentAt
    sequence: SentAt
    granted: bool = False
    holders: Annotated[list[Name], Field(max_length=HOLDERS_SHOWN_MAX)] = Field(
        default_factory=list
    )
