"""`modelplane undelete`: take back a deletion that waits for users of the object."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import Keep
from api_types.messages.signals import EntitySignals
from client.commands import options
from client.configuration import load_settings
from client.errors import CommandFailed
from client.fleet.connection import fleet_objects
from client.fleet.objects import Objects
from client.follow.requests import (
    Requested,
    current_user,
    new_request_id,
    request_each,
    until_applied,
)
from client.refs.targets import Target, objects_named
from client.refs.tree import at_path, condition


def undelete(
    objects: Annotated[list[str], typer.Argument(help="Objects (`icl h100`, `icl/h100 mc/qwen`).")],
    namespace: options.Namespace = None,
) -> None:
    """Take back the deletion of an InferenceClass or a ModelCache that is in use.

    A deletion waits for the users of the object. Until the last one is gone, nothing is removed and
    the deletion can be taken back. This command needs Temporal.
    """
    asyncio.run(_undelete(objects_named(objects, namespace)))


async def _undelete(targets: list[Target]) -> None:
    async with fleet_objects(load_settings()) as plane:
        await request_each(targets, lambda target: request_keep(plane, target), lambda _: "is kept")


async def request_keep(plane: Objects, target: Target) -> Requested:
    """Request that an object is kept, and wait until that is applied.

    Raises `NotFound`, and `CommandFailed` when the teardown of the object has begun.
    """
    message = Keep(request_id=new_request_id(), by=current_user())
    temporal = plane.temporal("a deletion is taken back by the workflow")
    await temporal.signal(target, EntitySignals.KEEP, message)
    applied = await until_applied(plane, target, message.request_id)
    if applied.gone or (applied.tree and at_path(applied.tree, ".metadata.deletionTimestamp")):
        why = str(condition(applied.tree or {}, "Deleting").get("message") or "")
        raise CommandFailed(
            f"{target.title} cannot be kept: its teardown has begun",
            details=[why] if why else [],
            next_step=f"wait until it is gone (`modelplane delete {target.command} --wait`) and apply it again",
        )
    return applied
