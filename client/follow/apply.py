"""Applying manifests: every object by signal-with-start `set_spec`, Secrets and ConfigMaps to the secret store and never to Temporal."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from api_types.messages.entities import SetSpec
from api_types.resources.kinds import BY_KIND
from api_types.resources.secrets import Stored
from api_types.validation.manifests import InvalidManifest, Manifest, admit_update, dump, load, update_warnings
from client.errors import CommandFailed, Conflict, Refused, combine
from client.follow.edit import deleted_meanwhile
from client.follow.fleet_warnings import warnings_of
from client.follow.requests import current_user, new_request_id, until_applied
from client.follow.waiting import Goal, until_ready
from client.manifests.secrets import store_secrets
from client.output.progress import Progress
from client.refs.targets import Target
from client.refs.tree import Tree, deleting, generation, refusal
from client.temporal.control_plane import ControlPlane

Outcome = Literal["created", "configured", "unchanged"]
_USER_METADATA = ("labels", "annotations")


@dataclass(frozen=True)
class AppliedObject:
    """The result of applying one manifest."""

    target: Target
    outcome: Outcome
    tree: Tree


async def apply_manifests(plane: ControlPlane, manifests: Sequence[Manifest]) -> list[AppliedObject]:
    """Send manifests in order of their kinds, objects of one kind concurrently, and print the outcome of each."""
    for warning in await warnings_of(plane, manifests):
        print(f"warning: {warning}", file=sys.stderr)
    applied: list[AppliedObject] = []
    failures: list[CommandFailed] = []
    await store_secrets([manifest for manifest in manifests if isinstance(manifest, Stored)], plane.settings)
    for kind in dict.fromkeys(manifest.kind for manifest in manifests if manifest.kind in BY_KIND):
        group = [manifest for manifest in manifests if manifest.kind == kind]
        for result in await asyncio.gather(*(_send(plane, manifest) for manifest in group)):
            if isinstance(result, CommandFailed):
                failures.append(result)
                continue
            print(f"{result.target.label} {result.outcome}", flush=True)
            applied.append(result)
    if failures:
        raise combine(failures)
    return applied


async def until_applied_are_ready(plane: ControlPlane, applied: Sequence[AppliedObject], seconds: float) -> list[Tree]:
    """Wait, showing progress, until everything that was applied is Ready at its new generation."""
    with Progress() as progress:
        return await until_ready(plane, [Goal(one.target, generation(one.tree)) for one in applied], seconds, progress)


async def _send(plane: ControlPlane, manifest: Manifest) -> AppliedObject | CommandFailed:
    target = Target.of(BY_KIND[manifest.kind], manifest.metadata.namespace, manifest.metadata.name)
    try:
        return await _set_spec(plane, target, manifest)
    except CommandFailed as failure:
        return failure


async def _set_spec(plane: ControlPlane, target: Target, manifest: Manifest) -> AppliedObject:
    before = await plane.find(target)
    if before is not None:
        _check_change(target, before, manifest)
    request = SetSpec(request_id=new_request_id(), by=current_user(), manifest=dump(manifest))
    await plane.set_spec(target, request)
    after = await until_applied(plane, target, request.request_id)
    if after is None or deleting(after):
        raise deleted_meanwhile(target)
    if why := refusal(after):
        raise Refused(
            f"{target.title} was refused by the control plane", details=why.splitlines(), next_step="fix the manifest and apply it again"
        )
    return AppliedObject(target, _outcome(before, after), after)


def _check_change(target: Target, before: Tree, manifest: Manifest) -> None:
    """Raise `Conflict` or `Refused` for a change that cannot be made, and print warnings about one that can."""
    if deleting(before):
        raise Conflict(f"{target.title} is being deleted", next_step=f"wait for the end with `modelplane delete {target.command} --wait`")
    if not before.get("spec"):
        return  # every spec so far was refused, and this one may be the first that is not
    old = load(before)
    try:
        admit_update(old, manifest)
    except InvalidManifest as refused:
        raise Refused(
            f"{target.title} cannot be changed in this way; nothing was sent for it",
            details=[str(problem) for problem in refused.problems],
            next_step="delete the object and create it again, or leave these fields as they are",
        ) from refused
    for warning in update_warnings(old, manifest):
        print(f"warning: {warning}", file=sys.stderr)


def _outcome(before: Tree | None, after: Tree) -> Outcome:
    if before is None:
        return "created"
    return "unchanged" if _user_fields(before) == _user_fields(after) else "configured"


def _user_fields(tree: Tree) -> object:
    metadata = tree.get("metadata") or {}
    return [tree.get("spec"), *(metadata.get(key) or {} for key in _USER_METADATA)]
