"""`modelplane ui`: the page of an object, or of all workflows, in the Temporal UI."""

import asyncio
import sys
import webbrowser
from typing import Annotated

import typer

from client.commands import options
from client.configuration import load_settings
from client.refs.targets import objects_named
from client.temporal.control_plane import control_plane
from client.temporal.execution import execution_of
from client.temporal.links import list_link


def ui(
    objects: Annotated[list[str] | None, typer.Argument(help="Objects; without any, the list of all workflows.")] = None,
    namespace: options.Namespace = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser, if this is a terminal.")] = True,
) -> None:
    """Print the address in the Temporal UI and open it."""
    for link in asyncio.run(_links(objects, namespace)) if objects else [list_link(load_settings())]:
        print(link)
        if open_browser and sys.stdout.isatty():
            webbrowser.open(link)


async def _links(objects: list[str], namespace: str | None) -> list[str]:
    targets = objects_named(objects, namespace)
    async with control_plane(load_settings()) as plane:
        for target in targets:
            await plane.describe(target)  # no link to an object that does not exist
        return [(await execution_of(plane, target)).link for target in targets]
