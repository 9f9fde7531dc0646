"""The intervals at which the work on one object polls."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PollPace:
    """The intervals in seconds.

    Polls are more frequent in the first minutes. Tests use shorter values.
    """

    poll: float = 15.0
    poll_later: float = 30.0
    later_after: float = 300.0
    second_look: float = 15.0
    """How long an activity waits for a new object before it creates the object again.
    """
    second_look_every: float = 3.0

    def poll_after(self, passed: float) -> float:
        """Return the pause before the next poll, based on the time that has passed."""
        return self.poll if passed < self.later_after else self.poll_later
