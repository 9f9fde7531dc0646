"""When to apply an object on the control cluster again that another client changed."""

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


def has_lasted(
    context: EntityContext[EntityState], state: RepairedState, *, has_drifted: bool
) -> bool:
    """Return whether the object has drifted for so long that it is applied again.

    If it is too early, requeue.
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
    return not context.waits_until(due.isoformat())


def count_repair(context: EntityContext[EntityState], state: RepairedState) -> None:
    """Count a repair, before its event is recorded.

    Callers count no attempt that waits after a failure. An event queues another pass:
    if every waiting pass recorded one, the passes of a workflow task would never end.
    """
    state.drift_repairs = min(state.drift_repairs + 1, _REPAIRS_MAX)
    state.drift_repaired_at = context.moment().isoformat()
