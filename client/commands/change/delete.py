"""`modelplane delete`: delete objects, and wait until they are gone.

With `--force` it skips a teardown step that cannot finish, and lists the objects that
stay behind.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from api_types.messages.entities import Delete, Force
from api_types.messages.signals import EntitySignals
from api_types.resources.kinds import BY_KIND
from api_types.resources.secrets import DataManifest
from client.commands import options
from client.failures import combine
from client.follow.drain_check import EVICT, check_loss
from client.follow.left_behind import left_behind, print_left_behind
from client.follow.results import result_of, show_results
from client.follow.waiting import until_gone
from client.manifests.documents import admit_documents, read_documents
from client.manifests.secrets import STORED_ELSEWHERE, delete_secrets
from client.output.progress import Progress
from fleet_client.configuration import load_settings, require_temporal
from fleet_client.connection import fleet_objects
from fleet_client.errors import CommandFailed, NotFound, Refused
from fleet_client.lookup import find_objects
from fleet_client.objects import FleetObjects
from fleet_client.refs.selectors import ObjectSelection
from fleet_client.refs.targets import (
    DEFAULT_NAMESPACE,
    Target,
    kinds_and_names,
    objects_named,
    with_workflow,
)
from fleet_client.refs.tree import condition
from fleet_client.requests import Requested, current_user, new_request_id, until_applied
from fleet_client.temporal.control_plane import ControlPlane

_IN_USE, _OCCUPIED = "InUse", "Occupied"
_ALL_KINDS = "all"


@dataclass(frozen=True)
class DeleteOptions:
    """The options of one delete command, which apply to all its objects."""

    evict: bool = False
    allow_loss: bool = False
    purge_crds: bool = False
    force: Force | None = None
    ignore_not_found: bool = False

    @property
    def for_workflows(self) -> bool:
        """Whether only the workflow of an object can handle the request."""
        return self.evict or self.purge_crds or self.force is not None


def delete(
    *,
    objects: Annotated[
        list[str] | None,
        typer.Argument(
            help="Objects (`md qwen`, `md/qwen ic/oslo`), or kinds with -l, "
            "--field-selector or --all."
        ),
    ] = None,
    files: options.Files = None,
    namespace: options.Namespace = None,
    selector: options.Labels = None,
    field_selector: options.Fields = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Delete all objects of the named kinds in the namespace."
        ),
    ] = False,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
    ignore_not_found: Annotated[
        bool,
        typer.Option(
            "--ignore-not-found", help="Do not fail for an object that does not exist."
        ),
    ] = False,
    evict: Annotated[
        bool,
        typer.Option(
            "--evict", help="InferenceCluster: move its replicas elsewhere first."
        ),
    ] = False,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss",
            help=(
                "With --evict: also evict replicas that find no other place. Drain "
                "budgets still apply."
            ),
        ),
    ] = False,
    purge_crds: Annotated[
        bool,
        typer.Option(
            "--purge-crds",
            help=(
                "InferenceCluster: also delete the definitions that the charts of "
                "its stack leave, except those with objects."
            ),
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Skip the current teardown step; for a ModelReplica whose cluster is not "
            "connected, or whose InferenceCluster was deleted, all its steps on that "
            "cluster. Then wait for the other steps (as with --wait), and list the "
            "objects that stay behind.",
        ),
    ] = False,
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            help="With --force: skip the current `step`, or `all` remaining steps.",
        ),
    ] = "step",
    reason: Annotated[
        str,
        typer.Option(
            "--reason", help="With --force: the reason, which the events show."
        ),
    ] = "",
) -> None:
    """Delete objects in order.

    Each step of a teardown waits until its objects are gone. If one of the named
    objects does not exist, none is deleted. With --evict, nothing is deleted if a
    replica would find no other place: the command shows those replicas, and the exit
    code is 1, unless --allow-loss is given.

    For example:
      modelplane delete md/qwen ms/chat -n ml --wait   # wait until both are gone
      modelplane delete -f examples/quickstart.yaml    # the objects of a file
      modelplane delete md -n ml -l tier=trial         # those with a label
      modelplane delete md,ms -n ml --all              # all of these kinds
      modelplane delete md --field-selector metadata.name!=qwen
      modelplane delete ic/oslo --evict                # move its replicas elsewhere first
    """
    if bool(objects) == bool(files):
        raise Refused(
            "name either objects or files",
            next_step="`modelplane delete md/qwen`, or `modelplane delete -f FILE`",
        )
    chosen = _selection(objects, selector, field_selector, everything=everything)
    if allow_loss and not evict:
        raise Refused(
            "--allow-loss has no meaning without --evict",
            next_step="add --evict, or remove --allow-loss",
        )
    how = DeleteOptions(
        evict=evict,
        allow_loss=allow_loss,
        purge_crds=purge_crds,
        force=_force(scope, reason) if force else None,
        ignore_not_found=ignore_not_found,
    )
    asyncio.run(
        _delete(objects, files, namespace, chosen, how, wait=wait, seconds=timeout)
    )


def _selection(
    objects: Sequence[str] | None,
    labels: str | None,
    fields: str | None,
    *,
    everything: bool,
) -> ObjectSelection | None:
    """Return what to delete of whole kinds, or None for objects with names.

    Raise `Refused`, also for selectors without content.
    """
    for option, example, text in (
        ("-l", "app=chat", labels),
        ("--field-selector", "metadata.name!=qwen", fields),
    ):
        if text is not None and not text.strip():
            # `get` takes an empty selector to mean all objects. Here it is more likely
            # an unset variable of a script.
            raise Refused(
                f"{option} is empty",
                next_step=f"select the objects to delete, such as `{option} {example}`",
            )
    wanted = kinds_and_names(objects) if objects else []
    for kind, name in wanted:
        with_workflow(kind, name)
    if everything and (labels or fields or any(name for _, name in wanted)):
        raise Refused(
            "--all cannot be combined with names or selectors",
            next_step="`modelplane delete md --all -n NAMESPACE` deletes all of a kind",
        )
    if (everything or labels or fields) and not wanted:
        raise Refused(
            "selectors and --all have no meaning without a kind",
            next_step="name the kinds, such as `modelplane delete md,ms --all`",
        )
    if everything and _ALL_KINDS in (objects or ()):
        raise Refused(
            "`delete all --all` would delete the whole fleet, clusters included",
            next_step="name the kinds, such as `modelplane delete md,ms --all`",
        )
    chosen = ObjectSelection.parse(wanted, labels, fields)
    if everything or labels or fields:
        return chosen
    nameless = next((kind for kind, name in wanted if name is None), None)
    if nameless:
        raise Refused(
            f"which {nameless.kind}?",
            next_step=f"write `{nameless.short}/NAME`, or select with -l, "
            "--field-selector or --all",
        )
    return None


async def _delete(
    objects: Sequence[str] | None,
    files: Sequence[str] | None,
    namespace: str | None,
    selection: ObjectSelection | None,
    how: DeleteOptions,
    *,
    wait: bool,
    seconds: float,
) -> None:
    settings = load_settings()
    targets, stored = _from_files(files, namespace) if files else ([], [])
    failures: list[CommandFailed] = []
    if stored:
        require_temporal(STORED_ELSEWHERE)
    if how.for_workflows:
        require_temporal(
            "--evict, --purge-crds and --force are requests to the workflow of "
            "an object; `delete` without them works through the front"
        )
    if targets or not files:
        async with fleet_objects(settings) as plane:
            if not files:
                targets = await _selected(plane, objects or (), namespace, selection)
                if selection is None:
                    await _require_existing(plane, targets, how)
            if how.evict:
                await _check_loss(
                    plane.temporal("an eviction is planned first"), targets, how
                )
            deleting, failures = await _request_deletions(plane, targets, how)
            if deleting and how.force:
                await _follow_forced(
                    plane.temporal(
                        "only the workflow knows the objects that a forced teardown left behind"
                    ),
                    deleting,
                    seconds,
                )
            elif deleting and wait:
                with Progress() as progress:
                    await until_gone(plane, deleting, seconds, progress)
                for target in deleting:
                    await print_left_behind(plane, target)
    failures += await delete_secrets(
        settings, stored, ignore_not_found=how.ignore_not_found
    )
    if failures:
        raise combine(failures)


async def _selected(
    plane: FleetObjects,
    words: Sequence[str],
    namespace: str | None,
    selection: ObjectSelection | None,
) -> list[Target]:
    if selection is None:
        return objects_named(words, namespace)
    scope = namespace or DEFAULT_NAMESPACE
    found = await find_objects(plane, kinds_and_names(words), scope, selection)
    if found.hidden:
        raise combine(found.hidden)
    if not found.objects:
        print("No resources found", file=sys.stderr)
    return [one.target for one in found.objects]


async def _require_existing(
    plane: FleetObjects, targets: Sequence[Target], how: DeleteOptions
) -> None:
    """Check all objects before deleting the first.

    Raise `NotFound`, `Unreachable` or `Refused`.
    """
    for target in targets:
        _check_options(target, how)
    if len(targets) == 1 or how.ignore_not_found:
        return  # sending the request shows whether the object exists
    missing = [target.title for target in targets if not await plane.exists(target)]
    if missing:
        raise NotFound(
            "some objects do not exist; nothing was sent",
            details=missing,
            next_step="correct their names, or add --ignore-not-found to delete the others",
        )


async def _check_loss(
    plane: ControlPlane, targets: Sequence[Target], how: DeleteOptions
) -> None:
    """Check which replicas an eviction would lose, before anything is sent.

    Raise `CommandFailed`, `NotFound` or `NoAnswer`.
    """
    for target in targets:
        _check_options(target, how)
    there = [
        target
        for target in targets
        if not how.ignore_not_found or await plane.exists(target)
    ]
    await check_loss(plane, there, EVICT, allow_loss=how.allow_loss)


async def _request_deletions(
    plane: FleetObjects, targets: Sequence[Target], how: DeleteOptions
) -> tuple[list[Target], list[CommandFailed]]:
    """Send all requests in order, then wait until they are applied.

    Return the objects that are being deleted, and the failures.
    """
    sent = [await result_of(request_deletion(plane, target, how)) for target in targets]
    wanted = [one for one in sent if isinstance(one, Requested)]
    results = await asyncio.gather(
        *(until_applied(plane, one.target, one.request_id) for one in wanted)
    )
    show_results(results, lambda _: "deletion requested")
    for one in results:
        warn_in_use(one)
    return [one.target for one in wanted], [
        one for one in sent if isinstance(one, CommandFailed)
    ]


def warn_in_use(requested: Requested) -> None:
    """Print a warning if the deletion waits for users of the object."""
    held = condition(requested.tree or {}, "Deleting")
    reason, target = held.get("reason"), requested.target
    if reason in (_IN_USE, _OCCUPIED):
        why = f"{target.label} is deleted when it is no longer used: {held.get('message')}"
        print(f"warning: {why}", file=sys.stderr, flush=True)
    if reason == _IN_USE:
        keep = f"`modelplane undelete {target.command}`"
        print(f"next: to keep it, {keep}", file=sys.stderr, flush=True)


async def request_deletion(
    plane: FleetObjects, target: Target, how: DeleteOptions
) -> Requested | None:
    """Request the deletion of one object.

    Return None if it does not exist and `how` allows that. Raise `NotFound`, `Refused`
    or `Unreachable`.
    """
    _check_options(target, how)
    message = Delete(
        request_id=new_request_id(),
        by=current_user(),
        evict=how.evict,
        purge_crds=how.purge_crds,
    )
    try:
        await plane.delete(target, message)
    except NotFound:
        if how.ignore_not_found:
            return None
        raise
    if how.force:
        with suppress(NotFound):  # the object was gone before a step could be skipped
            forced = plane.temporal("only the workflow can skip a step")
            await forced.signal(
                target,
                EntitySignals.FORCE,
                how.force.model_copy(update={"request_id": new_request_id()}),
            )
    return Requested(target, message.request_id)


def _check_options(target: Target, how: DeleteOptions) -> None:
    if how.evict and target.kind.kind != "InferenceCluster":
        raise Refused(
            f"--evict has no meaning for {target.title}",
            next_step="it moves the replicas of an InferenceCluster elsewhere",
        )
    if how.purge_crds and target.kind.kind != "InferenceCluster":
        raise Refused(
            f"--purge-crds has no meaning for {target.title}",
            next_step="it deletes definitions from an InferenceCluster's cluster",
        )


async def _follow_forced(
    plane: ControlPlane, deleting: Sequence[Target], seconds: float
) -> None:
    """Wait until all objects are gone, and list what they left behind.

    The list is printed after a timeout too. Raise `TimedOut`.
    """
    try:
        with Progress() as progress:
            await until_gone(plane, deleting, seconds, progress)
    finally:
        for target in deleting:
            tree = await plane.last_state(target)
            print(target.label, "\n".join(left_behind(tree)), flush=True)


def _from_files(
    files: Sequence[str], namespace: str | None
) -> tuple[list[Target], list[DataManifest]]:
    """Return the objects of the files in reverse order, and the stored manifests.

    A stored manifest is a Secret or ConfigMap, which is in the secret store.
    """
    manifests = [
        one.manifest
        for one in reversed(admit_documents(read_documents(files), namespace))
    ]
    stored = [m for m in manifests if isinstance(m, DataManifest)]
    kinds = [
        (with_workflow(BY_KIND[m.kind], m.metadata.name), m.metadata)
        for m in manifests
        if m.kind in BY_KIND
    ]
    targets = [
        Target.of(kind, metadata.namespace, metadata.name) for kind, metadata in kinds
    ]
    return targets, stored


def _force(scope: str, reason: str) -> Force:
    if not reason:
        raise Refused(
            "--force needs --reason TEXT",
            next_step="say why the step is skipped; it is recorded in the events of the object",
        )
    if scope not in {"step", "all"}:
        raise Refused(
            f"--scope must be step or all, got {scope!r}",
            next_step="`step` skips the current step, `all` skips all remaining steps",
        )
    chosen: Literal["step", "all"] = "all" if scope == "all" else "step"
    return Force(by=current_user(), scope=chosen, reason=reason)
