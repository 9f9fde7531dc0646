"""`modelplane apply`: documents to models, strictly, then signal-with-start `set_spec`.

Everything is checked before anything is sent. Secrets and ConfigMaps go to the secret store and never to Temporal.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from api_types.messages.entities import SetSpec
from api_types.resources.kinds import BY_KIND, KINDS
from api_types.resources.secrets import Stored
from api_types.settings import Settings
from api_types.validation.manifests import InvalidManifest, Manifest, admit_update, dump, load, update_warnings
from client.commands import options
from client.configuration import load_settings
from client.errors import CommandFailed, Conflict, Refused, together
from client.follow.requests import new_request_id, until_taken, who
from client.follow.waiting import Goal, until_ready
from client.manifests.documents import admit_documents, read_documents, warn
from client.manifests.secrets import put_away
from client.output.progress import Progress
from client.refs.targets import Target, served_kinds, target
from client.refs.tree import Tree, deleting, generation, refusal
from client.temporal.control_plane import ControlPlane, control_plane
from workflows.served import SERVED

Outcome = Literal["created", "configured", "unchanged"]
_OF_A_USER = ("labels", "annotations")


@dataclass(frozen=True)
class AppliedObject:
    """What became of one manifest."""

    target: Target
    outcome: Outcome
    tree: Tree


def apply(
    *,
    files: options.Files = None,
    namespace: options.Namespace = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Create or change objects from manifests. A v1 Secret or ConfigMap goes to the secret store."""
    manifests = read_manifests(files, namespace)
    asyncio.run(_apply(load_settings(), manifests, wait=wait, seconds=timeout))


def read_manifests(files: Sequence[str] | None, namespace: str | None) -> list[Manifest]:
    """Read, check and order what is to be applied. Raises `Refused` with everything that is wrong."""
    admitted = admit_documents(read_documents(files), namespace)
    warn(admitted)
    manifests = [one.manifest for one in admitted]
    problems = [problem for problem in map(_not_for_apply, manifests) if problem]
    if problems:
        raise Refused(
            "these objects cannot be applied; nothing was sent", details=problems, next_step="leave them out, or see what is said above"
        )
    order = {info.kind: at for at, info in enumerate(KINDS)}
    return sorted(manifests, key=lambda manifest: order.get(manifest.kind, -1))


async def apply_manifests(plane: ControlPlane, manifests: Sequence[Manifest]) -> list[AppliedObject]:
    """Send manifests in order of their kinds, objects of one kind side by side, and print what became of each."""
    applied: list[AppliedObject] = []
    failures: list[CommandFailed] = []
    await put_away([manifest for manifest in manifests if isinstance(manifest, Stored)], plane.settings)
    for kind in dict.fromkeys(manifest.kind for manifest in manifests if manifest.kind in BY_KIND):
        group = [manifest for manifest in manifests if manifest.kind == kind]
        for result in await asyncio.gather(*(_send(plane, manifest) for manifest in group)):
            if isinstance(result, CommandFailed):
                failures.append(result)
                continue
            print(f"{result.target.label} {result.outcome}", flush=True)
            applied.append(result)
    if failures:
        raise together(failures)
    return applied


async def wait_for(plane: ControlPlane, applied: Sequence[AppliedObject], seconds: float) -> list[Tree]:
    """Wait until everything that was applied is Ready at its new generation."""
    with Progress() as progress:
        return await until_ready(plane, [Goal(one.target, generation(one.tree)) for one in applied], seconds, progress)


async def _apply(settings: Settings, manifests: Sequence[Manifest], *, wait: bool, seconds: float) -> None:
    if all(isinstance(manifest, Stored) for manifest in manifests):
        await put_away(manifests, settings)
        return
    async with control_plane(settings) as plane:
        applied = await apply_manifests(plane, manifests)
        if wait:
            await wait_for(plane, applied, seconds)


async def _send(plane: ControlPlane, manifest: Manifest) -> AppliedObject | CommandFailed:
    wanted = target(BY_KIND[manifest.kind], manifest.metadata.namespace, manifest.metadata.name)
    try:
        return await _set_spec(plane, wanted, manifest)
    except CommandFailed as failure:
        return failure


async def _set_spec(plane: ControlPlane, wanted: Target, manifest: Manifest) -> AppliedObject:
    before = await plane.find(wanted)
    if before is not None:
        _check_change(wanted, before, manifest)
    order = SetSpec(request_id=new_request_id(), by=who(), manifest=dump(manifest))
    await plane.set_spec(wanted, order)
    after = await until_taken(plane, wanted, order.request_id)
    if after is None or deleting(after):
        raise Conflict(f"{wanted.title} was deleted meanwhile", next_step="apply it again once it is gone")
    if why := refusal(after):
        raise Refused(
            f"{wanted.title} was refused by its owner", details=why.splitlines(), next_step="mend the manifest and apply it again"
        )
    return AppliedObject(wanted, _outcome(before, after), after)


def _check_change(wanted: Target, before: Tree, manifest: Manifest) -> None:
    if deleting(before):
        raise Conflict(f"{wanted.title} is being deleted", next_step=f"wait for the end with `modelplane delete {wanted.command} --wait`")
    if not before.get("spec"):
        return  # it was born with a bad spec, and this one may be its first good one
    old = load(before)
    try:
        admit_update(old, manifest)
    except InvalidManifest as refused:
        raise Refused(
            f"{wanted.title} cannot be changed like that; nothing was sent for it",
            details=[str(problem) for problem in refused.problems],
            next_step="delete it and create it anew, or leave these fields as they are",
        ) from refused
    for warning in update_warnings(old, manifest):
        print(f"warning: {warning}", file=sys.stderr)


def _outcome(before: Tree | None, after: Tree) -> Outcome:
    if before is None:
        return "created"
    return "unchanged" if _written(before) == _written(after) else "configured"


def _written(tree: Tree) -> object:
    metadata = tree.get("metadata") or {}
    return [tree.get("spec"), *(metadata.get(key) or {} for key in _OF_A_USER)]


def _not_for_apply(manifest: Manifest) -> str:
    info = BY_KIND.get(manifest.kind)
    if info is None:
        return ""
    title = f"{manifest.kind} {manifest.metadata.name}"
    if not info.user_may_apply:
        return f"{title}: written by the control plane; write a {info.written_instead} instead"
    if info.kind not in SERVED:
        return f"{title}: not served by this release, which serves {', '.join(served_kinds())}"
    return ""
