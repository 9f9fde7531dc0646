"""`modelplane ui`: the page of an object, or of all workflows, in the Temporal UI."""

import asyncio
import sys
import webbrowser
from collections.abc import Sequence
from typing import Annotated

import typer

from client.commands import options
from fleet_client.configuration import load_settings
from fleet_client.refs.seen import not_found
from fleet_client.refs.targets import objects_named
from fleet_client.temporal.control_plane import control_plane
from fleet_client.temporal.links import list_link


def ui(
    objects: Annotated[
        list[str] | None,
        typer.Argument(help="Objects; without any, the list of all workflows."),
    ] = None,
    namespace: options.Namespace = None,
    open_browser: Annotated[
        bool,
        typer.Option("--open/--no-open", help="Open a browser, if this is a terminal."),
    ] = True,
) -> None:
    """Print the address in the Temporal UI and open it.

    For example:
      modelplane ui
      modelplane ui md/qwen --no-open
    """
    for link in asyncio.run(_links(objects or (), namespace)):
        print(link)
        if open_browser and sys.stdout.isatty():
            webbrowser.open(link)


async def _links(objects: Sequence[str], namespace: str | None) -> list[str]:
    settings = load_settings()
    targets = objects_named(objects, namespace) if objects else []
    async with control_plane(
        settings, "the page belongs to its UI"
    ) as plane:  # a Temporal server that does not answer has no UI to link to
        for target in targets:
            # Do not print a link to a missing object either. No worker is queried,
            # because the page shows why none answers.
            if not await plane.exists(target):
                raise not_found(target)
        return [(await plane.execution(target)).link for target in targets] or [
            list_link(settings)
        ]
