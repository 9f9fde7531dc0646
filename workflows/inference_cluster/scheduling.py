"""Condition `SchedulingDisabled` of an InferenceCluster: who keeps new replicas away from it, since when and why.

The taint in the spec is what the scheduler follows, and says none of that. Where scheduling is enabled there is no such condition: one that
is False would read as a thing that the cluster waits for.
"""

from typing import Any

from api_types.taints import CORDONED, DRAINED, scheduling_disabled
from workflows.entity.conditions import TRUE
from workflows.entity.context import EntityContext
from workflows.inference_cluster.state import ClusterState

CONDITION = "SchedulingDisabled"
_VERBS = {CORDONED: "cordoned", DRAINED: "drained"}


def record_scheduling(context: EntityContext[ClusterState], before: dict[str, Any] | None, by: str, reason: str) -> None:
    """Set or remove the condition, and record the event, if the spec disables scheduling otherwise than `before`."""
    was, becomes = scheduling_disabled(before or {}), scheduling_disabled(context.state.spec or {})
    if was == becomes:
        return
    who = f"by {by or 'unknown'}"
    why = f": {reason}" if reason else ""
    if becomes:
        context.set_condition(CONDITION, TRUE, becomes, f"{_VERBS[becomes]} {who} at {context.now()}{why}")
        context.record_event("Normal", becomes, f"{_VERBS[becomes]} {who}{why}")
    else:
        context.remove_condition(CONDITION)
        context.record_event("Normal", "Uncordoned", f"uncordoned {who}{why}")
