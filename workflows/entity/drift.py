"""When to apply an object on the control cluster again that another client changed."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState

_REPAIRS_MAX = 16


class RepairedState(Protocol):
    """The drift and the repairs of one object, in the state of its owner.

    `drift_since` is the time since which the observed and the applied object differ.
    `drift_repairs` is the number of repairs in a row, the last at `drift_repaired_at`.
    """

    drift_since: str
    drift_repairs: int
    drift_repaired_at: str


def repair_is_due(
    context: EntityContext[EntityState],
    state: RepairedState,
    *,
    has_drifted: bool,
    waits: Callable[[], bool],
    message: str,
) -> bool:
    """Return whether the object has drifted for so long that it is applied again.

    If it is too early, requeue. `waits` returns whether the next attempt waits after a
    failure. `message` is the event of a repair.
    """
    if not has_drifted:
        state.drift_since = ""
        return False
    now = context.moment()
    if not state.drift_since:
        state.drift_since = now.isoformat()
        state.drift_repairs = backoff.recent_repairs(
            state.drift_repairs, state.drift_repaired_at, now
        )
    due = datetime.fromisoformat(state.drift_since) + backoff.repair(
        state.drift_repairs
    )
    if due > now:
        context.requeue_at(due)
        return False
    # Recording an event queues another pass. If every waiting pass recorded one, the
    # passes of a workflow task would never end.
    if waits():
        return True
    state.drift_repairs = min(state.drift_repairs + 1, _REPAIRS_MAX)
    state.drift_repaired_at = now.isoformat()
    context.record_event("Warning", "DriftDetected", message)
    return True
