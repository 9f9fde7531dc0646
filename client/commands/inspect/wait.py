"""`modelplane wait`: wait for a condition, a value, the creation or the end of objects."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from client.commands import options
from client.follow.left_behind import print_left_behind
from client.follow.waiting import status_line
from client.output.formats import shown
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import NoAnswer, NotFound, Refused, TimedOut
from fleet_client.lookup import find_objects
from fleet_client.objects import FleetObjects
from fleet_client.refs.selectors import ObjectSelection
from fleet_client.refs.targets import DEFAULT_NAMESPACE, Target, kinds_and_names
from fleet_client.refs.tree import Tree, clean, condition, generation

_POLL_SECONDS = 0.5
_CONDITION, _JSONPATH = "condition=", "jsonpath="

Reached = Callable[[Tree | None], bool]
"""Return whether an object, None if it does not exist, is as wanted."""


def wait(
    *,
    objects: Annotated[
        list[str],
        typer.Argument(help="Objects (`md/qwen ic/oslo`), or a kind with -l or --all."),
    ],
    wanted: Annotated[
        str,
        typer.Option(
            "--for",
            help=(
                "`condition=TYPE[=STATUS]`, `jsonpath={PATH}[=VALUE]`, `create` or `delete`."
            ),
        ),
    ],
    namespace: options.Namespace = None,
    selector: options.Labels = None,
    every: Annotated[
        bool, typer.Option("--all", help="All objects of the kind in the namespace.")
    ] = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Wait until objects have a condition or a value, exist, or are gone.

    For example:
      modelplane wait md/qwen --for=condition=Ready --timeout=10m
      modelplane wait ic --all --for=delete
      modelplane wait md/qwen --for=jsonpath='{.status.phase}'=Ready
    """
    selected = selector if selector or not every else ""
    which = _Words(objects, namespace, selected)
    asyncio.run(_wait(which, _goal(wanted), wanted, timeout))


class _Words(NamedTuple):
    """The arguments that select objects. `selector` None selects only named ones."""

    words: Sequence[str]
    namespace: str | None
    selector: str | None


def _goal(text: str) -> Reached:
    if text == "delete":
        return lambda tree: tree is None
    if text == "create":
        return lambda tree: tree is not None
    if text.startswith(_CONDITION):
        kind, _, status = text.removeprefix(_CONDITION).partition("=")
        return lambda tree: tree is not None and _has(tree, kind, status or "True")
    if text.startswith(_JSONPATH):
        path, brace, rest = text.removeprefix(_JSONPATH).rpartition("}")
        if brace and rest[:1] in ("", "="):
            return _value_at(path + brace, rest[1:] if rest else None)
    raise Refused(
        f"--for={text} names nothing to wait for",
        next_step=(
            "use condition=Ready, condition=Ready=False, create, delete, or "
            "jsonpath='{.status.phase}'=Ready"
        ),
    )


def _has(tree: Tree, kind: str, status: str) -> bool:
    """Return whether a condition has a status that is about the present generation."""
    found = condition(tree, kind)
    seen = int(found.get("observedGeneration") or generation(tree))
    return str(
        found.get("status", "")
    ).lower() == status.lower() and seen >= generation(tree)


def _value_at(path: str, value: str | None) -> Reached:
    from client.output.jsonpath import path_of  # noqa: PLC0415 - slow to import

    find = path_of(path)

    def reached(tree: Tree | None) -> bool:
        values = [shown(each) for each in find(clean(tree))] if tree else []
        return bool(values) if value is None else values == [value]

    return reached


async def _wait(which: _Words, reached: Reached, wanted: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    async with fleet_objects(load_settings()) as plane:
        left = await _targets(plane, which)
        while True:
            seen = await asyncio.gather(*(_look(plane, each) for each in left))
            done = [
                (target, tree)
                for target, (answered, tree) in zip(left, seen, strict=True)
                if answered and reached(tree)
            ]
            for target, tree in done:
                print(f"{target.label} condition met", flush=True)
                if tree is None:
                    await print_left_behind(plane, target)
            trees = dict(zip(left, seen, strict=True))
            left = [target for target in left if target not in dict(done)]
            if not left:
                return
            if time.monotonic() >= deadline:
                raise TimedOut(
                    f"after {seconds:g} s there is no {wanted} yet",
                    details=[
                        f"{target.title}: {_state(*trees[target])}" for target in left
                    ],
                    next_step=f"`modelplane describe {left[0].command}` shows the details",
                )
            await asyncio.sleep(_POLL_SECONDS)


async def _targets(plane: FleetObjects, which: _Words) -> list[Target]:
    words, namespace, selector = which
    found = kinds_and_names(words)
    named = [
        Target.of(kind, namespace, name) for kind, name in found if name is not None
    ]
    kinds = [(kind, None) for kind, name in found if name is None]
    if kinds and selector is None:
        raise Refused(
            f"which {kinds[0][0].kind}?",
            next_step=f"write `{kinds[0][0].short}/NAME`, or select with -l or --all",
        )
    if not kinds:
        return named
    scope = namespace or DEFAULT_NAMESPACE
    selection = ObjectSelection.parse(found, selector)
    listed = await find_objects(plane, kinds, scope, selection)
    if not listed.objects:
        raise NotFound(
            f"no {kinds[0][0].kind} is selected",
            next_step=f"`modelplane get {kinds[0][0].short} -A --show-labels` lists them",
        )
    return [*named, *(one.target for one in listed.objects)]


async def _look(plane: FleetObjects, target: Target) -> tuple[bool, Tree | None]:
    """Return whether the object's worker answered, and the object if it exists."""
    try:
        return True, await plane.find(target)
    except NoAnswer:
        return False, None


def _state(answered: bool, tree: Tree | None) -> str:
    if answered and tree is None:
        return "it does not exist"
    return status_line(tree)
