"""The state of a lost scheduler, and the initial state of its successor. Pure."""

from collections.abc import Sequence
from typing import Any

from api_types.base import Message
from workflows.fleet_scheduler.cache.carry_over import taken_over
from workflows.fleet_scheduler.cache.state import (
    ReceivedSignal,
    SchedulerState,
    SecondPayload,
)


class LostState(Message):
    """The state that a lost scheduler would have carried to its next run.

    `problem` says why the state of an existing predecessor is unavailable.
    `knew_nothing` means that it had no state yet, so its own predecessor counts.
    """

    state: dict[str, Any] | None = None
    second: dict[str, Any] | None = None
    problem: str = ""
    knew_nothing: bool = False


def continuation(
    found: LostState, arrived: Sequence[ReceivedSignal], now: int
) -> tuple[SchedulerState | None, str]:
    """Return the state to continue with, and otherwise why there is none.

    `arrived` are the messages to the successor. `now` is in milliseconds.
    """
    if found.state is None:
        return None, found.problem
    try:
        lost = SchedulerState.model_validate(found.state)
        lost.take_over(SecondPayload.model_validate(found.second or {}))
        following = taken_over(lost, arrived, now)
    except ValueError as error:
        return None, f"the state cannot be read: {error}"
    return following, "" if following else "the state is too large to be carried"
