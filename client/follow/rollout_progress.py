"""Following a rollout: the replicas with the current template, and the others."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from client.follow.waiting import describe_or_none, raise_if_refused, status_line
from client.output.progress import Progress, Row
from fleet_client.advice import advice
from fleet_client.errors import CommandFailed, TimedOut
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, at_path, condition, generation, settled

_POLL_SECONDS = 0.5


async def until_rolled_out(
    plane: FleetObjects, targets: Sequence[Target], seconds: float, progress: Progress
) -> Mapping[Target, Tree]:
    """Wait until all replicas of every deployment are Ready with the current template.

    Raise `TimedOut`, `NotFound` or `CommandFailed`.
    """
    deadline = time.monotonic() + seconds
    while True:
        trees = {target: await describe_or_none(plane, target) for target in targets}
        progress.show([_row(target, tree) for target, tree in trees.items()])
        for target, tree in trees.items():
            raise_if_refused(target, tree)
        unfinished = {
            target: tree
            for target, tree in trees.items()
            if tree is None or not is_done(tree)
        }
        if not unfinished:
            return {target: tree for target, tree in trees.items() if tree is not None}
        if time.monotonic() >= deadline:
            raise _timed_out(unfinished, seconds)
        await asyncio.sleep(_POLL_SECONDS)


def progress_of(tree: Tree) -> str:
    """Return one line about a rollout, its pending changes and its blocking condition."""
    counts: Tree = at_path(tree, ".status.rollout") or {}
    ready, total, template = (
        int(counts.get(field, 0))
        for field in ("updatedReady", "total", "templateGeneration")
    )
    done = (
        f"{ready} of {total} replicas Ready with the template of generation {template}"
    )
    changing = int(counts.get("updated", 0)) - ready
    parts = [done]
    if changing:
        parts.append(f"{changing} changing")
    if counts.get("paused"):
        parts.append("paused")
    sentences = [", ".join(parts)]
    sentences += [f"pending: {change}" for change in counts.get("pending") or ()]
    ready_condition = condition(tree, "Ready")
    if ready_condition.get("status") != "True" and ready_condition.get("message"):
        sentences.append(str(ready_condition["message"]))
    return "; ".join(sentences)


def is_done(tree: Tree) -> bool:
    """Whether every replica is Ready with the current template."""
    counts: Tree = at_path(tree, ".status.rollout") or {}
    return settled(tree, generation(tree)) and counts.get("updatedReady") == counts.get(
        "total"
    )


def _row(target: Target, tree: Tree | None) -> Row:
    return Row(
        target.label,
        progress_of(tree) if tree else status_line(None),
        tree is not None and is_done(tree),
    )


def _timed_out(
    unfinished: Mapping[Target, Tree | None], seconds: float
) -> CommandFailed:
    details = [
        f"{target.title}: {progress_of(tree) if tree else status_line(None)}"
        for target, tree in unfinished.items()
    ]
    target, tree = next(iter(unfinished.items()))
    paused = bool(tree and at_path(tree, ".status.rollout.paused"))
    step = ""
    if paused:
        step = f"continue it with `modelplane rollout resume {target.command}`"
    elif tree:
        step = advice(target, tree)
    when = f"after {seconds:g} s; the control plane continues" if seconds else "yet"
    return TimedOut(
        f"not rolled out {when}",
        details=details,
        next_step=step or f"`modelplane describe {target.command}` shows the details",
    )
