"""The state, events and requeue times that the parts of a CloudCluster share."""

from datetime import datetime, timedelta

from api_types import clock
from workflows.cloud_cluster.state import CloudState
from workflows.entity.conditions import REFUSALS_KEPT, with_event
from workflows.entity.timers.steady_time import SteadyTime


class CloudContext:
    """The context of one CloudCluster."""

    def __init__(self, cluster: str, uid: str, state: CloudState) -> None:
        self.cluster = cluster
        self.uid = uid
        self.state = state
        self.steady_time = SteadyTime(state.time)
        self.queued = True
        self.requeue_time: datetime | None = None

    def now(self) -> datetime:
        """Return the workflow's time, which never goes backwards."""
        return self.steady_time.now()

    def later(self, delay: timedelta) -> str:
        """Return the time after a delay, formatted for the carried state."""
        return (self.now() + delay).isoformat()

    def is_due(self, moment: str) -> bool:
        """Return whether a carried time has come.

        If it has not, requeue for it.

        An empty time is always due.
        """
        if not moment:
            return True
        time = datetime.fromisoformat(moment)
        if time <= self.now():
            return True
        self.requeue_at(time)
        return False

    def requeue(self) -> None:
        """Queue another pass right after the current one."""
        self.queued = True

    def requeue_at(self, time: datetime) -> None:
        """Queue another pass at a time. The earliest requested time wins."""
        self.requeue_time = (
            time if self.requeue_time is None else min(time, self.requeue_time)
        )

    def record(self, kind: str, reason: str, message: str) -> None:
        self.state.unreported += 1
        self.state.events = with_event(
            self.state.events, kind, reason, message, now=clock.timestamp(self.now())
        )

    def record_refusal(self, reason: str, message: str) -> None:
        """Record an event for a rejected message.

        Only a few events are kept per reason.
        """
        now = clock.timestamp(self.now())
        self.state.unreported += 1
        self.state.events = with_event(
            self.state.events,
            "Warning",
            reason,
            message,
            now=now,
            of_reason_max=REFUSALS_KEPT,
        )
