"""How long the work on one object waits between two looks, and how long for what."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Seconds. Polls are closer together in the first minutes; tests have shorter ones."""

    poll: float = 15.0
    poll_later: float = 30.0
    later_after: float = 300.0
    second_look: float = 15.0
    """How long an object that may have been created just now is looked for before it is created again."""
    second_look_every: float = 3.0

    def poll_after(self, passed: float) -> float:
        """Give how long to wait for the next look, when so much time has passed."""
        return self.poll if passed < self.later_after else self.poll_later
