"""The plan of faults of one seed: kinds, frequencies, and the quiet part of the run.

The faults end well before the run does, so that the fleet comes to rest after the last
fault.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

# The probability of each kind per occasion, before the factor of the seed.
RATES: dict[str, float] = {
    "worker.kill.task": 0.01,
    "worker.kill.activity": 0.01,
    "message.lost": 0.01,
    "message.doubled": 0.01,
    "message.late": 0.01,
    "reply.lost": 0.01,
    "receiver.full": 0.002,
    "receiver.silent": 0.002,
    "visibility.late": 0.05,
    "visibility.incomplete": 0.01,
    "heartbeat.lost": 0.01,
    "cluster.error": 0.01,
    "cluster.stall": 0.002,
    "cluster.lost": 0.005,
    "helm.stall": 0.01,
    "cloud.error": 0.02,
    "cloud.stall": 0.005,
    "cloud.lie": 0.005,
    "helm.error": 0.02,
    "hub.error": 0.02,
}
# The number of spontaneous faults in a run, before the factor of the seed.
PER_RUN: dict[str, float] = {
    "clock.step": 2.0,
    "temporal.outage": 2.0,
    "worker.kill": 5.0,
    "queue.unserved": 2.0,
}
_FACTORS = (0.0, 0.0, 0.3, 1.0, 3.0)
_QUIET_FROM = 0.6
_GAPS = 3
_GAP_OF_PHASE = 0.15


@dataclass(frozen=True)
class Phase:
    """A time span in which faults strike, in seconds."""

    begins: float
    ends: float


class Faults:
    """Draws faults. `note` logs each one."""

    def __init__(
        self,
        seed: int,
        horizon: float,
        seconds: Callable[[], float],
        note: Callable[[str, str], None],
    ) -> None:
        self._draw = random.Random(f"faults/{seed}")  # noqa: S311 - repeatable on purpose
        self._seconds = seconds
        self._note = note
        self._muted = False
        names = (*RATES, *PER_RUN)
        self.factors = {name: self._draw.choice(_FACTORS) for name in names}
        if self._draw.random() < 0.1:
            self.factors = dict.fromkeys(names, 0.0)
        self.last = horizon * _QUIET_FROM
        edges = sorted(self._draw.uniform(0, self.last) for _ in range(_GAPS))
        self.phases = _phases(self.last, edges)

    @property
    def active(self) -> bool:
        """Whether faults strike now."""
        return not self._muted and any(
            each.begins <= self._seconds() < each.ends for each in self.phases
        )

    def end(self) -> None:
        """Mute all faults."""
        self._muted = True

    def strikes(self, name: str, subject: str = "") -> bool:
        """Draw whether a fault strikes on this occasion."""
        rate = RATES[name] * self.factors[name]
        if not rate or not self.active or self._draw.random() >= rate:
            return False
        self._note(name, subject)
        return True

    def between(self, low: float, high: float) -> float:
        """Draw an amount."""
        return self._draw.uniform(low, high)

    def next_after(self, name: str) -> float | None:
        """Draw the seconds until the next spontaneous fault; None if none follows."""
        in_run = PER_RUN[name] * self.factors[name]
        return self._draw.expovariate(in_run / self.last) if in_run else None


def _phases(last: float, edges: list[float]) -> list[Phase]:
    """Return the spans between gaps. A gap begins at each edge."""
    phases, begins = list[Phase](), 0.0
    for edge in edges:
        if edge > begins:
            phases.append(Phase(begins, edge))
        begins = max(begins, edge + last * _GAP_OF_PHASE)
    if begins < last:
        phases.append(Phase(begins, last))
    return phases
