"""`modelplane rollout`: status, history, pause, resume, restart and undo.

All of them except `status` and `history` change the spec of the deployment, so its
manifest shows the request. The scheduler decides when each replica changes.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from api_types.clock import timestamp, utc_now
from api_types.labels import RESTARTED_AT
from client.commands import options
from client.follow.edit import change, raise_without_spec
from client.follow.results import request_each
from client.follow.rollout_progress import progress_of, until_rolled_out
from client.output.formats import as_yaml
from client.output.progress import Progress
from client.output.tables import columns
from fleet_client.advice import rollout_advice
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target, objects_named
from fleet_client.refs.tree import Tree, at_path, generation
from fleet_client.requests import Requested, until_answered

_KIND = "ModelDeployment"

rollout = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show and control the rollout of a changed template.",
)

Objects = Annotated[
    list[str], typer.Argument(help="Deployments: `md/qwen`, or `md qwen`.")
]


@rollout.command("status")
def status(
    objects: Objects,
    namespace: options.Namespace = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch/--no-watch", "-w", help="Wait until the rollout is done."
        ),
    ] = True,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Show the progress of the rollout.

    Exit code 5 if it is not done in time, or, with --no-watch, not done now.

    For example:
      modelplane rollout status md/qwen
      modelplane rollout status md/qwen --no-watch
    """
    asyncio.run(_status(_deployments(objects, namespace), timeout if watch else 0.0))


@rollout.command("pause")
def pause(objects: Objects, namespace: options.Namespace = None) -> None:
    """Change no further replica until `rollout resume`; changes under way finish.

    For example:
      modelplane rollout pause md/qwen
    """
    asyncio.run(
        _change_each(
            _deployments(objects, namespace),
            lambda tree: with_pause(tree, paused=True),
            "paused",
            "is paused already",
        )
    )


@rollout.command("resume")
def resume(objects: Objects, namespace: options.Namespace = None) -> None:
    """Resume a paused rollout.

    For example:
      modelplane rollout resume md/qwen
    """
    asyncio.run(
        _change_each(
            _deployments(objects, namespace),
            lambda tree: with_pause(tree, paused=False),
            "resumed",
            "was not paused",
        )
    )


@rollout.command("restart")
def restart(objects: Objects, namespace: options.Namespace = None) -> None:
    """Replace every engine pod by a new one, within the budgets of a rollout.

    For example:
      modelplane rollout restart md/qwen -n ml
    """
    now = timestamp(utc_now())
    asyncio.run(
        _change_each(
            _deployments(objects, namespace),
            lambda tree: with_restart(tree, now),
            "restarted",
            "was restarted just now",
        )
    )


@rollout.command("history")
def history(
    objects: Objects,
    namespace: options.Namespace = None,
    revision: Annotated[
        int | None,
        typer.Option(
            "--revision",
            help="Print the template of this revision.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the present template and the earlier ones that `rollout undo` can restore.

    A revision is the generation of the deployment that introduced the template.

    For example:
      modelplane rollout history md/qwen -n ml
      modelplane rollout history md/qwen --revision 3
    """
    asyncio.run(_history(_deployments(objects, namespace), revision))


@rollout.command("undo")
def undo(
    objects: Objects,
    namespace: options.Namespace = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--to-generation",
            "--to-revision",
            help="The generation whose template is restored; default: the previous one.",
        ),
    ] = None,
) -> None:
    """Restore an earlier template, as a new generation.

    For example:
      modelplane rollout undo md/qwen
      modelplane rollout undo md/qwen --to-revision 3
    """
    asyncio.run(_undo(_deployments(objects, namespace), to))


def with_pause(tree: Tree, *, paused: bool) -> Tree:
    """Return a deployment's spec with its rollout paused or resumed."""
    spec: Tree = tree["spec"]
    before: Tree = spec.get("rollout") or {}
    if bool(before.get("paused")) is paused:
        return spec
    rest = {key: value for key, value in before.items() if key != "paused"}
    after = {**rest, "paused": True} if paused else rest
    changed = {key: value for key, value in spec.items() if key != "rollout"}
    if after:
        changed["rollout"] = after
    return changed


def with_restart(tree: Tree, at: str) -> Tree:
    """Return a deployment's spec with a new annotation on every pod template.

    The annotation makes all pods differ from the running ones.
    """
    template = tree["spec"]["template"]
    engines = [
        {**engine, "members": [_annotated(member, at) for member in engine["members"]]}
        for engine in template["spec"]["engines"]
    ]
    return {
        **tree["spec"],
        "template": {**template, "spec": {**template["spec"], "engines": engines}},
    }


def with_template(tree: Tree, revisions: Sequence[Tree], to: int | None) -> Tree:
    """Return a deployment's spec with an earlier template, by default the last one.

    Raise `Refused` if the template of that generation is not stored.
    """
    stored = {
        int(revision["generation"]): revision["template"] for revision in revisions
    }
    wanted = to if to is not None else max(stored, default=None)
    if wanted is None or wanted not in stored:
        known = ", ".join(map(str, sorted(stored))) or "none"
        missing = (
            f"the template of generation {to} is not stored"
            if to is not None
            else "there is no earlier template"
        )
        raise Refused(
            f"ModelDeployment {tree['metadata']['name']}: {missing}",
            next_step=f"generations with a stored template: {known}",
        )
    return {
        **tree["spec"],
        "template": {**tree["spec"]["template"], "spec": stored[wanted]},
    }


def _annotated(member: Tree, at: str) -> Tree:
    template = member["template"]
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), RESTARTED_AT: at}
    return {
        **member,
        "template": {**template, "metadata": {**metadata, "annotations": annotations}},
    }


def _deployments(words: list[str], namespace: str | None) -> list[Target]:
    targets = objects_named(words, namespace)
    for target in targets:
        if target.kind.kind != _KIND:
            raise Refused(
                f"{target.title} has no rollout",
                next_step=f"only a {_KIND} has one: `modelplane rollout status md/NAME`",
            )
    return targets


async def _change_each(
    targets: list[Target], new_spec: Callable[[Tree], Tree], done: str, already: str
) -> None:
    async with fleet_objects(load_settings()) as plane:
        await request_each(
            targets,
            lambda target: change(plane, target, new_spec),
            lambda one: done if one.request_id else already,
        )


async def _undo(targets: list[Target], to: int | None) -> None:
    async with fleet_objects(load_settings()) as plane:
        await request_each(
            targets,
            lambda target: roll_back(plane, target, to),
            lambda one: (
                "rolled back" if one.request_id else "has that template already"
            ),
        )


async def _history(targets: list[Target], revision: int | None) -> None:
    async with fleet_objects(load_settings()) as plane:
        for at, target in enumerate(targets):
            tree = await until_answered(partial(plane.describe, target))
            raise_without_spec(target, tree)
            earlier = await until_answered(partial(plane.revisions, target))
            lines = (
                history_lines(tree, earlier)
                if revision is None
                else [as_yaml(_template_of(target, tree, earlier, revision))]
            )
            print("\n".join([*([""] if at else []), target.title, *lines]), flush=True)


def history_lines(tree: Tree, earlier: Sequence[Tree]) -> list[str]:
    """Return the table of a deployment's revisions, the present one last."""
    rows = [
        [
            str(each["generation"]),
            str(each.get("replaced") or ""),
            images_of(each["template"]),
        ]
        for each in sorted(earlier, key=lambda each: int(each["generation"]))
    ]
    present = images_of(tree["spec"]["template"]["spec"])
    rows.append([str(_present_revision(tree)), "present", present])
    return columns(["REVISION", "REPLACED", "IMAGES"], rows)


def images_of(template: Tree) -> str:
    """Return the images of the containers of a template, each once."""
    found = [
        str(container.get("image") or "")
        for engine in _mappings(template, ".engines")
        for member in _mappings(engine, ".members")
        for container in _mappings(member, ".template.spec.containers")
    ]
    return ", ".join(dict.fromkeys(filter(None, found)))


def _mappings(tree: Tree, path: str) -> list[Tree]:
    """Return the mappings in a list. The content of a stored template is not checked."""
    rows = at_path(tree, path)
    return (
        [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    )


def _present_revision(tree: Tree) -> int:
    """Return the generation of the template, or of the spec before it was observed."""
    seen = at_path(tree, ".status.rollout.templateGeneration")
    return int(seen or generation(tree))


def _template_of(
    target: Target, tree: Tree, earlier: Sequence[Tree], revision: int
) -> Tree:
    stored = {int(each["generation"]): each["template"] for each in earlier}
    stored[_present_revision(tree)] = tree["spec"]["template"]["spec"]
    if revision not in stored:
        raise Refused(
            f"{target.title} has no stored revision {revision}",
            next_step=f"name one of: {', '.join(map(str, sorted(stored)))}",
        )
    found: Tree = stored[revision]
    return found


async def roll_back(plane: FleetObjects, target: Target, to: int | None) -> Requested:
    """Restore the template of an earlier generation. Raise the errors of `change`."""
    revisions = await until_answered(lambda: plane.revisions(target))
    return await change(
        plane, target, partial(with_template, revisions=revisions, to=to)
    )


async def _status(targets: list[Target], seconds: float) -> None:
    async with fleet_objects(load_settings()) as plane:
        with Progress() as progress:
            trees = await until_rolled_out(plane, targets, seconds, progress)
        for target, tree in trees.items():
            print(f"{target.label} rolled out: {progress_of(tree)}", flush=True)
            if next_step := rollout_advice(target, tree):
                print(next_step, flush=True)
