"""Derive the condition `BackendReady` of a managed stack. Pure."""

from collections.abc import Iterable
from datetime import datetime

from activities.render.stack.install import BY_NUMBER, EVERYTHING, S4, Action, Stage
from api_types import labels
from api_types.messages.stack import Lag, StackPlan
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.entity.failures import Failure
from workflows.inference_cluster.stack.plan import (
    PREFLIGHT,
    gating_of,
    is_carried_out,
    open_stages,
    open_steps,
)
from workflows.inference_cluster.stack_state import StackState

INSTALLING = "Installing"
RELEASE_CONFLICT = "ReleaseConflict"
ADDRESS_PENDING = "GatewayAddressPending"
UNAVAILABLE = "StackUnavailable"
PLANNED = "StackPlanned"
_NAME_CONFLICT = "NameConflict"
_SHOWN_MAX = 3


def stack_verdict(
    stack: StackState, address: str, *, only_planned: bool = False
) -> Verdict:
    """Return the verdict on the stack.

    It is True once the stack was complete and no serving part is missing.
    """
    if stack.complete:
        return _of_complete(stack, address)
    failure = stack.failures.get(PREFLIGHT)
    if failure:
        return Verdict(FALSE, _reason(failure), f"preflight: {failure.message}")
    for failure in stack.failures.values():
        if failure.type == _NAME_CONFLICT:
            return Verdict(FALSE, RELEASE_CONFLICT, failure.message)
    if stack.plan is None:
        return Verdict(
            FALSE,
            INSTALLING,
            "preflight: checking for conflicts with the serving stack",
        )
    if only_planned:
        return Verdict(FALSE, PLANNED, planned_text(stack.plan))
    return _of_stages(stack, address)


def planned_text(plan: StackPlan) -> str:
    """Return what a plan would install, use and leave alone."""
    installed = [
        f"{key} {release.version}"
        for key, release in plan.releases.items()
        if key not in plan.adopted
    ]
    parts = [
        (
            "nothing is installed until the annotation "
            f"{labels.STACK} is managed. Would be installed: {', '.join(installed)}"
        ),
        *(plan.kept[key] for key in plan.adopted if key in plan.kept),
    ]
    if plan.left:
        parts.append(f"left alone: {', '.join(plan.left)}")
    return "; ".join(parts)


def progress_lines(stack: StackState) -> list[str]:
    """Return the releases and the open stages as Markdown for the Temporal UI."""
    if stack.plan is None:
        return []
    rows: list[str] = []
    for key, release in stack.plan.releases.items():
        revision = stack.releases[key].revision if key in stack.releases else "-"
        rows.append(f"| {key} | {release.name} | {release.version} | {revision} |")
    stages = [f"- {_of_stage(stack, stage)}" for stage in open_stages(stack)]
    return [
        "| Component | Release | Version | Revision |",
        "|---|---|---|---|",
        *rows,
        "",
        *stages,
        "",
    ]


def texts_of(stack: StackState, target: str) -> str:
    """Return why a step failed or which of its objects are not ready, or ""."""
    failure = stack.failures.get(target)
    lags = (
        [lag for lag in stack.seen.lags if lag.target == target] if stack.seen else []
    )
    why = f"{failure.type}: {failure.message}" if failure else ""
    return "; ".join(filter(None, (why, _named(lags))))


def stage_text(stack: StackState, stage: Stage) -> str:
    """Describe the running work and the waits of a stage with open steps."""
    return "; ".join(_parts_of(stack, stage)) or "waits until all components are ready"


def _of_complete(stack: StackState, address: str) -> Verdict:
    lags = stack.seen.gating(EVERYTHING) if stack.seen else []
    upgrade = "; ".join(
        f"UpgradeFailed: {key}: {failure.message}"
        for key, failure in stack.failures.items()
    )
    if lags:
        return Verdict(
            FALSE,
            UNAVAILABLE,
            "; ".join(filter(None, (_named(lags), upgrade, *_kept(stack)))),
        )
    if not address:
        return Verdict(
            FALSE,
            INSTALLING,
            "; ".join(("the Gateway lost its address", *_address_events(stack))),
        )
    waits = _turn(stack) or _later(stack)
    running = (
        ""
        if is_carried_out(stack) or upgrade or waits
        else "; ".join(_of_stage(stack, stage) for stage in open_stages(stack))
    )
    others = [lag for lag in stack.seen.lags if not lag.gates] if stack.seen else []
    work = (upgrade, *_kept(stack), waits, running)
    parts = filter(None, (*work, _named(others), *_notes(stack)))
    return Verdict(TRUE, "BackendHealthy", "; ".join(parts))


def _kept(stack: StackState) -> list[str]:
    """Return why releases are kept as they are."""
    return list(stack.plan.kept.values())[:_SHOWN_MAX] if stack.plan else []


def _turn(stack: StackState) -> str:
    """Return a message about the clusters that an upgrade waits for, or ""."""
    if not stack.turn.number or stack.turn.granted:
        return ""
    holders = ", ".join(stack.turn.holders[:_SHOWN_MAX])
    return (
        f"waiting for the upgrade of cluster {holders}"
        if holders
        else "waiting for its turn to be upgraded"
    )


def _later(stack: StackState) -> str:
    """Return when the next plan is made, or "" if none is scheduled."""
    at = stack.retry_at.get(PREFLIGHT, "")
    if not (stack.replan and at) or PREFLIGHT in stack.failures:
        return ""
    time = f"{datetime.fromisoformat(at):%H:%M:%S} UTC"
    return (
        f"the wanted stack changed: the upgrade is planned at {time}; "
        "run `modelplane retry` to plan it now"
    )


def _of_stages(stack: StackState, address: str) -> Verdict:
    stages = open_stages(stack)
    if stages == [S4] and not address and not gating_of(stack, S4):
        reason = ADDRESS_PENDING if S4.number in stack.late else INSTALLING
        message = (
            f"{S4.number} {S4.title}: the Gateway has no address yet{_late(stack, S4)}"
        )
        return Verdict(
            FALSE, reason, "; ".join((message, *_address_events(stack), *_notes(stack)))
        )
    parts = [_of_stage(stack, stage) for stage in stages]
    return Verdict(
        FALSE, INSTALLING, "; ".join((*parts, *_kept(stack), *_notes(stack)))
    )


def _of_stage(stack: StackState, stage: Stage) -> str:
    return (
        f"{stage.number} {stage.title}: {stage_text(stack, stage)}{_late(stack, stage)}"
    )


def _parts_of(stack: StackState, stage: Stage) -> list[str]:
    steps = [step for step in open_steps(stack) if step.stage == stage]
    failed: list[str] = []
    for step in steps:
        failure = stack.failures.get(step.key)
        if failure:
            failed.append(f"{step.key}: {failure.type}: {failure.message}")
    at_work = [
        step.key
        for step in steps
        if step.action is not Action.READY and step.key not in stack.failures
    ]
    parts = failed[:_SHOWN_MAX]
    if at_work:
        parts.append(f"applies {', '.join(at_work)}")
    lags = gating_of(stack, stage)
    if lags:
        parts.append(_named(lags))
    return parts


def _late(stack: StackState, stage: Stage) -> str:
    return (
        f" (takes longer than {BY_NUMBER[stage.number].deadline_seconds // 60} min)"
        if stage.number in stack.late
        else ""
    )


def _named(lags: list[Lag]) -> str:
    more = len(lags) - _SHOWN_MAX
    named = ", ".join(f"{lag.object}: {lag.why}" for lag in lags[:_SHOWN_MAX])
    return f"{named} and {more} more" if more > 0 else named


def _notes(stack: StackState) -> Iterable[str]:
    found = list(stack.seen.notes) if stack.seen else []
    for notes in stack.notes.values():
        found += notes
    return list(dict.fromkeys(found))[:_SHOWN_MAX]


def _address_events(stack: StackState) -> list[str]:
    return stack.seen.address_events[:_SHOWN_MAX] if stack.seen else []


def _reason(failure: Failure) -> str:
    return RELEASE_CONFLICT if failure.type == _NAME_CONFLICT else failure.type
