"""What the condition `BackendReady` says of a stack that is managed. Pure."""

from collections.abc import Iterable
from datetime import datetime

from activities.render.stack.install import BY_NUMBER, EVERYTHING, S4, Action, Stage
from api_types.messages.stack import Lag
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.entity.failures import Failure
from workflows.inference_cluster.stack.plan import PREFLIGHT, gating_of, is_carried_out, open_stages, open_steps
from workflows.inference_cluster.stack_state import StackState

INSTALLING = "Installing"
RELEASE_CONFLICT = "ReleaseConflict"
ADDRESS_PENDING = "GatewayAddressPending"
UNAVAILABLE = "StackUnavailable"
_NAME_CONFLICT = "NameConflict"
_SHOWN_MAX = 3


def stack_verdict(stack: StackState, address: str) -> Verdict:
    """Say how far the stack is; True once it was complete and nothing that serves is missing."""
    if stack.complete:
        return _of_complete(stack, address)
    failure = stack.failures.get(PREFLIGHT)
    if failure:
        return Verdict(FALSE, _reason(failure), f"preflight: {failure.message}")
    conflict = next((failure for failure in stack.failures.values() if failure.type == _NAME_CONFLICT), None)
    if conflict:
        return Verdict(FALSE, RELEASE_CONFLICT, conflict.message)
    if stack.plan is None:
        return Verdict(FALSE, INSTALLING, "preflight: looks for what is in the way of the serving stack")
    return _of_stages(stack, address)


def progress_lines(stack: StackState) -> list[str]:
    """Give the releases and the open stages as Markdown, for the Temporal UI."""
    if stack.plan is None:
        return []
    rows = [
        f"| {key} | {release.name} | {release.version} | {stack.releases[key].revision if key in stack.releases else '-'} |"
        for key, release in stack.plan.releases.items()
    ]
    stages = [f"- {_of_stage(stack, stage)}" for stage in open_stages(stack)]
    return ["| Component | Release | Version | Revision |", "|---|---|---|---|", *rows, "", *stages, ""]


def texts_of(stack: StackState, target: str) -> str:
    """Say why the step of a component or group failed, or what of it lags; empty if nothing does."""
    failure = stack.failures.get(target)
    lags = [lag for lag in stack.seen.lags if lag.target == target] if stack.seen else []
    return "; ".join(filter(None, (f"{failure.type}: {failure.message}" if failure else "", _named(lags))))


def stage_text(stack: StackState, stage: Stage) -> str:
    """Say what a stage with open steps does and waits for."""
    return "; ".join(_parts_of(stack, stage)) or "waits until all is ready"


def _of_complete(stack: StackState, address: str) -> Verdict:
    lags = stack.seen.gating(EVERYTHING) if stack.seen else []
    upgrade = "; ".join(f"UpgradeFailed: {key}: {failure.message}" for key, failure in stack.failures.items())
    if lags:
        return Verdict(FALSE, UNAVAILABLE, "; ".join(filter(None, (_named(lags), upgrade, *_kept(stack)))))
    if not address:
        return Verdict(FALSE, INSTALLING, "; ".join(("the Gateway lost its address", *_address_events(stack))))
    waits = _turn(stack) or _later(stack)
    running = "" if is_carried_out(stack) or upgrade or waits else "; ".join(_of_stage(stack, stage) for stage in open_stages(stack))
    others = [lag for lag in stack.seen.lags if not lag.gates] if stack.seen else []
    return Verdict(
        TRUE, "BackendHealthy", "; ".join(filter(None, (upgrade, *_kept(stack), waits, running, _named(others), *_notes(stack))))
    )


def _kept(stack: StackState) -> list[str]:
    """Say which releases stay as they are, and why."""
    return list(stack.plan.kept.values())[:_SHOWN_MAX] if stack.plan else []


def _turn(stack: StackState) -> str:
    """Say for which clusters an upgrade waits; empty if it does not."""
    if not stack.turn.number or stack.turn.granted:
        return ""
    holders = ", ".join(stack.turn.holders[:_SHOWN_MAX])
    return f"waiting for the upgrade of cluster {holders}" if holders else "waiting for its turn to be upgraded"


def _later(stack: StackState) -> str:
    """Say when another stack is planned, while that waits for its time; empty if it does not."""
    at = stack.retry_at.get(PREFLIGHT, "")
    if not (stack.replan and at) or PREFLIGHT in stack.failures:
        return ""
    return f"another stack is wanted: it is planned at {datetime.fromisoformat(at):%H:%M:%S} UTC, or by `modelplane retry`"


def _of_stages(stack: StackState, address: str) -> Verdict:
    stages = open_stages(stack)
    if stages == [S4] and not address and not gating_of(stack, S4):
        reason = ADDRESS_PENDING if S4.number in stack.late else INSTALLING
        message = f"{S4.number} {S4.title}: the Gateway has no address yet{_late(stack, S4)}"
        return Verdict(FALSE, reason, "; ".join((message, *_address_events(stack), *_notes(stack))))
    return Verdict(FALSE, INSTALLING, "; ".join((*(_of_stage(stack, stage) for stage in stages), *_kept(stack), *_notes(stack))))


def _of_stage(stack: StackState, stage: Stage) -> str:
    return f"{stage.number} {stage.title}: {stage_text(stack, stage)}{_late(stack, stage)}"


def _parts_of(stack: StackState, stage: Stage) -> list[str]:
    steps = [step for step in open_steps(stack) if step.stage == stage]
    failed = [f"{step.key}: {failure.type}: {failure.message}" for step in steps if (failure := stack.failures.get(step.key))]
    at_work = [step.key for step in steps if step.action is not Action.READY and step.key not in stack.failures]
    lags = gating_of(stack, stage)
    return [*failed[:_SHOWN_MAX], *([f"applies {', '.join(at_work)}"] if at_work else []), *([_named(lags)] if lags else [])]


def _late(stack: StackState, stage: Stage) -> str:
    return f" (takes longer than {BY_NUMBER[stage.number].deadline_seconds // 60} min)" if stage.number in stack.late else ""


def _named(lags: list[Lag]) -> str:
    more = len(lags) - _SHOWN_MAX
    return ", ".join(f"{lag.object}: {lag.why}" for lag in lags[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _notes(stack: StackState) -> Iterable[str]:
    seen = stack.seen.notes if stack.seen else []
    return list(dict.fromkeys([*seen, *(note for notes in stack.notes.values() for note in notes)]))[:_SHOWN_MAX]


def _address_events(stack: StackState) -> list[str]:
    return stack.seen.address_events[:_SHOWN_MAX] if stack.seen else []


def _reason(failure: Failure) -> str:
    return RELEASE_CONFLICT if failure.type == _NAME_CONFLICT else failure.type
