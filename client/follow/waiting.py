"""`--wait`: poll until objects are Ready, or gone, and show meanwhile what they wait for."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from client.errors import START_WORKER, CommandFailed, NoAnswer, NotFound, TimedOut
from client.fleet.objects import Objects
from client.follow.advice import advice
from client.follow.final_conditions import final_failure, missing_features, said
from client.follow.requests import UNSEEN, Requested
from client.output.progress import Progress, Row
from client.refs.targets import Target
from client.refs.tree import SCALED_TO_ZERO, Tree, at_path, condition, conditions, generation, has_applied, refusal, settled

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Goal:
    """An object that shall be Ready at this generation or a later one; None: at that of a request that no worker has seen yet.

    `exact`: and have as many replicas as its spec says, so that those which leave are gone.
    """

    target: Target
    generation: int | None
    request_id: str = ""
    exact: bool = False

    @classmethod
    def of(cls, requested: Requested, *, exact: bool = False) -> "Goal":
        """Give the goal of a request."""
        return cls(requested.target, generation(requested.tree) if requested.tree else None, requested.request_id, exact)

    def seen_in(self, tree: Tree | None) -> "Goal":
        """Give the goal with the generation of its request, if the object shows that it was applied."""
        applied = tree is not None and self.generation is None and has_applied(tree, self.request_id)
        return replace(self, generation=generation(tree)) if tree and applied else self


async def wait_until_ready(plane: Objects, goals: Sequence[Goal], seconds: float) -> list[Tree]:
    """Wait as `until_ready` does, showing progress, and then warn of what the specs ask for and do not get."""
    with Progress() as progress:
        trees = await until_ready(plane, goals, seconds, progress)
    for goal, tree in zip(goals, trees, strict=True):
        for missing in missing_features(goal.target, tree):
            print(f"warning: {missing}", file=sys.stderr, flush=True)
    return trees


async def until_ready(plane: Objects, goals: Sequence[Goal], seconds: float, progress: Progress) -> list[Tree]:
    """Wait until every goal is reached and give the objects, in the order of the goals.

    Raises `TimedOut` with reasons and the next step, `NotFound`, and `CommandFailed` when the control plane refused what was sent, or
    when an object cannot become Ready with its spec.
    """
    deadline = time.monotonic() + seconds
    while True:
        trees = await asyncio.gather(*(describe_or_none(plane, goal.target) for goal in goals))
        goals = [goal.seen_in(tree) for goal, tree in zip(goals, trees, strict=True)]
        pairs = list(zip(goals, trees, strict=True))
        progress.show([Row(goal.target.label, _line(goal, tree), _reached(goal, tree)) for goal, tree in pairs])
        for goal, tree in pairs:
            if goal.generation is not None:
                raise_if_refused(goal.target, tree)
                _raise_if_final(goal.target, tree, goal.generation)
        if all(_reached(goal, tree) for goal, tree in pairs):
            return [tree for tree in trees if tree is not None]
        if time.monotonic() >= deadline:
            raise await _timed_out(plane, [(goal, tree) for goal, tree in pairs if not _reached(goal, tree)], seconds)
        await asyncio.sleep(_POLL_SECONDS)


async def until_gone(plane: Objects, targets: Sequence[Target], seconds: float, progress: Progress) -> None:
    """Wait until none of the objects exists. Raises `TimedOut` that says what they wait for."""
    deadline = time.monotonic() + seconds
    left: dict[Target, str] = dict.fromkeys(targets, "being deleted")
    while True:
        answers = await asyncio.gather(*(_teardown_state(plane, target) for target in left))
        states = dict(zip(left, answers, strict=True))
        progress.show([Row(target.label, states.get(target) or "gone", not states.get(target)) for target in targets])
        left = {target: state for target, state in states.items() if state}
        if not left:
            return
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"not gone after {seconds:g} s; the teardown continues",
                details=[f"{target.title}: {state}" for target, state in left.items()],
                next_step=_next_step_of_teardown(left),
            )
        await asyncio.sleep(_POLL_SECONDS)


def _next_step_of_teardown(left: Mapping[Target, str]) -> str:
    # A cluster in use says itself whether --evict would help: not when its replicas are evicted already.
    in_use = next((target for target, state in left.items() if "--evict" in state), None)
    if in_use:
        again = f"modelplane delete {in_use.command}"
        first = f"move the replicas elsewhere with `{again} --evict --wait`, "
    else:
        again = f"modelplane delete {next(iter(left)).command}"
        first = ""
    return f"{first}wait longer with `{again} --wait`, or skip the step that is waited for: `{again} --force --reason TEXT`"


def status_line(tree: Tree | None) -> str:
    """Give the status of an object in one line: Ready, or every condition that is not True with its reason and message."""
    if tree is None:
        return "no worker answers for it"
    ready = condition(tree, "Ready")
    if ready.get("status") == "True":
        return "Ready"
    if ready.get("reason") == SCALED_TO_ZERO:
        return "scaled to zero"
    blocking = [row for row in conditions(tree) if row.get("status") != "True" and row.get("type") != "Ready"]
    # A condition without a message, or with the message of an earlier one, only follows from that one.
    informative = [row for at, row in enumerate(blocking) if row.get("message") and not _repeats(str(row["message"]), blocking[:at])]
    return "; ".join(said(row) for row in informative or blocking) or said(ready) or "accepted"


def _repeats(message: str, rows: Sequence[Tree]) -> bool:
    return any(message in str(row.get("message") or "") for row in rows)


def _reached(goal: Goal, tree: Tree | None) -> bool:
    return tree is not None and goal.generation is not None and settled(tree, goal.generation) and not _extra_replicas(goal, tree)


def _line(goal: Goal, tree: Tree | None) -> str:
    if tree is None or goal.generation is None:
        return UNSEEN if tree is not None else status_line(tree)
    extra = _extra_replicas(goal, tree) if settled(tree, goal.generation) else ""
    return extra or status_line(tree)


def _extra_replicas(goal: Goal, tree: Tree) -> str:
    """Say which replicas are not gone yet; empty if there are none, or if the wait is not for that."""
    scale = goal.target.kind.scale
    wanted = at_path(tree, scale.spec) if goal.exact and scale else None
    placements = list(at_path(tree, ".status.placements") or ())
    if wanted is None or len(placements) <= int(wanted):
        return ""
    leaving = [f"{each.get('replica')} on {each.get('cluster')}" for each in placements if each.get("phase") == "Terminating"]
    return f"replicas: {len(placements)} exist, {wanted} wanted; not gone yet: {', '.join(leaving) or 'to be chosen'}"


def raise_if_refused(target: Target, tree: Tree | None) -> None:
    """Raise `CommandFailed` if the control plane refused the last spec of an object."""
    if tree and (why := refusal(tree)):
        raise CommandFailed(
            f"{target.title} was refused by the control plane", details=why.splitlines(), next_step=_next_step(target, tree)
        )


def _raise_if_final(target: Target, tree: Tree | None, wanted_generation: int) -> None:
    """Raise `CommandFailed` if an object cannot become Ready with its spec."""
    if tree and (why := final_failure(target, tree, wanted_generation)):
        raise CommandFailed(
            f"{target.title} cannot become Ready with its spec",
            details=[why],
            next_step=advice(target, tree) or "fix the manifest as the message says and apply it again",
        )


def _next_step(target: Target, tree: Tree) -> str:
    return advice(target, tree) or f"`modelplane describe {target.command}` shows all that is known"


async def describe_or_none(plane: Objects, target: Target) -> Tree | None:
    """Give an object, or None while no worker answers. Raises `NotFound`, `Unreachable`."""
    try:
        return await plane.describe(target)
    except NoAnswer:
        return None


async def _teardown_state(plane: Objects, target: Target) -> str:
    """Say what an object waits for; empty once it is gone."""
    try:
        return "; ".join(await plane.waiting(target)) or "being deleted"
    except NotFound:
        return ""
    except NoAnswer:
        return "no worker answers for it"


async def _timed_out(plane: Objects, missing: Sequence[tuple[Goal, Tree | None]], seconds: float) -> TimedOut:
    target, tree = missing[0][0].target, missing[0][1]
    details: list[str] = []
    for goal, seen in missing:
        details.append(f"{goal.target.title}: {_line(goal, seen)}")
        details += [f"  failing: {step}" for step in (await plane.execution(goal.target)).failing]
    return TimedOut(
        f"not Ready after {seconds:g} s; the control plane keeps trying",
        details=details,
        next_step=_next_step(target, tree) if tree else START_WORKER,
    )
