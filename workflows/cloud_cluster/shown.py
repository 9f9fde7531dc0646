"""The reports of a CloudCluster to its InferenceCluster, and its views for users.

Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from api_types.messages.clouds import (
    CLUSTER_KEY,
    CONNECTION,
    REMOVED_MAX,
    CloudObject,
    CloudProblem,
    CloudReport,
    ClusterPhase,
    WorkClass,
)
from workflows.cloud_cluster import deletion, graph, readiness
from workflows.cloud_cluster.next_steps import next_step
from workflows.cloud_cluster.state import CloudState, InventoryEntry

PROVISIONING = "Provisioning"
DRAINING = "PoolDraining"
DELETING = "Deleting"
# Reasons of `ClusterReady` besides Provisioning. If several apply, the first one is
# shown.
_REFUSALS = ("WaitingForClasses", "InvalidNodePool")
_SECONDS: Mapping[WorkClass, int] = {
    "Quick": 10,
    "Medium": 120,
    "ControlPlane": 600,
    "NodePool": 240,
}
"""Typical seconds per class of work, until an object of the kind was created."""
_SHOWN_MAX = 3
_MINUTE = 60


def phase_of(state: CloudState, running: Collection[str]) -> ClusterPhase:
    if state.deletion is not None:
        return "Deleting"
    if state.plan is None:
        return "Preflight" if state.order else "Pending"
    if readiness.is_ready(state):
        return "Ready"
    del running
    return "Changing" if state.was_ready else "Creating"


def is_usable(state: CloudState) -> bool:
    """Return whether the control plane exists and its API server has answered."""
    entries = state.inventory.values()
    connected = any(
        entry.object.kind == CONNECTION and entry.was_ready for entry in entries
    )
    cluster = state.inventory.get(CLUSTER_KEY)
    return connected and cluster is not None and cluster.phase == "Ready"


def report_of(
    state: CloudState, uid: str, running: Collection[str], leftovers: Sequence[str] = ()
) -> CloudReport:
    """Return the report for the InferenceCluster, without a new number.

    Its number is that of the last report. The workflow numbers the reports that it
    sends.
    """
    plan = state.plan
    reason, message = trouble(state)
    waiting = waits_for(state, running)
    draining = drains(state, running)
    ready = readiness.is_ready(state)
    if not reason and state.deletion is not None:
        reason = DELETING
    elif not reason and not ready:
        reason = PROVISIONING
    elif not reason and draining:
        reason = DRAINING
    if not message and not ready:
        message = waiting
    planned = plan.objects if plan else []
    return CloudReport(
        uid=uid,
        sequence=state.report_number,
        generation=state.order.generation if state.order else 0,
        phase=phase_of(state, running),
        usable=is_usable(state),
        ready=ready,
        reason=reason,
        message="; ".join(filter(None, (message, draining))),
        waits_for=waiting,
        states=readiness.states_of(state, running),
        cloud_cluster=plan.cloud_cluster if plan else "",
        account=state.account,
        problems=[*(plan.refused if plan else []), *(plan.warnings if plan else [])],
        storage_class=plan.storage_class if plan else "",
        objects_ready=sum(
            graph.is_made(state.inventory.get(each.key), each) for each in planned
        ),
        objects=max(len(planned), len(state.inventory)),
        leftovers=list(leftovers),
        cluster_gone=graph.is_cluster_gone(state) or None,
        removed=_removed(state) or None,
        events=state.events[-state.unreported :] if state.unreported else [],
    )


def compared(report: CloudReport) -> CloudReport:
    """Return the part of a report whose change is worth another report.

    While a problem lasts, another attempt is not: only its failure has a new time of the
    next attempt.
    """
    bare = report.model_copy(update={"sequence": 0, "events": []})
    if report.phase == "Deleting":
        return bare
    states = [
        each.model_copy(update={"phase": "Waiting"}) if each.reason else each
        for each in report.states
    ]
    is_shown = report.message == report.waits_for
    waits_for = report.waits_for if is_shown else ""
    return bare.model_copy(update={"states": states, "waits_for": waits_for})


def _removed(state: CloudState) -> list[CloudObject]:
    """Return the unwanted objects that still exist.

    No plan names them, so a CloudCluster that lost its state gets them back from its
    InferenceCluster.
    """
    if state.deletion is not None:
        return []
    return [
        entry.object
        for entry in state.inventory.values()
        if entry.removed_since and entry.tried
    ][:REMOVED_MAX]


def trouble(state: CloudState) -> tuple[str, str]:
    """Return the reason and message of the current problems, or two empty strings.

    Each problem in the message starts with its error type.
    """
    general = _general(state)
    if state.deletion is not None:
        texts = general + deletion.problems(state)
        return (deletion.BLOCKED, _joined(texts)) if texts else ("", "")
    refused = state.plan.refused if state.plan else []
    failing = [entry for entry in graph.failing(state) if entry.failure != state.paused]
    texts = general + [_of_entry(state, each) for each in failing]
    texts += [
        _of_entry(state, entry)
        for entry in state.inventory.values()
        if entry.health is not None and entry not in failing
    ]
    texts += [_refusal(state, each) for each in refused if each.at]
    reasons = {problem.reason for problem in refused}
    reason = next((each for each in _REFUSALS if each in reasons), "")
    if not texts:
        return "", ""
    only_refusals = (
        not graph.failing(state)
        and not state.paused.type
        and not state.plan_failure.type
    )
    if not reason or not only_refusals:
        reason = PROVISIONING
    return reason, _joined(texts)


def _joined(texts: list[str]) -> str:
    more = len(texts) - _SHOWN_MAX
    listed = texts[:_SHOWN_MAX]
    if more > 0:
        listed.append(f"and {more} more")
    return "; ".join(listed)


def _general(state: CloudState) -> list[str]:
    """Return the problems that concern the whole cluster."""
    failures = [each for each in (state.paused, state.plan_failure) if each.type]
    if state.deletion is not None:
        return [deletion.failed_text(state, each) for each in failures]
    texts = [_with_step(state, each.type, each.message) for each in failures]
    refused = state.plan.refused if state.plan else []
    return texts + [_refusal(state, each) for each in refused if not each.at]


def _of_entry(state: CloudState, entry: InventoryEntry) -> str:
    """Describe the failure of an object, or else the problem that the cloud reports."""
    failure, health = entry.failure, entry.health
    reason, text = failure.type, failure.message
    if not reason and health is not None:
        reason, text = health.error, health.text
    return _with_step(state, reason, f"{entry.title}: {text}", entry)


def _refusal(state: CloudState, each: CloudProblem) -> str:
    text = ": ".join(filter(None, (each.at, each.text)))
    return _with_step(state, each.reason, text)


def _with_step(
    state: CloudState, reason: str, text: str, entry: InventoryEntry | None = None
) -> str:
    """Return a problem with the next step that `readiness.states_of` has for it."""
    cluster = state.account.cluster if state.account else ""
    return f"{reason}: {text}; next step: {next_step(reason, cluster, entry)}"


def drains(state: CloudState, running: Collection[str]) -> str:
    """Return a message about removed pools that wait for their replicas, or ""."""
    if state.plan is None or state.deletion is not None:
        return ""
    limit = timedelta(seconds=state.plan.drain_seconds)
    ends = {
        entry.object.pool: datetime.fromisoformat(entry.removed_since) + limit
        for key, entry in state.inventory.items()
        if entry.object.pool
        and entry.removed_since
        and not entry.failure.type
        and key not in running
    }
    when = "is deleted once no replica runs on the cluster, at the latest at"
    return "; ".join(
        f"pool {pool} was removed and {when} {end:%H:%M} UTC"
        for pool, end in ends.items()
    )


def waits_for(state: CloudState, running: Collection[str]) -> str:
    """Describe the running work, or return "". The slowest object is named first."""
    working = [entry for key, entry in state.inventory.items() if key in running]
    if not working and state.deletion is None:
        return "planning the cloud objects" if state.plan is None else ""
    if not working:
        is_gone = all(entry.gone for entry in state.inventory.values())
        return "searching for leftovers" if state.looked_up and is_gone else ""
    longest = max(working, key=lambda entry: usual_seconds(state, entry.object))
    others = f" and {len(working) - 1} more" if len(working) > 1 else ""
    if state.deletion is not None:
        return f"deleting {longest.title}{others}"
    minutes = max(1, round(usual_seconds(state, longest.object) / _MINUTE))
    since = datetime.fromisoformat(longest.since) if longest.since else None
    began = f", since {since:%H:%M} UTC" if since else ""
    work = f"{longest.title}: {longest.object.waits_for}"
    return f"{work}, which takes about {minutes} min{began}{others}"


def usual_seconds(state: CloudState, each: CloudObject) -> int:
    """Return how long work on an object took the last time, or typically takes."""
    return state.durations.get(each.kind, _SECONDS[each.work])


# Queries


def inventory_of(state: CloudState, running: Collection[str]) -> list[dict[str, Any]]:
    """Return a row for each object of the inventory."""
    return [
        _row(entry, key in running, state) for key, entry in state.inventory.items()
    ]


def progress_of(state: CloudState, running: Collection[str]) -> dict[str, Any]:
    """Return the phase, the problems, the running work and a row for each object.

    `planned` is True if the plan is for the newest order.
    """
    reason, message = trouble(state)
    return {
        "planned": state.order is not None and state.planned == state.order.sequence,
        "phase": phase_of(state, running),
        "ready": readiness.is_ready(state),
        "complete": readiness.is_complete(state),
        "usable": is_usable(state),
        "waitsFor": waits_for(state, running),
        "reason": reason,
        "message": message,
        "objects": inventory_of(state, running),
    }


def plan_of(state: CloudState) -> dict[str, Any]:
    """Return the planned changes: objects to create, change and delete, and refusals."""
    plan = state.plan
    if plan is None:
        return {"create": [], "change": [], "delete": [], "refused": [], "warnings": []}
    wanted = {each.key for each in plan.objects}
    entries = state.inventory
    return {
        "create": [
            each.key
            for each in plan.objects
            if each.key not in entries or not entries[each.key].was_ready
        ],
        "change": [
            each.key
            for each in plan.objects
            if each.key in entries and _differs(entries[each.key], each)
        ],
        "delete": [
            key
            for key in entries
            if state.deletion is not None
            or (key not in wanted and entries[key].removed_since)
        ],
        "refused": [each.wire() for each in plan.refused],
        "warnings": [each.wire() for each in plan.warnings],
    }


def _differs(entry: InventoryEntry, wanted: CloudObject) -> bool:
    return entry.was_ready and entry.made != wanted.digest


def _row(entry: InventoryEntry, is_running: bool, state: CloudState) -> dict[str, Any]:
    message, failure = entry.message, entry.failure
    if failure.type:
        message = f"{failure.type}: {failure.message}"
    return {
        "key": entry.object.key,
        "kind": entry.object.kind,
        "name": entry.object.name,
        "id": entry.facts.get("id", ""),
        "phase": entry.phase
        if state.deletion is not None
        else readiness.shown_phase(entry, entry.object),
        "running": is_running,
        "epoch": entry.epoch,
        "waitsFor": entry.object.waits_for if is_running else "",
        "usualSeconds": usual_seconds(state, entry.object),
        "message": message,
        "retryAt": entry.retry_at,
    }


def details_of(name: str, state: CloudState, running: Collection[str]) -> str:
    """Return the graph as Markdown for the Temporal UI."""
    lines = [f"**CloudCluster {name}** — {phase_of(state, running)}", ""]
    waiting = waits_for(state, running)
    if waiting:
        lines += [_cell(waiting), ""]
    lines += ["| Object | Kind and name | State | Message |", "|---|---|---|---|"]
    for row in inventory_of(state, running):
        named = f"{row['kind']} {row['name']}"
        phase = f"{row['phase']} …" if row["running"] else row["phase"]
        lines.append(f"| {row['key']} | {named} | {phase} | {_cell(row['message'])} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
