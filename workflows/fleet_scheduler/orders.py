"""The orders of the scheduler: plain values, which its workflow carries out.

Their results go to `SchedulerController.sent` and `.decided`.
"""

from dataclasses import dataclass, field

from api_types.messages.delivery import Broadcast, SignalRequest
from api_types.messages.scheduling import PlacementRequest
from api_types.messages.versions import MessageVersion


@dataclass(frozen=True)
class SendSchedulerSignals:
    """Send signals.

    `deployments` maps the workflow id of each receiving deployment to its known
    version. `told` lists the clusters that receive the epoch.
    """

    signals: list[SignalRequest]
    summary: str
    deployments: dict[str, MessageVersion] = field(default_factory=dict)
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class Announce:
    signal: Broadcast
    summary: str


@dataclass(frozen=True)
class Decide:
    """Decide requests.

    `repeated` requests were answered before, and receive the same answer.
    """

    requests: list[PlacementRequest]
    repeated: list[PlacementRequest]


Order = SendSchedulerSignals | Announce
