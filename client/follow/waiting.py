"""`--wait`: poll until objects are Ready or gone, and show their progress."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from client.follow.final_conditions import final_failure, missing_features, said
from client.output.progress import Progress, Row
from fleet_client.advice import advice
from fleet_client.errors import (
    CommandFailed,
    NoAnswer,
    NotFound,
    TimedOut,
)
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import (
    SCALED_TO_ZERO,
    Tree,
    at_path,
    condition,
    conditions,
    generation,
    has_applied,
    refusal,
    settled,
)
from fleet_client.requests import UNSEEN, Requested

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Goal:
    """An object that has to become Ready at this generation or a later one.

    `generation` is None until a worker has seen the request. `exact` means that
    replicas beyond the spec's count must be gone too.
    """

    target: Target
    generation: int | None
    request_id: str = ""
    exact: bool = False

    @classmethod
    def of(cls, requested: Requested, *, exact: bool = False) -> "Goal":
        return cls(
            requested.target,
            generation(requested.tree) if requested.tree else None,
            requested.request_id,
            exact,
        )

    def seen_in(self, tree: Tree | None) -> "Goal":
        """Return the goal with the generation of its request, if that was applied."""
        applied = (
            tree is not None
            and self.generation is None
            and has_applied(tree, self.request_id)
        )
        return replace(self, generation=generation(tree)) if tree and applied else self


async def wait_until_ready(
    plane: FleetObjects, goals: Sequence[Goal], seconds: float
) -> list[Tree]:
    """Wait as `until_ready` does, showing progress, then warn of missing features."""
    with Progress() as progress:
        trees = await until_ready(plane, goals, seconds, progress)
    for goal, tree in zip(goals, trees, strict=True):
        for missing in missing_features(goal.target, tree):
            print(f"warning: {missing}", file=sys.stderr, flush=True)
    return trees


async def until_ready(
    plane: FleetObjects, goals: Sequence[Goal], seconds: float, progress: Progress
) -> list[Tree]:
    """Wait until every goal is reached.

    Return the objects in the order of the goals. Raise `TimedOut` with reasons and the
    next step, `NotFound`, and `CommandFailed` if the control plane refused a spec or an
    object cannot become Ready with its spec.
    """
    deadline = time.monotonic() + seconds
    while True:
        trees = await asyncio.gather(
            *(describe_or_none(plane, goal.target) for goal in goals)
        )
        goals = [goal.seen_in(tree) for goal, tree in zip(goals, trees, strict=True)]
        pairs = list(zip(goals, trees, strict=True))
        progress.show(
            [
                Row(goal.target.label, _line(goal, tree), _reached(goal, tree))
                for goal, tree in pairs
            ]
        )
        for goal, tree in pairs:
            if goal.generation is not None:
                raise_if_refused(goal.target, tree)
                _raise_if_final(goal.target, tree, goal.generation)
        if all(_reached(goal, tree) for goal, tree in pairs):
            return [tree for tree in trees if tree is not None]
        if time.monotonic() >= deadline:
            raise await _timed_out(
                plane,
                [(goal, tree) for goal, tree in pairs if not _reached(goal, tree)],
                seconds,
            )
        await asyncio.sleep(_POLL_SECONDS)


async def until_gone(
    plane: FleetObjects, targets: Sequence[Target], seconds: float, progress: Progress
) -> None:
    """Wait until none of the objects exists.

    Raise `TimedOut` with the state of each.
    """
    deadline = time.monotonic() + seconds
    left: dict[Target, str] = dict.fromkeys(targets, "being deleted")
    while True:
        answers = await asyncio.gather(
            *(_teardown_state(plane, target) for target in left)
        )
        states = dict(zip(left, answers, strict=True))
        progress.show(
            [
                Row(target.label, states.get(target) or "gone", not states.get(target))
                for target in targets
            ]
        )
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
    # The message of a cluster in use names --evict if that would help. It does not help
    # once the replicas are evicted.
    in_use = next(
        (target for target, state in left.items() if "--evict" in state), None
    )
    if in_use:
        again = f"modelplane delete {in_use.command}"
        first = f"move the replicas elsewhere with `{again} --evict --wait`, "
    else:
        again = f"modelplane delete {next(iter(left)).command}"
        first = ""
    return (
        f"{first}wait longer with `{again} --wait`, or skip the current step: "
        f"`{again} --force --reason TEXT`"
    )


def status_line(tree: Tree | None) -> str:
    """Return an object's status in one line: Ready, or its other conditions."""
    if tree is None:
        return "no worker answers for it"
    ready = condition(tree, "Ready")
    if ready.get("status") == "True":
        return "Ready"
    if ready.get("reason") == SCALED_TO_ZERO:
        return "scaled to zero"
    blocking = [
        row
        for row in conditions(tree)
        if row.get("status") != "True" and row.get("type") != "Ready"
    ]
    # A condition without a message, or with an earlier one's message, is only a
    # consequence.
    informative = [
        row
        for at, row in enumerate(blocking)
        if row.get("message") and not _repeats(str(row["message"]), blocking[:at])
    ]
    return (
        "; ".join(said(row) for row in informative or blocking)
        or said(ready)
        or "accepted"
    )


def _repeats(message: str, rows: Sequence[Tree]) -> bool:
    return any(message in str(row.get("message") or "") for row in rows)


def _reached(goal: Goal, tree: Tree | None) -> bool:
    return (
        tree is not None
        and goal.generation is not None
        and settled(tree, goal.generation)
        and not _extra_replicas(goal, tree)
    )


def _line(goal: Goal, tree: Tree | None) -> str:
    if tree is None or goal.generation is None:
        return UNSEEN if tree is not None else status_line(tree)
    extra = _extra_replicas(goal, tree) if settled(tree, goal.generation) else ""
    return extra or status_line(tree)


def _extra_replicas(goal: Goal, tree: Tree) -> str:
    """Return a text about surplus replicas that are not gone yet, else an empty string."""
    scale = goal.target.kind.scale
    wanted = at_path(tree, scale.spec) if goal.exact and scale else None
    placements = list(at_path(tree, ".status.placements") or ())
    if wanted is None or len(placements) <= int(wanted):
        return ""
    leaving = [
        f"{each.get('replica')} on {each.get('cluster')}"
        for each in placements
        if each.get("phase") == "Terminating"
    ]
    counts = f"{len(placements)} exist, {wanted} wanted"
    return f"replicas: {counts}; not gone yet: {', '.join(leaving) or 'to be chosen'}"


def raise_if_refused(target: Target, tree: Tree | None) -> None:
    """Raise `CommandFailed` if the control plane refused the last spec of an object."""
    if tree and (why := refusal(tree)):
        raise CommandFailed(
            f"{target.title} was refused by the control plane",
            details=why.splitlines(),
            next_step=_next_step(target, tree),
        )


def _raise_if_final(target: Target, tree: Tree | None, wanted_generation: int) -> None:
    """Raise `CommandFailed` if an object cannot become Ready with its spec."""
    if tree and (why := final_failure(target, tree, wanted_generation)):
        raise CommandFailed(
            f"{target.title} cannot become Ready with its spec",
            details=[why],
            next_step=advice(target, tree)
            or "fix the manifest as the message says and apply it again",
        )


def _next_step(target: Target, tree: Tree) -> str:
    return (
        advice(target, tree)
        or f"`modelplane describe {target.command}` shows the details"
    )


async def describe_or_none(plane: FleetObjects, target: Target) -> Tree | None:
    """Return an object, or None if no worker answers.

    Raise `NotFound` or `Unreachable`.
    """
    try:
        return await plane.describe(target)
    except NoAnswer:
        return None


async def _teardown_state(plane: FleetObjects, target: Target) -> str:
    """Return why a teardown is blocked, or an empty string once the object is gone."""
    try:
        return "; ".join(await plane.waiting(target)) or "being deleted"
    except NotFound:
        return ""
    except NoAnswer:
        return "no worker answers for it"


async def _timed_out(
    plane: FleetObjects, missing: Sequence[tuple[Goal, Tree | None]], seconds: float
) -> TimedOut:
    first, tree = missing[0]
    target = first.target
    details: list[str] = []
    for goal, seen in missing:
        details.append(f"{goal.target.title}: {_line(goal, seen)}")
        execution = await plane.execution(goal.target)
        details += [f"  failing: {step}" for step in execution.failing]
    return TimedOut(
        f"not Ready after {seconds:g} s; the control plane keeps trying",
        details=details,
        next_step=_next_step(target, tree)
        if tree
        else await _next_step_of_silent(plane, target),
    )


async def _next_step_of_silent(plane: FleetObjects, target: Target) -> str:
    """Return the next step for an object that did not answer."""
    try:
        return _next_step(target, await plane.describe(target))
    except CommandFailed as error:
        return error.next_step
