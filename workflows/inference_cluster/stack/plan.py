"""Which steps of a plan may be taken now, which are complete, and what a look at the cluster says about that. Pure."""

from collections.abc import Sequence

from activities.render.stack.install import ALL_READY, INSTALL, UPGRADE, Action, Stage, Step
from api_types.messages.stack import Lag, StackPlan, StackSeen
from workflows.inference_cluster.stack_state import StackState

PREFLIGHT = "preflight"
RESTART = "restart"
CHECK = "check"


def steps_of(stack: StackState) -> tuple[Step, ...]:
    """Give the steps of the plan, in order."""
    return UPGRADE if stack.upgrading else INSTALL


def open_steps(stack: StackState) -> list[Step]:
    """Give the steps that are not complete, and whose needs are."""
    done = dict.fromkeys(stack.done)
    return [step for step in steps_of(stack) if step.key not in done and all(need in done for need in step.needs)]


def may_be_installed(stack: StackState, target: str) -> bool:
    """Return whether a component or group was installed, or its installation may have begun."""
    is_known = target in stack.releases or target in stack.groups
    return is_known or any(step.key == target for step in open_steps(stack))


def is_planned(stack: StackState, step: Step) -> bool:
    """Tell whether the plan has what a step installs: one that an earlier version made may lack a component."""
    of_charts = step.action in (Action.RELEASE, Action.CRDS)
    return stack.plan is not None and (not of_charts or all(target in stack.plan.releases for target in step.targets))


def is_carried_out(stack: StackState) -> bool:
    """Tell whether every step of the plan is complete."""
    done = dict.fromkeys(stack.done)
    return stack.plan is not None and all(step.key in done for step in steps_of(stack))


def is_upgrading(stack: StackState) -> bool:
    """Tell whether the plan replaces one that was complete, and was not yet carried out. What is repaired later is no upgrade."""
    return stack.upgrading and stack.completed_plan != stack.planned_at


def awaits_readiness(stack: StackState) -> bool:
    """Tell whether a look at the cluster is needed: something is waited for, or all is installed and has to stay so."""
    return is_carried_out(stack) or any(step.action is Action.READY for step in open_steps(stack))


def coverage(stack: StackState) -> dict[str, int]:
    """Give what a look that begins now covers: the revision of each release that was installed, and of each group the plan it is of."""
    done = dict.fromkeys(stack.done)
    groups = {group: stack.plans if group in done else stack.plans - 1 for group in stack.groups}
    return {**{key: release.revision for key, release in stack.releases.items()}, **groups}


def is_installed(stack: StackState, target: str, coverage_of_look: dict[str, int]) -> bool:
    """Return whether a component or group is installed, and a look was about that installation."""
    return target in stack.done and coverage_of_look.get(target) == coverage(stack).get(target)


def covers(coverage_of_look: dict[str, int], stack: StackState) -> bool:
    """Tell whether a look with this coverage shows all that is waited for now."""
    now = coverage(stack)
    if is_carried_out(stack):
        return coverage_of_look == now
    waited = [target for step in open_steps(stack) if step.action is Action.READY for target in step.targets]
    return all(coverage_of_look.get(target) == now.get(target) for target in waited)


def is_ready(stack: StackState, step: Step, address: str) -> bool:
    """Tell whether the targets of a step are as they shall be, as far as was seen of what is installed now."""
    now, seen = coverage(stack), stack.seen
    if seen is None or any(stack.covered.get(target) != now.get(target) for target in step.targets):
        return False
    if seen.gating(step.targets):
        return False
    # Without an address nothing is routed; an upgrade does not wait for one, which the stack had before.
    return step.key != ALL_READY or bool(address) or stack.complete


def is_kept(stack: StackState, step: Step) -> bool:
    """Tell whether a step is about nothing but releases that stay as they are. What was deleted of one by hand is put back all the same."""
    kept = stack.plan.kept if stack.plan else {}
    of_charts = step.action in (Action.RELEASE, Action.CRDS)
    return of_charts and all(target in kept and target not in stack.rewrites for target in step.targets)


def complete_idle_steps(stack: StackState, address: str) -> None:
    """Complete the steps with nothing to do: they only wait, and their targets are ready, or releases stay. One may open the next."""

    def is_idle(step: Step) -> bool:
        return is_ready(stack, step, address) if step.action is Action.READY else is_kept(stack, step)

    while idle := [step.key for step in open_steps(stack) if is_idle(step)]:
        stack.done += idle


def missing_targets(seen: StackSeen) -> list[str]:
    """Name the targets of which something has to be applied again, each once."""
    return list(dict.fromkeys(lag.target for lag in seen.lags if lag.missing))


def reopen(stack: StackState, targets: Sequence[str]) -> None:
    """Have the steps of some targets taken again, and whatever waits for these targets."""
    again = dict.fromkeys(targets)
    keys = [step.key for step in steps_of(stack) if any(target in again for target in step.targets) and step.action is not Action.CRDS]
    stack.done = [key for key in stack.done if key not in keys]


def begin_plan(stack: StackState, plan: StackPlan, now: str) -> None:
    """Take over a plan. One that differs from what is installed or under way is an upgrade, once something was complete."""
    stack.replan, stack.stages, stack.late = False, {}, []
    if stack.plan is not None and (stack.plan.digest, stack.plan.kept) == (plan.digest, plan.kept):
        return
    stack.upgrading = stack.complete
    stack.plan, stack.planned_at, stack.plans = plan, now, stack.plans + 1
    stack.done, stack.failures, stack.attempts, stack.retry_at, stack.notes = [], {}, {}, {}, {}


def open_stages(stack: StackState) -> list[Stage]:
    """Give the stages with open steps, in order."""
    return list(dict.fromkeys(step.stage for step in open_steps(stack)))


def gating_of(stack: StackState, stage: Stage) -> list[Lag]:
    """Give what the steps of a stage wait for, as far as it was seen."""
    targets = tuple(target for step in open_steps(stack) if step.stage == stage and step.action is Action.READY for target in step.targets)
    return stack.seen.gating(targets) if stack.seen else []
