"""`modelplane retry`: try at once what waits for its next attempt, for instance after its cause was mended."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import RetryNow
from api_types.messages.signals import EntitySignals
from client.commands import options
from client.configuration import load_settings
from client.errors import CommandFailed, together
from client.follow.requests import who
from client.refs.targets import Target, objects_named
from client.temporal.control_plane import control_plane


def retry(
    objects: Annotated[list[str], typer.Argument(help="Objects (`md qwen`, `md/qwen ic/oslo`).")],
    namespace: options.Namespace = None,
) -> None:
    """Ask the owners of objects to try again now instead of after their next pause."""
    asyncio.run(_retry(objects_named(objects, namespace)))


async def _retry(targets: list[Target]) -> None:
    failures: list[CommandFailed] = []
    async with control_plane(load_settings()) as plane:
        for wanted in targets:
            try:
                await plane.signal(wanted, EntitySignals.RETRY_NOW, RetryNow(by=who()))
            except CommandFailed as failure:
                failures.append(failure)
                continue
            print(f"{wanted.label} retry ordered", flush=True)
    if failures:
        raise together(failures)
