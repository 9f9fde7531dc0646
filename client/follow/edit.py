"""Changes an existing object.

The steps are: read the object, change its spec, send it, and wait for the result.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from api_types.messages.entities import SetSpec
from api_types.validation.manifests import is_taken_while_deleting, load
from fleet_client.errors import Modified, NotFound, Refused, WriteConflict
from fleet_client.lookup import with_nearest
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, deleting, refusal
from fleet_client.requests import (
    Requested,
    current_user,
    new_request_id,
    until_answered,
    until_applied,
)

# Pauses before the object is read again after a concurrent change. A front learns of
# such a change within a second.
_PAUSES = (0.3, 0.6, 1.0, 1.5)
_KEPT = ("name", "namespace", "labels", "annotations")


async def change(
    plane: FleetObjects,
    target: Target,
    new_spec: Callable[[Tree], Tree],
    *,
    reason: str = "",
) -> Requested:
    """Send an object with another spec.

    `new_spec` receives the described object, and is called again after a concurrent
    change. Raise the errors of `change_manifest` and of `new_spec`.
    """
    return await change_manifest(
        plane,
        target,
        lambda tree: {**as_manifest(tree), "spec": new_spec(tree)},
        reason=reason,
    )


async def change_manifest(
    plane: FleetObjects,
    target: Target,
    edit: Callable[[Tree], Tree],
    *,
    reason: str = "",
) -> Requested:
    """Send an object with another manifest.

    If the manifest is the same, send nothing, and return a result without a request id.
    `edit` receives the described object, which only a worker can provide, and returns
    a manifest. It is called again after a concurrent change. Raise `NotFound`,
    `WriteConflict`, `Refused`, `NoAnswer` and the errors of `edit`.
    """
    for pause in _PAUSES:
        with suppress(Modified):
            return await _change(plane, target, edit, reason)
        await asyncio.sleep(pause)
    return await _change(plane, target, edit, reason)


async def _change(
    plane: FleetObjects, target: Target, edit: Callable[[Tree], Tree], reason: str
) -> Requested:
    try:
        tree = await until_answered(lambda: plane.describe(target))
    except NotFound as failure:
        raise await with_nearest(plane, target, failure) from failure
    leaving = deleting(tree)
    if leaving and not tree.get("spec"):
        raise being_deleted(target)
    raise_without_spec(target, tree)
    manifest = edit(tree)
    if leaving and not _takes_while_deleting(tree, manifest):
        raise being_deleted(target)
    if manifest == as_manifest(tree):
        return Requested(target, "", tree)
    request = SetSpec(
        request_id=new_request_id(),
        by=current_user(),
        manifest=manifest,
        reason=reason,
    )
    await plane.change_spec(target, request, tree)
    requested = await until_applied(plane, target, request.request_id)
    if (
        leaving
        and requested.tree
        and not _takes_while_deleting(requested.tree, manifest)
    ):
        return requested  # the deletion has the option
    return raise_if_not_accepted(requested)


def _takes_while_deleting(tree: Tree, manifest: Tree) -> bool:
    """Return whether a manifest changes only options of the deletion of an object."""
    try:
        return is_taken_while_deleting(load(as_manifest(tree)), load(manifest))
    except ValueError:
        return False  # the form of the object is unknown here


def raise_if_not_accepted(requested: Requested) -> Requested:
    """Return a request for a new spec if the spec was accepted.

    Raise `WriteConflict` if the object is gone or being deleted, `Refused` if the spec
    was refused.
    """
    raise_if_deleted(requested)
    if requested.tree and (why := refusal(requested.tree).splitlines()):
        raise Refused(
            f"{requested.target.title} was refused by the control plane",
            details=why,
            next_step="fix its manifest and apply it again",
        )
    return requested


def raise_if_deleted(requested: Requested) -> None:
    """Raise `WriteConflict` if the object of a request is gone or being deleted."""
    if requested.gone:
        raise WriteConflict(
            f"{requested.target.title} was deleted meanwhile",
            next_step="apply its manifest again",
        )
    if requested.tree and deleting(requested.tree):
        raise being_deleted(requested.target)


def being_deleted(target: Target) -> WriteConflict:
    """Return the error for a change of an object that is being deleted."""
    return WriteConflict(
        f"{target.title} is being deleted",
        next_step=f"wait for the end with `modelplane delete {target.command} --wait`",
    )


def raise_without_spec(target: Target, tree: Tree) -> None:
    """Raise `Refused` for an object without a spec: every spec so far was refused."""
    if not tree.get("spec"):
        raise Refused(
            f"{target.title} has no valid spec yet",
            details=refusal(tree).splitlines(),
            next_step="fix its manifest and apply it again",
        )


def as_manifest(tree: Tree) -> Tree:
    """Return a described object as a manifest.

    The annotation with the owners of its fields stays, because the front needs it.
    """
    metadata = {
        key: tree["metadata"][key] for key in _KEPT if tree["metadata"].get(key)
    }
    return {
        "apiVersion": tree["apiVersion"],
        "kind": tree["kind"],
        "metadata": metadata,
        "spec": tree["spec"],
    }
