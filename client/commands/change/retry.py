"""`modelplane retry`: retry now what waits for its next attempt, for instance after its cause was fixed."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import RetryNow
from client.commands import options
from client.configuration import load_settings
from client.fleet.connection import fleet_objects
from client.fleet.objects import Objects
from client.follow.requests import Requested, current_user, new_request_id, request_each, until_applied
from client.refs.targets import Target, objects_named


def retry(
    objects: Annotated[list[str], typer.Argument(help="Objects (`md qwen`, `md/qwen ic/oslo`).")],
    namespace: options.Namespace = None,
) -> None:
    """Retry failed steps of objects now instead of after their backoff."""
    asyncio.run(_retry(objects_named(objects, namespace)))


async def _retry(targets: list[Target]) -> None:
    async with fleet_objects(load_settings()) as plane:
        await request_each(targets, lambda target: request_retry(plane, target), lambda _: "retry requested")


async def request_retry(plane: Objects, target: Target) -> Requested:
    """Request the retry and wait until it is applied. Raises `NotFound`."""
    message = RetryNow(request_id=new_request_id(), by=current_user())
    await plane.retry(target, message)
    return await until_applied(plane, target, message.request_id)
