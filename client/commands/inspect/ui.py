"""`modelplane ui`: the page of an object, or of all workflows, in the Temporal UI."""

import asyncio
import sys
import webbrowser
from collections.abc import Sequence
from typing import Annotated

import typer

from client.commands import options
from client.configuration import load_settings
from client.refs.targets import objects_named
from client.temporal.control_plane import control_plane, not_found
from client.temporal.links import list_link


def ui(
    objects: Annotated[list[str] | None, typer.Argument(help="Objects; without any, the list of all workflows.")] = None,
    namespace: options.Namespace = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser, if this is a terminal.")] = True,
) -> None:
    """Print the address in the Temporal UI and open it."""
    for link in asyncio.run(_links(objects or (), namespace)):
        print(link)
        if open_browser and sys.stdout.isatty():
            webbrowser.open(link)


async def _links(objects: Sequence[str], namespace: str | None) -> list[str]:
    settings = load_settings()
    targets = objects_named(objects, namespace) if objects else []
    async with control_plane(settings, "it is what the page is of") as plane:  # no link to a Temporal that does not answer
        for target in targets:
            # Nor to an object that does not exist; a worker is not asked: its page is what shows why none answers.
            if not await plane.exists(target):
                raise not_found(target)
        return [(await plane.execution(target)).link for target in targets] or [list_link(settings)]
