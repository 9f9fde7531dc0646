"""`modelplane retry`: run failed steps again without waiting for their next attempt."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import RetryNow
from client.commands import options
from client.follow.results import request_each
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target, objects_named
from fleet_client.requests import Requested, current_user, new_request_id, until_applied


def retry(
    objects: Annotated[
        list[str], typer.Argument(help="Objects (`md qwen`, `md/qwen ic/oslo`).")
    ],
    namespace: options.Namespace = None,
) -> None:
    """Retry failed steps of objects now instead of after their backoff.

    For example:
      modelplane retry md/qwen ic/oslo
    """
    asyncio.run(_retry(objects_named(objects, namespace)))


async def _retry(targets: list[Target]) -> None:
    async with fleet_objects(load_settings()) as plane:
        await request_each(
            targets,
            lambda target: request_retry(plane, target),
            lambda _: "retry requested",
        )


async def request_retry(plane: FleetObjects, target: Target) -> Requested:
    """Request a retry and wait until the workflow has accepted it. Raise `NotFound`."""
    message = RetryNow(request_id=new_request_id(), by=current_user())
    await plane.retry(target, message)
    return await until_applied(plane, target, message.request_id)
