"""What a CloudCluster tells its InferenceCluster, and what people see of it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from api_types.messages.clouds import (
    CLUSTER_KEY,
    CONNECTION,
    REMOVED_MAX,
    CloudObject,
    CloudReport,
    ClusterPhase,
    ObjectPhase,
    WorkClass,
)
from workflows.cloud_cluster import graph
from workflows.cloud_cluster.state import CloudState, Entry
from workflows.cloud_cluster.teardown import shown

PROVISIONING = "Provisioning"
DRAINING = "PoolDraining"
# Reasons of `ClusterReady` besides the former, in the order in which one of several is shown.
_REFUSALS = ("WaitingForClasses", "InvalidNodePool")
_SECONDS: Mapping[WorkClass, int] = {"Quick": 10, "Medium": 120, "ControlPlane": 600, "NodePool": 240}
"""How long work takes of which nothing is known yet."""
_SHOWN_MAX = 3
_MINUTE = 60


def phase_of(state: CloudState, running: Collection[str]) -> ClusterPhase:
    """Give the phase of the whole."""
    if state.deletion is not None:
        return "Deleting"
    if state.plan is None:
        return "Preflight" if state.order else "Pending"
    if is_ready(state):
        return "Ready"
    del running
    return "Changing" if state.was_ready else "Creating"


def is_ready(state: CloudState) -> bool:
    """Tell whether everything is as it is wanted."""
    plan = state.plan
    made = plan is not None and all(graph.is_made(state.inventory.get(each.key), each) for each in plan.objects)
    return made and plan is not None and bool(plan.objects) and not plan.refused


def is_usable(state: CloudState) -> bool:
    """Tell whether the control plane is there and its API server has answered."""
    entries = state.inventory.values()
    connected = any(entry.object.kind == CONNECTION and entry.was_ready for entry in entries)
    cluster = state.inventory.get(CLUSTER_KEY)
    return connected and cluster is not None and cluster.phase == "Ready"


def report_of(state: CloudState, uid: str, running: Collection[str], leftovers: Sequence[str] = ()) -> CloudReport:
    """Say what the InferenceCluster must know; its number is that of the last report."""
    plan = state.plan
    reason, message = trouble(state)
    waiting = waits_for(state, running)
    draining = drains(state, running)
    return CloudReport(
        uid=uid,
        sequence=state.report_number,
        generation=state.order.generation if state.order else 0,
        phase=phase_of(state, running),
        usable=is_usable(state),
        ready=is_ready(state),
        reason=reason or (PROVISIONING if not is_ready(state) else DRAINING if draining else ""),
        message="; ".join(filter(None, (message or ("" if is_ready(state) else waiting), draining))),
        waits_for=waiting,
        cloud_cluster=plan.cloud_cluster if plan else "",
        account=state.account,
        problems=[*(plan.refused if plan else []), *(plan.warnings if plan else [])],
        storage_class=plan.storage_class if plan else "",
        objects_ready=sum(graph.is_made(state.inventory.get(each.key), each) for each in plan.objects) if plan else 0,
        objects=max(len(plan.objects) if plan else 0, len(state.inventory)),
        leftovers=list(leftovers),
        cluster_gone=graph.is_cluster_gone(state) or None,
        removed=_removed(state) or None,
    )


def _removed(state: CloudState) -> list[CloudObject]:
    """Give what is not wanted any more and still there, for a CloudCluster that has lost its state: no plan names it."""
    if state.deletion is not None:
        return []
    return [entry.object for entry in state.inventory.values() if entry.removed_since and entry.tried][:REMOVED_MAX]


def trouble(state: CloudState) -> tuple[str, str]:
    """Give reason and message of what is wrong, the class of the error in front; both empty if nothing is."""
    texts = [f"{failure.type}: {failure.message}" for failure in (state.paused, state.plan_failure) if failure.type]
    failing = [entry for entry in graph.failing(state) if entry.failure != state.paused]
    texts += [f"{entry.failure.type}: {entry.title}: {entry.failure.message}" for entry in failing]
    if state.deletion is not None:
        texts += _left(state)
    refused = state.plan.refused if state.plan and state.deletion is None else []
    texts += [f"{each.reason}: {': '.join(filter(None, (each.at, each.text)))}" for each in refused]
    reason = next((each for each in _REFUSALS if any(problem.reason == each for problem in refused)), "")
    if not texts:
        return "", ""
    more = len(texts) - _SHOWN_MAX
    only_refusals = not graph.failing(state) and not state.paused.type and not state.plan_failure.type
    text = "; ".join([*texts[:_SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])])
    return (reason if reason and only_refusals else PROVISIONING), text


def drains(state: CloudState, running: Collection[str]) -> str:
    """Say which pools were removed and wait for their replicas; empty if none does."""
    if state.plan is None or state.deletion is not None:
        return ""
    limit = timedelta(seconds=state.plan.drain_seconds)
    ends = {
        entry.object.pool: datetime.fromisoformat(entry.removed_since) + limit
        for key, entry in state.inventory.items()
        if entry.object.pool and entry.removed_since and not entry.failure.type and key not in running
    }
    when = "is deleted when no replica is on the cluster, at the latest at"
    return "; ".join(f"pool {pool} was removed and {when} {end:%H:%M} UTC" for pool, end in ends.items())


def _left(state: CloudState) -> list[str]:
    """Say what holds a deletion up: what is left of the cluster, what others have in its network, why that is not known."""
    texts = [f"{state.audit_failure.type}: {state.audit_failure.message}"] if state.audit_failure.type else []
    # What waits for its own deletion is not named twice.
    waiting = {key for key, entry in state.inventory.items() if not entry.gone}
    for ours, what in ((True, "left at the cloud"), (False, "of others, and in the way")):
        if found := [shown(each) for each in state.leftovers if each.ours == ours and each.key not in waiting]:
            texts.append(f"{what}: {', '.join(found)}")
    return texts


def waits_for(state: CloudState, running: Collection[str]) -> str:
    """Name what is worked on, what it waits for, and how long that may take: the one that takes longest first."""
    working = [entry for key, entry in state.inventory.items() if key in running]
    if not working:
        return "looks for leftovers" if state.deletion is not None and state.looked_up else ""
    longest = max(working, key=lambda entry: usual_seconds(state, entry.object))
    others = f" and {len(working) - 1} more" if len(working) > 1 else ""
    if state.deletion is not None:
        return f"deletes {longest.title}{others}"
    minutes = max(1, round(usual_seconds(state, longest.object) / _MINUTE))
    since = datetime.fromisoformat(longest.since) if longest.since else None
    began = f", since {since:%H:%M} UTC" if since else ""
    return f"{longest.title}: {longest.object.waits_for}, which takes about {minutes} min{began}{others}"


def usual_seconds(state: CloudState, each: CloudObject) -> int:
    """Give how long the work on an object took the last time, or usually takes."""
    return state.durations.get(each.kind, _SECONDS[each.work])


# --- queries ------------------------------------------------------------------------------------------------------------------------------


def inventory_of(state: CloudState, running: Collection[str]) -> list[dict[str, Any]]:
    """Give each object with its state."""
    return [_row(entry, key in running, state) for key, entry in state.inventory.items()]


def progress_of(state: CloudState, running: Collection[str]) -> dict[str, Any]:
    """Give phase, what is waited for, what is wrong, and each object with its state; `planned`: the newest order was taken into account."""
    reason, message = trouble(state)
    return {
        "planned": state.order is not None and state.planned == state.order.sequence,
        "phase": phase_of(state, running),
        "ready": is_ready(state),
        "usable": is_usable(state),
        "waitsFor": waits_for(state, running),
        "reason": reason,
        "message": message,
        "objects": inventory_of(state, running),
    }


def plan_of(state: CloudState) -> dict[str, Any]:
    """Give what the next passes would do: what is created, changed and deleted, and what is refused."""
    plan = state.plan
    if plan is None:
        return {"create": [], "change": [], "delete": [], "refused": [], "warnings": []}
    wanted = {each.key for each in plan.objects}
    entries = state.inventory
    return {
        "create": [each.key for each in plan.objects if each.key not in entries or not entries[each.key].was_ready],
        "change": [each.key for each in plan.objects if each.key in entries and _differs(entries[each.key], each)],
        "delete": [key for key in entries if state.deletion is not None or (key not in wanted and entries[key].removed_since)],
        "refused": [each.wire() for each in plan.refused],
        "warnings": [each.wire() for each in plan.warnings],
    }


def _differs(entry: Entry, wanted: CloudObject) -> bool:
    return entry.was_ready and entry.made != wanted.digest


def _row(entry: Entry, is_running: bool, state: CloudState) -> dict[str, Any]:
    return {
        "key": entry.object.key,
        "kind": entry.object.kind,
        "name": entry.object.name,
        "id": entry.facts.get("id", ""),
        "phase": shown_phase(entry, deleting=state.deletion is not None),
        "running": is_running,
        "epoch": entry.epoch,
        "waitsFor": entry.object.waits_for if is_running else "",
        "usualSeconds": usual_seconds(state, entry.object),
        "message": f"{entry.failure.type}: {entry.failure.message}" if entry.failure.type else entry.message,
        "retryAt": entry.retry_at,
    }


def shown_phase(entry: Entry, *, deleting: bool) -> ObjectPhase:
    """Give the phase of an object as people see it."""
    if deleting or entry.phase != "Ready":
        return entry.phase
    return "Ready" if entry.made == entry.object.digest else "Differs"


def details_of(name: str, state: CloudState, running: Collection[str]) -> str:
    """Show the graph, in Markdown, for the Temporal UI."""
    rows = [
        f"| {row['key']} | {row['kind']} {row['name']} | {row['phase']}{' …' if row['running'] else ''} | {_cell(row['message'])} |"
        for row in inventory_of(state, running)
    ]
    waiting = waits_for(state, running)
    head = [f"**CloudCluster {name}** — {phase_of(state, running)}", "", *([_cell(waiting), ""] if waiting else [])]
    return "\n".join([*head, "| Object | What | State | Message |", "|---|---|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
