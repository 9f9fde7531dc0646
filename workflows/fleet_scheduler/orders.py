"""What the scheduler orders: plain values, which its workflow carries out.

Results come back as `SchedulerController.sent` and `.decided`.
"""

from dataclasses import dataclass, field

from api_types.messages.delivery import Broadcast, SignalRequest
from api_types.messages.scheduling import PlacementRequest
from api_types.messages.versions import Version


@dataclass(frozen=True)
class Send:
    """Send signals.

    `deployments`: what was known of each receiver that is a deployment, by its workflow id. `told`: clusters that hear of the epoch.
    """

    signals: list[SignalRequest]
    summary: str
    deployments: dict[str, Version] = field(default_factory=dict)
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class Announce:
    """Send one signal to all entities of some kinds."""

    signal: Broadcast
    summary: str


@dataclass(frozen=True)
class Decide:
    """Decide requests. `repeated` were answered before, and get the same answer."""

    requests: list[PlacementRequest]
    repeated: list[PlacementRequest]


Order = Send | Announce
