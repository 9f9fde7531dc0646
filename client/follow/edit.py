"""Changing an existing object: read it, change its manifest, send all of it, and wait until it is applied or refused."""

from collections.abc import Callable

from api_types.messages.entities import SetSpec
from api_types.messages.signals import EntitySignals
from client.errors import Conflict, Refused
from client.follow.requests import current_user, new_request_id, until_applied
from client.refs.targets import Target
from client.refs.tree import Tree, deleting, refusal
from client.temporal.control_plane import ControlPlane

_KEPT = ("name", "namespace", "labels", "annotations")


def _as_manifest(tree: Tree, spec: Tree) -> Tree:
    """Give a described object as the manifest that a user would apply, with another spec."""
    metadata = {key: tree["metadata"][key] for key in _KEPT if tree["metadata"].get(key)}
    return {"apiVersion": tree["apiVersion"], "kind": tree["kind"], "metadata": metadata, "spec": spec}


def raise_without_spec(target: Target, tree: Tree) -> None:
    """Raise `Refused` for an object that has nothing to change: every spec so far was refused."""
    if not tree.get("spec"):
        raise Refused(
            f"{target.title} has no valid spec yet", details=refusal(tree).splitlines(), next_step="fix its manifest and apply it again"
        )


def deleted_meanwhile(target: Target) -> Conflict:
    """Make the error for an object that was deleted while a request for it was under way."""
    return Conflict(f"{target.title} was deleted meanwhile", next_step="apply its manifest again once it is gone")


async def change(plane: ControlPlane, target: Target, new_spec: Callable[[Tree], Tree]) -> Tree | None:
    """Send an object with another spec and give it as applied; None if nothing changes.

    `new_spec` takes the described object. Raises `NotFound`, `Conflict`, `Refused`, `NoAnswer`, and whatever `new_spec` raises.
    """
    tree = await plane.describe(target)
    if deleting(tree):
        raise Conflict(f"{target.title} is being deleted", next_step=f"see what it waits for: `modelplane describe {target.command}`")
    raise_without_spec(target, tree)
    spec = new_spec(tree)
    if spec == tree["spec"]:
        return None
    request = SetSpec(request_id=new_request_id(), by=current_user(), manifest=_as_manifest(tree, spec))
    await plane.signal(target, EntitySignals.SET_SPEC, request)
    after = await until_applied(plane, target, request.request_id)
    if after is None or deleting(after):
        raise deleted_meanwhile(target)
    if why := refusal(after).splitlines():
        raise Refused(f"{target.title} was refused by the control plane", details=why, next_step="fix its manifest and apply it again")
    return after
