"""Describe the objects and problems of a running deletion. All functions are pure."""

from collections.abc import Collection
from datetime import datetime

from api_types import clock
from api_types.errors import OwnerMarkMissing
from api_types.messages.clouds import (
    CLUSTER_KEY,
    STATES_MAX,
    CloudObjectState,
    Leftover,
)
from workflows.cloud_cluster import graph
from workflows.cloud_cluster.next_steps import step_of_deletion, step_of_others
from workflows.cloud_cluster.state import CloudState, InventoryEntry
from workflows.entity.failures import Failure

BLOCKED = "DeletionBlocked"
"""The reason of a deletion that has problems."""
OF_OTHERS = "OwnedByOthers"
"""The reason of an object of others that blocks the deletion."""
_LEFT = "LeftAtCloud"
"""The reason of an object of ours that several searches have found."""
_NAMED_MAX = 5
_WITH_COMMAND_MAX = 3
"""The number of objects without mark in a message. Each has a long command."""


def shown(each: Leftover) -> str:
    """Return the name of a leftover, with its link at the cloud."""
    link = f" ({each.link})" if each.link else ""
    return f"{each.kind} {each.id}{link}"


def blocks(each: Leftover) -> bool:
    """Return whether a leftover is an object of others that blocks the deletion."""
    return each.blocks and not each.ours


def problems(state: CloudState) -> list[str]:
    """Describe everything that holds up the deletion, each with its next step."""
    cluster = _cluster(state)
    # Objects that wait for their own deletion are not named twice.
    leftovers = [each for each in state.leftovers if each.key not in _waiting(state)]
    texts = []
    if others := [shown(each) for each in leftovers if blocks(each)]:
        step = step_of_others(cluster)
        texts.append(
            f"owned by others and blocking the deletion: {_listed(others)}; next step: {step}"
        )
    failing = [each for each in graph.failing(state) if each.failure != state.paused]
    texts += _without_mark(failing, leftovers, cluster)
    texts += [
        _problem(entry, cluster)
        for entry in failing
        if entry.failure.type != OwnerMarkMissing.__name__
    ]
    if state.audit_failure.type:
        texts.append(failed_text(state, state.audit_failure))
    ours = [shown(each) for each in leftovers if each.ours and not each.unmarked]
    # While the last deletions run, leftovers still disappear with their objects.
    if ours and (state.audits or failing):
        step = step_of_others(cluster)
        texts.append(f"left at the cloud: {_listed(ours)}; next step: {step}")
    return texts


def _without_mark(
    failing: list[InventoryEntry], leftovers: list[Leftover], cluster: str
) -> list[str]:
    """Return one problem with the first objects that lost their mark, or no problem."""
    reason = OwnerMarkMissing.__name__
    held = [
        f"{each.title}: {each.failure.message}"
        for each in failing
        if each.failure.type == reason
    ]
    held += [f"{shown(each)}: {each.unmarked}" for each in leftovers if each.unmarked]
    if not held:
        return []
    parts = sorted(held)[:_WITH_COMMAND_MAX]
    if more := len(held) - len(parts):
        parts.append(f"and {more} more, which `modelplane describe ic/{cluster}` lists")
    step = step_of_deletion(reason, cluster)
    return [f"{reason}: {'; '.join(parts)}; next step: {step}"]


def failed_text(state: CloudState, failure: Failure) -> str:
    """Describe a failure that holds up the whole deletion, with the next step."""
    step = step_of_deletion(failure.type, _cluster(state))
    return f"{failure.type}: {failure.message}; next step: {step}"


def _cluster(state: CloudState) -> str:
    """Return the name of the InferenceCluster, also before the first plan."""
    if state.account:
        return state.account.cluster
    order = state.order or (state.deletion.order if state.deletion else None)
    metadata = order.manifest.get("metadata", {}) if order else {}
    return str(metadata.get("name", ""))


def _problem(entry: InventoryEntry, cluster: str) -> str:
    failure = entry.failure
    step = step_of_deletion(failure.type, cluster)
    return f"{failure.type}: {entry.title}: {failure.message}; next step: {step}"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    listed = ", ".join(names[:_NAMED_MAX])
    return f"{listed} and {more} more" if more > 0 else listed


def _waiting(state: CloudState) -> set[str]:
    """Return the keys of the objects that are not deleted yet."""
    return {key for key, entry in state.inventory.items() if not entry.gone}


# Rows


def states_of(state: CloudState, running: Collection[str]) -> list[CloudObjectState]:
    """Return the objects that still exist, and the objects that block their deletion."""
    cluster = _cluster(state)
    waiting = _waiting(state)
    entries = [state.inventory[key] for key in state.inventory if key in waiting]
    rows = [_row(state, entry, running, cluster) for entry in entries]
    rows.sort(key=lambda each: not each.reason)
    leftovers = [each for each in state.leftovers if each.key not in waiting]
    for each in leftovers:
        if blocks(each):
            step, reason = step_of_others(cluster), OF_OTHERS
        elif each.unmarked:
            reason = OwnerMarkMissing.__name__
            step = step_of_deletion(reason, cluster)
        elif state.audits:
            step, reason = step_of_others(cluster), _LEFT
        else:
            continue  # it still disappears with the objects that are being deleted
        since = _timestamp(state.blocked_since or state.time)
        row = CloudObjectState(kind=each.kind, name=each.id, phase="Unknown")
        problem = {"reason": reason, "message": each.unmarked or each.evidence}
        rows.append(
            row.model_copy(update={**problem, "since": since, "next_step": step})
        )
    return rows[:STATES_MAX]


def _row(
    state: CloudState, entry: InventoryEntry, running: Collection[str], cluster: str
) -> CloudObjectState:
    each, failure = entry.object, entry.failure
    found = CloudObjectState(
        key=each.key,
        kind=each.kind,
        name=each.name,
        pool=each.pool,
        phase="Deleting",
        was_ready=entry.was_ready,
    )
    if failure.type:
        return found.model_copy(
            update={
                "reason": failure.type,
                "message": failure.message,
                "since": _timestamp(entry.trouble_since),
                "next_step": step_of_deletion(failure.type, cluster),
                "retry_at": _timestamp(entry.retry_at),
            }
        )
    message = _waits_for(state, entry, running)
    since = _timestamp(entry.since)
    return found.model_copy(update={"message": message, "since": since})


def _waits_for(
    state: CloudState, entry: InventoryEntry, running: Collection[str]
) -> str:
    """Return the event or object for which an object without a problem waits."""
    key, entries = entry.object.key, state.inventory
    if key in running:
        return "is being deleted"
    if state.paused.type:
        return f"waits: {state.paused.type}"
    cluster = entries.get(CLUSTER_KEY)
    has_cluster = cluster is not None and not cluster.gone
    if has_cluster and graph.ends_with_cluster(state, entry):
        return "is deleted with the control plane"
    for other in entries.values():
        if not other.gone and key in other.object.needs:
            return f"waits until {other.title} is deleted"
    if has_cluster and cluster is not None and key != CLUSTER_KEY:
        return f"waits until {cluster.title} is deleted"
    return "waits for its turn"


def _timestamp(carried: str) -> str:
    return clock.timestamp(datetime.fromisoformat(carried)) if carried else ""
