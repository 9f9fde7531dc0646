"""Changing an existing object: read it, change its manifest, send all of it, and wait until it is applied or refused."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from api_types.messages.entities import SetSpec
from client.errors import Conflict, Modified, Refused
from client.fleet.objects import Objects
from client.follow.requests import Requested, current_user, new_request_id, until_answered, until_applied
from client.refs.targets import Target
from client.refs.tree import Tree, deleting, refusal

# Before an object is read again that was changed while it was being changed here: a front learns of that within a second.
_PAUSES = (0.3, 0.6, 1.0, 1.5)
_KEPT = ("name", "namespace", "labels", "annotations")


async def change(plane: Objects, target: Target, new_spec: Callable[[Tree], Tree], *, reason: str = "") -> Requested:
    """Send an object with another spec; where nothing changes nothing is sent, and the request has no id.

    `new_spec` takes the described object, which only a worker can give; it may be called again where the object was changed meanwhile.
    Raises `NotFound`, `Conflict`, `Refused`, `NoAnswer`, and whatever `new_spec` raises.
    """
    for pause in _PAUSES:
        with suppress(Modified):
            return await _change(plane, target, new_spec, reason)
        await asyncio.sleep(pause)
    return await _change(plane, target, new_spec, reason)


async def _change(plane: Objects, target: Target, new_spec: Callable[[Tree], Tree], reason: str) -> Requested:
    tree = await until_answered(lambda: plane.describe(target))
    if deleting(tree):
        raise being_deleted(target)
    raise_without_spec(target, tree)
    spec = new_spec(tree)
    if spec == tree["spec"]:
        return Requested(target, "", tree)
    request = SetSpec(request_id=new_request_id(), by=current_user(), manifest=_as_manifest(tree, spec), reason=reason)
    await plane.change_spec(target, request, tree)
    return raise_if_not_accepted(await until_applied(plane, target, request.request_id))


def raise_if_not_accepted(requested: Requested) -> Requested:
    """Give a request for a new spec back. Raises `Conflict` if its object goes or is gone, `Refused` if the spec was refused."""
    raise_if_deleted(requested)
    if requested.tree and (why := refusal(requested.tree).splitlines()):
        raise Refused(
            f"{requested.target.title} was refused by the control plane", details=why, next_step="fix its manifest and apply it again"
        )
    return requested


def raise_if_deleted(requested: Requested) -> None:
    """Raise `Conflict` for a request whose object is gone, or is being deleted: it changed nothing."""
    if requested.gone:
        raise Conflict(f"{requested.target.title} was deleted meanwhile", next_step="apply its manifest again")
    if requested.tree and deleting(requested.tree):
        raise being_deleted(requested.target)


def being_deleted(target: Target) -> Conflict:
    """Make the error for a change of an object that is being deleted."""
    return Conflict(f"{target.title} is being deleted", next_step=f"wait for the end with `modelplane delete {target.command} --wait`")


def raise_without_spec(target: Target, tree: Tree) -> None:
    """Raise `Refused` for an object that has nothing to change: every spec so far was refused."""
    if not tree.get("spec"):
        raise Refused(
            f"{target.title} has no valid spec yet", details=refusal(tree).splitlines(), next_step="fix its manifest and apply it again"
        )


def _as_manifest(tree: Tree, spec: Tree) -> Tree:
    """Give a described object as the manifest that a user would apply, with another spec."""
    metadata = {key: tree["metadata"][key] for key in _KEPT if tree["metadata"].get(key)}
    return {"apiVersion": tree["apiVersion"], "kind": tree["kind"], "metadata": metadata, "spec": spec}
