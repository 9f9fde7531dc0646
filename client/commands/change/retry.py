"""`modelplane retry`: retry now what waits for its next attempt, for instance after its cause was fixed."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import RetryNow
from api_types.messages.signals import EntitySignals
from client.commands import options
from client.configuration import load_settings
from client.errors import CommandFailed, combine
from client.follow.requests import current_user
from client.refs.targets import Target, objects_named
from client.temporal.control_plane import control_plane


def retry(
    objects: Annotated[list[str], typer.Argument(help="Objects (`md qwen`, `md/qwen ic/oslo`).")],
    namespace: options.Namespace = None,
) -> None:
    """Retry failed steps of objects now instead of after their backoff."""
    asyncio.run(_retry(objects_named(objects, namespace)))


async def _retry(targets: list[Target]) -> None:
    failures: list[CommandFailed] = []
    async with control_plane(load_settings()) as plane:
        for target in targets:
            try:
                await plane.signal(target, EntitySignals.RETRY_NOW, RetryNow(by=current_user()))
            except CommandFailed as failure:
                failures.append(failure)
                continue
            print(f"{target.label} retry requested", flush=True)
    if failures:
        raise combine(failures)
