"""Decide which steps of a plan are next and which are complete. Pure."""

from collections.abc import Sequence

from activities.render.stack.install import (
    ALL_READY,
    INSTALL,
    UPGRADE,
    Action,
    Stage,
    Step,
)
from api_types.messages.stack import Lag, StackPlan, StackSeen
from workflows.inference_cluster.stack_state import StackState

PREFLIGHT = "preflight"
RESTART = "restart"
CHECK = "check"


def steps_of(stack: StackState) -> tuple[Step, ...]:
    """Return the steps of the plan, in order."""
    return UPGRADE if stack.upgrading else INSTALL


def open_steps(stack: StackState) -> list[Step]:
    """Return the incomplete steps whose needs are complete."""
    done = dict.fromkeys(stack.done)
    return [
        step
        for step in steps_of(stack)
        if step.key not in done and all(need in done for need in step.needs)
    ]


def may_be_installed(stack: StackState, target: str) -> bool:
    """Return whether a target is installed or its installation may have started."""
    is_known = target in stack.releases or target in stack.groups
    return is_known or any(step.key == target for step in open_steps(stack))


def is_planned(stack: StackState, step: Step) -> bool:
    """Return whether the plan contains the releases of a step.

    A plan that an earlier version made may lack a component.
    """
    of_charts = step.action in (Action.RELEASE, Action.CRDS)
    return stack.plan is not None and (
        not of_charts or all(target in stack.plan.releases for target in step.targets)
    )


def is_carried_out(stack: StackState) -> bool:
    """Return whether every step of the plan is complete."""
    done = dict.fromkeys(stack.done)
    return stack.plan is not None and all(step.key in done for step in steps_of(stack))


def is_upgrading(stack: StackState) -> bool:
    """Return whether the plan is an unfinished upgrade of a complete stack.

    Later repairs are not upgrades.
    """
    return stack.upgrading and stack.completed_plan != stack.planned_at


def awaits_readiness(stack: StackState) -> bool:
    """Return whether the cluster has to be checked.

    A check is needed while a step waits for readiness, and after the plan is carried
    out.
    """
    return is_carried_out(stack) or any(
        step.action is Action.READY for step in open_steps(stack)
    )


def coverage(stack: StackState) -> dict[str, int]:
    """Return the targets that a check started now covers.

    The value is the revision of a release or the plan number of a group.
    """
    done = dict.fromkeys(stack.done)
    groups = {
        group: stack.plans if group in done else stack.plans - 1
        for group in stack.groups
    }
    return {
        **{key: release.revision for key, release in stack.releases.items()},
        **groups,
    }


def is_installed(
    stack: StackState, target: str, coverage_of_look: dict[str, int]
) -> bool:
    """Return whether a target is installed and a check covered that installation."""
    return target in stack.done and coverage_of_look.get(target) == coverage(stack).get(
        target
    )


def covers(coverage_of_look: dict[str, int], stack: StackState) -> bool:
    """Return whether a check with this coverage shows all that steps wait for."""
    now = coverage(stack)
    if is_carried_out(stack):
        return coverage_of_look == now
    waited: list[str] = []
    for step in open_steps(stack):
        if step.action is Action.READY:
            waited += step.targets
    return all(coverage_of_look.get(target) == now.get(target) for target in waited)


def is_ready(stack: StackState, step: Step, address: str) -> bool:
    """Return whether the last check found the targets of a step ready.

    The check must cover the current installation.
    """
    now, seen = coverage(stack), stack.seen
    if seen is None or any(
        stack.covered.get(target) != now.get(target) for target in step.targets
    ):
        return False
    if seen.gating(step.targets):
        return False
    # Traffic cannot be routed without an address. An upgrade does not wait for one,
    # because the stack had an address before.
    return step.key != ALL_READY or bool(address) or stack.complete


def is_kept(stack: StackState, step: Step) -> bool:
    """Return whether a step only concerns releases that are kept as they are.

    Releases with manually deleted objects are repaired nevertheless.
    """
    kept = stack.plan.kept if stack.plan else {}
    of_charts = step.action in (Action.RELEASE, Action.CRDS)
    return of_charts and all(
        target in kept and target not in stack.rewrites for target in step.targets
    )


def complete_idle_steps(stack: StackState, address: str) -> None:
    """Complete the steps that have nothing to do.

    Completing one may open another. These are steps whose targets are ready, and steps
    whose releases are kept.
    """

    def is_idle(step: Step) -> bool:
        return (
            is_ready(stack, step, address)
            if step.action is Action.READY
            else is_kept(stack, step)
        )

    while idle := [step.key for step in open_steps(stack) if is_idle(step)]:
        stack.done += idle


def missing_targets(seen: StackSeen) -> list[str]:
    """Return the targets with missing objects, without duplicates."""
    return list(dict.fromkeys(lag.target for lag in seen.lags if lag.missing))


def reopen(stack: StackState, targets: Sequence[str]) -> None:
    """Reopen the steps of some targets and the steps that wait for these targets."""
    again = dict.fromkeys(targets)
    keys = [
        step.key
        for step in steps_of(stack)
        if any(target in again for target in step.targets)
        and step.action is not Action.CRDS
    ]
    stack.done = [key for key in stack.done if key not in keys]


def begin_plan(stack: StackState, plan: StackPlan, now: str) -> None:
    """Store a plan. A different plan after a complete stack is an upgrade."""
    stack.replan, stack.stages, stack.late = False, {}, []
    before = stack.plan
    if before and (before.digest, before.kept) == (plan.digest, plan.kept):
        return
    stack.upgrading = stack.complete
    stack.plan, stack.planned_at, stack.plans = plan, now, stack.plans + 1
    stack.done, stack.notes = [], {}
    stack.failures, stack.attempts, stack.retry_at = {}, {}, {}


def open_stages(stack: StackState) -> list[Stage]:
    """Return the stages with open steps, in order."""
    return list(dict.fromkeys(step.stage for step in open_steps(stack)))


def gating_of(stack: StackState, stage: Stage) -> list[Lag]:
    """Return the observed problems that the steps of a stage wait for."""
    if stack.seen is None:
        return []
    targets: list[str] = []
    for step in open_steps(stack):
        if step.stage == stage and step.action is Action.READY:
            targets += step.targets
    return stack.seen.gating(tuple(targets))
