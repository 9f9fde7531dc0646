"""The time of a workflow, which never goes back.

When the server's clock steps back, the SDK repeats the time of the last task until the
clock has caught up, and the next run of the workflow begins with an earlier time. A
wait until a moment would be longer by the time that the clock had been ahead. So the
time of a workflow continues from the last known time, and stays ahead of the server's
clock, also in later runs. A fired timer advances it to the time that the timer waited
for.
"""

from datetime import datetime, timedelta

from temporalio import workflow


class SteadyTime:
    """The time of one workflow.

    `carried` is the time (ISO 8601) at which the previous run ended; empty in a first
    run.
    """

    def __init__(self, carried: str = "") -> None:
        self._carried = carried
        self._ahead = timedelta()

    def now(self) -> datetime:
        return workflow.now() + self._offset()

    def seconds(self) -> float:
        """Return the time in seconds since 1970."""
        return workflow.time() + self._offset().total_seconds()

    def reached(self, moment: datetime) -> None:
        """Record that a timer has fired which waited for a moment."""
        self._ahead = self._offset() + max(moment - self.now(), timedelta())

    def _offset(self) -> timedelta:
        if self._carried:
            self._ahead = max(
                datetime.fromisoformat(self._carried) - workflow.now(), timedelta()
            )
            self._carried = ""
        return self._ahead
