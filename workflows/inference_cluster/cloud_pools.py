"""The nodes that the cloud provides for the pools of a created cluster. Pure.

The scheduler counts the nodes of a pool that the cloud scales as its spec says. Of any
other pool it counts the nodes that exist.
"""

from typing import Any

from api_types.messages.clouds import CloudObjectState
from workflows.inference_cluster.spec import is_created
from workflows.inference_cluster.state import ClusterState

OBJECTS_READY = "CloudObjectsReady"
"""The type of the condition that lists cloud objects which are not ready.

It is present only while there are any.
"""
_NAMED_MAX = 3
_NOT_YET_DELETED = (
    "waits: the deletion at the cloud follows after the steps in the condition Deleting"
)
_NOT_PLANNED = "it does not exist yet"


def provided_nodes(state: ClusterState, pool: str, nodes: int) -> tuple[int, str]:
    """Return how many of the spec's nodes a pool has, and why the cloud has no more.

    A pool with all nodes has a reason too if the cloud could not add or replace one.
    """
    if not is_created(state):
        return nodes, ""
    # A pool comes before its launch template.
    found = next((each for each in state.cloud.states if each.pool == pool), None)
    if found is None:
        return 0, f"the cloud provides 0 of {nodes} nodes: {_NOT_PLANNED}"
    if not found.lacks_nodes:
        return nodes, ""
    there = _existing(state, found, nodes)
    if there == nodes and not found.reason:
        return nodes, ""
    why = f"{found.reason}: {found.message}" if found.reason else found.message
    some = f"{there} of" if there < nodes else "no more than"
    parts = [f"the cloud provides {some} {nodes} nodes: {_named(found)}{why}"]
    if found.next_step:
        parts.append(f"next step: {found.next_step}")
    # Without the time of the next attempt, attempts are no news for the scheduler.
    return there, "; ".join(parts)


def _existing(state: ClusterState, found: CloudObjectState, nodes: int) -> int:
    """Return the number of Ready nodes that the cluster reports for a pool.

    Without a report, a pool that was ready keeps the nodes of its spec.
    """
    observed = state.observed
    if observed is None or not observed.reachable:
        return nodes if found.was_ready else 0
    ready = {each.pool: each.ready for each in observed.nodes}
    return min(nodes, ready.get(found.pool, 0))


def _named(each: CloudObjectState) -> str:
    return f"{each.kind} {each.name}: " if each.name else ""


# Condition and status


def unready_objects(state: ClusterState) -> list[CloudObjectState]:
    """Return the cloud objects that are not ready.

    Before a cluster was ready, these are only the objects with a problem. In a deletion,
    the condition `Deleting` has the problems.
    """
    if not is_created(state) or state.deleting:
        return []
    was_ready = state.cloud.was_ready
    return [
        each
        for each in state.cloud.states
        if not each.ready and (was_ready or each.reason)
    ]


def unready_reason(objects: list[CloudObjectState]) -> str:
    """Return the reason of the condition, which is the reason of the first problem."""
    return next((each.reason for each in objects if each.reason), "Creating")


def unready_message(objects: list[CloudObjectState]) -> str:
    """Return the message of the condition, problems first."""
    ordered = sorted(objects, key=lambda each: not each.reason)
    texts = [describe(each) for each in ordered[:_NAMED_MAX]]
    more = len(ordered) - _NAMED_MAX
    return "; ".join([*texts, f"and {more} more"] if more > 0 else texts)


def describe(each: CloudObjectState) -> str:
    """Return the pool and cloud resource, the cloud's words, since when, the next step."""
    pool = f"pool {each.pool}" if each.pool else each.key
    resource = f" ({each.kind} {each.name})" if each.name else ""
    reason = f"{each.reason}: " if each.reason else ""
    parts = [f"{pool}{resource}: {reason}{each.message or each.phase}"]
    if each.since:
        parts.append(f"since {each.since}")
    if each.next_step:
        parts.append(f"next step: {each.next_step}")
    if each.retry_at:
        parts.append(f"next attempt at {each.retry_at}")
    return ", ".join(parts)


def shown_states(state: ClusterState) -> list[CloudObjectState]:
    """Return the states to show.

    In a deletion, these are the objects that still exist. Before the deletion at the
    cloud begins, the earlier problems need nobody.
    """
    if not is_created(state):
        return []
    if not state.deleting:
        return state.cloud.states
    if report := state.cloud.deletion:
        return report.states
    waiting = {"ready": False, "message": _NOT_YET_DELETED, "reason": "", "code": ""}
    return [
        each.model_copy(
            update={**waiting, "since": "", "next_step": "", "retry_at": ""}
        )
        for each in state.cloud.states
        if each.key
    ]


def shown_objects(state: ClusterState) -> list[dict[str, Any]]:
    """Return the field `status.cloudObjects`, without its empty fields."""
    fields = ("pool", "kind", "name", "phase", "reason", "code", "message", "since")
    shown = []
    for each in shown_states(state):
        tree = {"object": each.key} | {name: getattr(each, name) for name in fields}
        tree |= {"nextStep": each.next_step, "retryAt": each.retry_at}
        found = {name: value for name, value in tree.items() if value}
        shown.append({**found, "ready": each.ready})
    return shown
