"""`modelplane delete`: order a teardown, follow it to its end, or give up a step that cannot be done and say what that leaves behind."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

import typer

from api_types.messages.entities import Delete, Force
from api_types.messages.signals import EntitySignals
from api_types.resources.kinds import BY_KIND
from api_types.resources.secrets import Stored
from client.commands import options
from client.commands.inspect.get import look
from client.configuration import load_settings
from client.errors import CommandFailed, NotFound, Refused, together
from client.follow.requests import new_request_id, who
from client.follow.waiting import until_gone
from client.manifests.documents import admit_documents, read_documents
from client.manifests.secrets import forget
from client.output.progress import Progress
from client.output.tables import NONE, columns
from client.refs.selectors import parse_selector
from client.refs.targets import DEFAULT_NAMESPACE, Target, kinds_and_names, objects_named, target
from client.refs.tree import Tree
from client.temporal.control_plane import ControlPlane, control_plane

_LEFT = ("location", "kind", "namespace", "name", "reason")
_LEFT_TITLES = ["WHERE", "KIND", "NAMESPACE", "NAME", "WHY"]


def delete(
    *,
    objects: Annotated[list[str] | None, typer.Argument(help="Objects (`md qwen`, `md/qwen ic/oslo`), or a kind with -l.")] = None,
    files: options.Files = None,
    namespace: options.Namespace = None,
    selector: options.Labels = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
    ignore_not_found: Annotated[bool, typer.Option("--ignore-not-found", help="It is no error if an object does not exist.")] = False,
    evict: Annotated[bool, typer.Option("--evict", help="InferenceCluster: move its replicas elsewhere first.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Give up the teardown step now waited for, follow the rest to its end (as with --wait), and list what stays behind.",
        ),
    ] = False,
    scope: Annotated[str, typer.Option("--scope", help="With --force: `step`, or `all` steps that are left.")] = "step",
    reason: Annotated[str, typer.Option("--reason", help="With --force: why; kept in the events.")] = "",
) -> None:
    """Delete objects in order: each step of a teardown waits until the thing is really gone."""
    if bool(objects) == bool(files):
        raise Refused(
            "name objects or files, not both and not neither", next_step="`modelplane delete md/qwen`, or `modelplane delete -f FILE`"
        )
    orders = Orders(evict=evict, force=_force(scope, reason) if force else None, ignore_not_found=ignore_not_found)
    asyncio.run(_delete(objects, files, namespace, selector, orders, wait=wait, seconds=timeout))


class Orders:
    """How deletion is asked for, the same for every object of one command."""

    def __init__(self, *, evict: bool, force: Force | None, ignore_not_found: bool) -> None:
        self.evict = evict
        self.force = force
        self.ignore_not_found = ignore_not_found

    async def give(self, plane: ControlPlane, wanted: Target) -> bool:
        """Order the teardown of one object; False if it does not exist and need not. Raises `NotFound`, `Refused`, `Unreachable`."""
        if self.evict and wanted.kind.kind != "InferenceCluster":
            raise Refused(f"--evict makes no sense for {wanted.title}", next_step="it moves the replicas of an InferenceCluster elsewhere")
        try:
            await plane.signal(wanted, EntitySignals.DELETE, Delete(request_id=new_request_id(), by=who(), evict=self.evict))
        except NotFound:
            if self.ignore_not_found:
                return False
            raise
        if self.force:
            with suppress(NotFound):  # it ended by itself before there was anything to give up
                await plane.signal(wanted, EntitySignals.FORCE, self.force.model_copy(update={"request_id": new_request_id()}))
        return True


async def _delete(
    objects: Sequence[str] | None,
    files: Sequence[str] | None,
    namespace: str | None,
    selector: str | None,
    orders: Orders,
    *,
    wait: bool,
    seconds: float,
) -> None:
    settings = load_settings()
    targets, stored = _from_files(files, namespace) if files else ([], [])
    failures: list[CommandFailed] = []
    if targets or not files:
        async with control_plane(settings) as plane:
            if not files:
                targets = await _chosen(plane, objects or (), namespace, selector)
            ordered, failures = await _order(plane, targets, orders)
            if ordered and orders.force:
                await _follow_forced(plane, ordered, seconds)
            elif ordered and wait:
                with Progress() as progress:
                    await until_gone(plane, ordered, seconds, progress)
    failures += await forget(settings, stored, ignore_not_found=orders.ignore_not_found)
    if failures:
        raise together(failures)


async def _chosen(plane: ControlPlane, words: Sequence[str], namespace: str | None, selector: str | None) -> list[Target]:
    if not selector:
        return objects_named(words, namespace)
    found, _ = await look(plane, kinds_and_names(words), namespace or DEFAULT_NAMESPACE, parse_selector(selector))
    return [seen.target for seen in found]


async def _order(plane: ControlPlane, targets: Sequence[Target], orders: Orders) -> tuple[list[Target], list[CommandFailed]]:
    ordered: list[Target] = []
    failures: list[CommandFailed] = []
    for wanted in targets:
        try:
            if await orders.give(plane, wanted):
                ordered.append(wanted)
                print(f"{wanted.label} deletion ordered", flush=True)
        except CommandFailed as failure:
            failures.append(failure)
    return ordered, failures


async def _follow_forced(plane: ControlPlane, ordered: Sequence[Target], seconds: float) -> None:
    """Wait until all are gone and list what they left, also if that is not the end of it. Raises `TimedOut`."""
    try:
        with Progress() as progress:
            await until_gone(plane, ordered, seconds, progress)
    finally:
        for wanted in ordered:
            print(f"{wanted.label} " + "\n".join(left_behind(await plane.last_words(wanted))), flush=True)


def left_behind(tree: Tree | None) -> list[str]:
    """Say what a teardown left, by cluster."""
    if tree is None:
        return ["may have left objects behind: no worker answers for it"]
    left = sorted((tree.get("status") or {}).get("leftBehind") or (), key=lambda item: tuple(str(item.get(field, "")) for field in _LEFT))
    if not left:
        return ["left nothing behind"]
    rows = [[str(item.get(field) or NONE) for field in _LEFT] for item in left]
    return [f"left {len(left)} object{'s' if len(left) > 1 else ''} behind:", *(f"  {line}" for line in columns(_LEFT_TITLES, rows))]


def _from_files(files: Sequence[str], namespace: str | None) -> tuple[list[Target], list[tuple[str, str, str]]]:
    """Give the objects of the files, the last of the file first, and (kind, namespace, name) of what lies in the secret store."""
    manifests = [one.manifest for one in reversed(admit_documents(read_documents(files), namespace))]
    stored = [(m.kind, m.metadata.namespace, m.metadata.name) for m in manifests if isinstance(m, Stored)]
    targets = [target(BY_KIND[m.kind], m.metadata.namespace, m.metadata.name) for m in manifests if m.kind in BY_KIND]
    return targets, stored


def _force(scope: str, reason: str) -> Force:
    if not reason:
        raise Refused("--force needs --reason TEXT", next_step="say why the step is given up; it is kept in the events of the object")
    if scope not in {"step", "all"}:
        raise Refused(
            f"--scope must be step or all, got {scope!r}", next_step="`step` gives up what is waited for now, `all` whatever is left"
        )
    chosen: Literal["step", "all"] = "all" if scope == "all" else "step"
    return Force(by=who(), scope=chosen, reason=reason)
