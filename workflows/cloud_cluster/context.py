"""What the parts of a CloudCluster share: its state, its events, and the next pass of its loop."""

from datetime import datetime, timedelta

from api_types import clock
from workflows.cloud_cluster.state import CloudState
from workflows.entity.conditions import REFUSALS_KEPT, with_event
from workflows.entity.timers.steady_time import SteadyTime


class CloudContext:
    """One cluster at a cloud."""

    def __init__(self, cluster: str, uid: str, state: CloudState) -> None:
        self.cluster = cluster
        self.uid = uid
        self.state = state
        self.steady_time = SteadyTime(state.time)
        self.queued = True
        self.requeue_time: datetime | None = None

    def now(self) -> datetime:
        """Give the workflow's time."""
        return self.steady_time.now()

    def later(self, delay: timedelta) -> str:
        """Give the time after a delay, as it is carried."""
        return (self.now() + delay).isoformat()

    def is_due(self, moment: str) -> bool:
        """Tell whether a carried time has come; at one that is to come another pass is made. Empty is due."""
        if not moment:
            return True
        time = datetime.fromisoformat(moment)
        if time <= self.now():
            return True
        self.requeue_at(time)
        return False

    def requeue(self) -> None:
        """Make another pass right after the present one."""
        self.queued = True

    def requeue_at(self, time: datetime) -> None:
        """Make another pass at a time; of several the earliest holds."""
        self.requeue_time = time if self.requeue_time is None else min(time, self.requeue_time)

    def record(self, kind: str, reason: str, message: str) -> None:
        """Record an event."""
        self.state.events = with_event(self.state.events, kind, reason, message, now=clock.timestamp(self.now()))

    def record_refusal(self, reason: str, message: str) -> None:
        """Record what was sent and is not done; few of a reason are kept."""
        now = clock.timestamp(self.now())
        self.state.events = with_event(self.state.events, "Warning", reason, message, now=now, of_reason_max=REFUSALS_KEPT)
