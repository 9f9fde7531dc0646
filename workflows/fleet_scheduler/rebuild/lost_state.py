"""The state of a scheduler that was lost, and what its successor begins with. Pure."""

from collections.abc import Sequence
from typing import Any

from api_types.base import Message
from workflows.fleet_scheduler.cache.carry_over import taken_over
from workflows.fleet_scheduler.cache.state import ReceivedSignal, SchedulerState, SecondPayload


class LostState(Message):
    """What a lost scheduler would have carried to its next run.

    `problem`: why that is not known, although there was one. `knew_nothing`: it had no state yet, so the one before it counts.
    """

    state: dict[str, Any] | None = None
    second: dict[str, Any] | None = None
    problem: str = ""
    knew_nothing: bool = False


def continuation(found: LostState, arrived: Sequence[ReceivedSignal], now: int) -> tuple[SchedulerState | None, str]:
    """Give the state to continue with, and else why there is none. `arrived`: messages to the successor; `now` in ms."""
    if found.state is None:
        return None, found.problem
    try:
        lost = SchedulerState.model_validate(found.state)
        lost.take_over(SecondPayload.model_validate(found.second or {}))
        following = taken_over(lost, arrived, now)
    except ValueError as error:
        return None, f"it cannot be read: {error}"
    return following, "" if following else "it is too large to be carried"
