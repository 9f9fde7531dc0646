"""`modelplane rollout`: watch how a template reaches the replicas, hold it, let it go on, begin it again, or go back.

What is changed is the deployment's own spec, so that whoever looks at it sees what was ordered; the steps themselves are the scheduler's.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from api_types.clock import timestamp, utc_now
from api_types.labels import RESTARTED_AT
from client.commands import options
from client.configuration import load_settings
from client.errors import CommandFailed, NoAnswer, Refused, TimedOut
from client.follow.advice import advice
from client.follow.edit import change
from client.follow.waiting import standing
from client.output.progress import Progress, Row
from client.refs.targets import Target, objects_named
from client.refs.tree import Tree, at_path, condition, generation, refusal, settled
from client.temporal.control_plane import ControlPlane, control_plane

_ROLLED = "ModelDeployment"
_LOOK_EVERY_SECONDS = 0.5

rollout = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Watch and steer how a changed template reaches the replicas.")

Objects = Annotated[list[str], typer.Argument(help="Deployments: `md/qwen`, or `md qwen`.")]


@rollout.command("status")
def status(
    objects: Objects,
    namespace: options.Namespace = None,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", "-w", help="Stay until the rollout is done.")] = True,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Show how far the present template has come. Ends with 5 when it is not done in time, with --no-watch when it is not done now."""
    asyncio.run(_status(_deployments(objects, namespace), timeout if watch else 0.0))


@rollout.command("pause")
def pause(objects: Objects, namespace: options.Namespace = None) -> None:
    """Change no further replica until `rollout resume`; what is being changed now finishes."""
    asyncio.run(_steer(_deployments(objects, namespace), lambda tree: with_pause(tree, paused=True), "paused", "is paused already"))


@rollout.command("resume")
def resume(objects: Objects, namespace: options.Namespace = None) -> None:
    """Go on with a paused rollout."""
    asyncio.run(_steer(_deployments(objects, namespace), lambda tree: with_pause(tree, paused=False), "resumed", "was not paused"))


@rollout.command("restart")
def restart(objects: Objects, namespace: options.Namespace = None) -> None:
    """Replace every engine pod by a new one, within the budgets of a rollout."""
    now = timestamp(utc_now())
    asyncio.run(_steer(_deployments(objects, namespace), lambda tree: with_restart(tree, now), "restarted", "was restarted just now"))


@rollout.command("undo")
def undo(
    objects: Objects,
    namespace: options.Namespace = None,
    to: Annotated[
        int | None, typer.Option("--to-generation", help="The generation whose template to bring back; else the one before.")
    ] = None,
) -> None:
    """Bring an earlier template back, as a new generation."""
    asyncio.run(_undo(_deployments(objects, namespace), to))


def with_pause(tree: Tree, *, paused: bool) -> Tree:
    """Give a deployment's spec with its rollout held or let go."""
    spec: Tree = tree["spec"]
    before: Tree = spec.get("rollout") or {}
    if bool(before.get("paused")) is paused:
        return spec
    rest = {key: value for key, value in before.items() if key != "paused"}
    held = {**rest, "paused": True} if paused else rest
    return {**{key: value for key, value in spec.items() if key != "rollout"}, **({"rollout": held} if held else {})}


def with_restart(tree: Tree, at: str) -> Tree:
    """Give a deployment's spec with a mark on every pod template, so that all of them differ from what runs."""
    template = tree["spec"]["template"]
    engines = [{**engine, "members": [_marked(member, at) for member in engine["members"]]} for engine in template["spec"]["engines"]]
    return {**tree["spec"], "template": {**template, "spec": {**template["spec"], "engines": engines}}}


def with_template(tree: Tree, revisions: list[Tree], to: int | None) -> Tree:
    """Give a deployment's spec with the template of an earlier generation, the last one by default. Raises `Refused` if it is not kept."""
    kept = {int(revision["generation"]): revision["template"] for revision in revisions}
    wanted = to if to is not None else max(kept, default=None)
    if wanted is None or wanted not in kept:
        known = ", ".join(map(str, sorted(kept))) or "none"
        missing = f"the template of generation {to} is not kept" if to is not None else "there is no earlier template"
        raise Refused(f"ModelDeployment {tree['metadata']['name']}: {missing}", next_step=f"templates are kept of generations: {known}")
    return {**tree["spec"], "template": {**tree["spec"]["template"], "spec": kept[wanted]}}


def progress_of(tree: Tree) -> str:
    """Say in one line how far the present template has come, and what holds it."""
    counts: Tree = at_path(tree, ".status.rollout") or {}
    ready, total, made = (int(counts.get(field, 0)) for field in ("updatedReady", "total", "templateGeneration"))
    done = f"{ready} of {total} replicas Ready with the template of generation {made}"
    changing = int(counts.get("updated", 0)) - ready
    parts = [done, *([f"{changing} changing"] if changing else []), *(["paused"] if counts.get("paused") else [])]
    why = str(condition(tree, "Ready").get("message") or "") if condition(tree, "Ready").get("status") != "True" else ""
    return ", ".join(parts) + (f"; {why}" if why else "")


def is_done(tree: Tree) -> bool:
    """Tell whether every replica stands with the present template."""
    counts: Tree = at_path(tree, ".status.rollout") or {}
    return settled(tree, generation(tree)) and counts.get("updatedReady") == counts.get("total")


def _marked(member: Tree, at: str) -> Tree:
    template = member["template"]
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), RESTARTED_AT: at}
    return {**member, "template": {**template, "metadata": {**metadata, "annotations": annotations}}}


def _deployments(words: list[str], namespace: str | None) -> list[Target]:
    targets = objects_named(words, namespace)
    if other := next((wanted for wanted in targets if wanted.kind.kind != _ROLLED), None):
        raise Refused(f"{other.title} has no rollout", next_step=f"only a {_ROLLED} has one: `modelplane rollout status md/NAME`")
    return targets


async def _steer(targets: list[Target], new_spec: Callable[[Tree], Tree], done: str, already: str) -> None:
    async with control_plane(load_settings()) as plane:
        for wanted in targets:
            changed = await change(plane, wanted, new_spec)
            print(f"{wanted.label} {done if changed else already}", flush=True)


async def _undo(targets: list[Target], to: int | None) -> None:
    async with control_plane(load_settings()) as plane:
        for wanted in targets:
            revisions: list[Tree] = await plane.query(wanted, "revisions")
            changed = await change(plane, wanted, partial(with_template, revisions=revisions, to=to))
            print(f"{wanted.label} {'rolled back' if changed else 'has that template already'}", flush=True)


async def _status(targets: list[Target], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    async with control_plane(load_settings()) as plane:
        with Progress() as progress:
            while True:
                trees = {wanted: await _look(plane, wanted) for wanted in targets}
                progress.show([_row(wanted, tree) for wanted, tree in trees.items()])
                for wanted, tree in trees.items():
                    _give_up_if_refused(wanted, tree)
                waiting = {wanted: tree for wanted, tree in trees.items() if tree is None or not is_done(tree)}
                if not waiting:
                    break
                if time.monotonic() >= deadline:
                    raise _unfinished(waiting, seconds)
                await asyncio.sleep(_LOOK_EVERY_SECONDS)
        for wanted, tree in trees.items():
            print(f"{wanted.label} rolled out: {progress_of(tree or {})}", flush=True)


async def _look(plane: ControlPlane, wanted: Target) -> Tree | None:
    try:
        return await plane.describe(wanted)
    except NoAnswer:
        return None


def _row(wanted: Target, tree: Tree | None) -> Row:
    return Row(wanted.label, progress_of(tree) if tree else standing(None), tree is not None and is_done(tree))


def _give_up_if_refused(wanted: Target, tree: Tree | None) -> None:
    if tree and (why := refusal(tree)):
        raise CommandFailed(f"{wanted.title} was refused by its owner", details=why.splitlines(), next_step="mend it and apply it again")


def _unfinished(waiting: dict[Target, Tree | None], seconds: float) -> CommandFailed:
    details = [f"{wanted.title}: {progress_of(tree) if tree else standing(None)}" for wanted, tree in waiting.items()]
    wanted, tree = next(iter(waiting.items()))
    paused = bool(tree and at_path(tree, ".status.rollout.paused"))
    step = f"`modelplane rollout resume {wanted.command}` lets it go on" if paused else (advice(wanted, tree) if tree else "")
    when = f"after {seconds:g} s; the control plane goes on" if seconds else "yet"
    return TimedOut(
        f"not rolled out {when}", details=details, next_step=step or f"`modelplane describe {wanted.command}` shows all that is known"
    )
