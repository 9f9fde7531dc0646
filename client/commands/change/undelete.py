"""`modelplane undelete`: cancel a deletion that waits for users of the object."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import Keep
from api_types.messages.signals import EntitySignals
from client.commands import options
from client.follow.results import request_each
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import CommandFailed
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target, objects_named
from fleet_client.refs.tree import at_path, condition
from fleet_client.requests import Requested, current_user, new_request_id, until_applied


def undelete(
    objects: Annotated[
        list[str], typer.Argument(help="Objects (`icl h100`, `icl/h100 mc/qwen`).")
    ],
    namespace: options.Namespace = None,
) -> None:
    """Cancel the deletion of an InferenceClass or a ModelCache that is in use.

    A deletion waits for the users of the object. Until the last one is gone, nothing is
    removed and the deletion can be cancelled. This command needs Temporal.

    For example:
      modelplane undelete icl/h100
    """
    asyncio.run(_undelete(objects_named(objects, namespace)))


async def _undelete(targets: list[Target]) -> None:
    async with fleet_objects(load_settings()) as plane:
        await request_each(
            targets, lambda target: request_keep(plane, target), lambda _: "is kept"
        )


async def request_keep(plane: FleetObjects, target: Target) -> Requested:
    """Send the request and wait until it is applied.

    Raise `NotFound`, and `CommandFailed` if the teardown of the object has begun.
    """
    message = Keep(request_id=new_request_id(), by=current_user())
    temporal = plane.temporal("only the workflow can cancel a deletion")
    await temporal.signal(target, EntitySignals.KEEP, message)
    applied = await until_applied(plane, target, message.request_id)
    if applied.gone or (
        applied.tree and at_path(applied.tree, ".metadata.deletionTimestamp")
    ):
        why = str(condition(applied.tree or {}, "Deleting").get("message") or "")
        raise CommandFailed(
            f"{target.title} cannot be kept: its teardown has begun",
            details=[why] if why else [],
            next_step=(
                f"wait until it is gone (`modelplane delete {target.command} "
                "--wait`) and apply it again"
            ),
        )
    return applied
