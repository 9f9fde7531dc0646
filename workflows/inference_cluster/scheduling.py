"""Condition `SchedulingDisabled`: who disabled scheduling on a cluster, when and why.

The scheduler follows the taint in the spec, which contains none of that. A cluster with
enabled scheduling has no such condition: a condition that is False would look like a
problem of the cluster.
"""

from typing import Any

from api_types.taints import CORDONED, DRAINED, scheduling_disabled
from workflows.entity.conditions import TRUE
from workflows.entity.context import EntityContext
from workflows.inference_cluster.state import ClusterState

CONDITION = "SchedulingDisabled"
_VERBS = {CORDONED: "cordoned", DRAINED: "drained"}


def record_scheduling(
    context: EntityContext[ClusterState],
    before: dict[str, Any] | None,
    by: str,
    reason: str,
) -> None:
    """Update the condition and record an event if the taints in the spec changed."""
    was = scheduling_disabled(before or {})
    becomes = scheduling_disabled(context.state.spec or {})
    if was == becomes:
        return
    who = f"by {by or 'unknown'}"
    why = f": {reason}" if reason else ""
    if becomes:
        context.set_condition(
            CONDITION, TRUE, becomes, f"{_VERBS[becomes]} {who} at {context.now()}{why}"
        )
        context.record_event("Normal", becomes, f"{_VERBS[becomes]} {who}{why}")
    else:
        context.remove_condition(CONDITION)
        context.record_event("Normal", "Uncordoned", f"uncordoned {who}{why}")
