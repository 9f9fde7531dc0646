"""`modelplane get`: lists and single objects, as tables or in a machine-readable form."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from client.asking.service import way_from_here
from client.commands import options
from client.configuration import load_settings
from client.errors import Refused, combine, report
from client.fleet.connection import fleet_objects
from client.fleet.lookup import KindsAndNames, find_objects
from client.output.columns import Layout
from client.output.formats import Format
from client.output.printer import ResourcePrinter, warn_hidden, warn_unanswered
from client.refs.selectors import Selector, parse_selector
from client.refs.targets import DEFAULT_NAMESPACE, kinds_and_names
from client.temporal.control_plane import ListedObject

_POLL_SECONDS = 1.0


def get(
    *,
    objects: Annotated[list[str], typer.Argument(help="A kind (`md`, `ic,icl`, `all`), or objects (`md qwen`, `md/qwen ic/oslo`).")],
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    selector: options.Labels = None,
    output: options.Output = Format.TABLE,
    watch: options.Watch = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="Add a column with the labels.")] = False,
) -> None:
    """List objects, or show some of them."""
    wanted = kinds_and_names(objects)
    if all_namespaces and any(name for _, name in wanted):
        raise Refused("a name cannot be looked up in all namespaces", next_step="give its namespace with -n instead of -A")
    scope = None if all_namespaces else (namespace or DEFAULT_NAMESPACE)
    layout = Layout(
        namespaces=all_namespaces, wide=output == Format.WIDE, labels=show_labels, kinds=len({kind.kind for kind, _ in wanted}) > 1
    )
    printer = ResourcePrinter(output, layout, single=len(wanted) == 1 and wanted[0][1] is not None)
    for_people = output in {Format.TABLE, Format.WIDE}
    asyncio.run(_get(wanted, scope, parse_selector(selector), printer, watch=watch, for_people=for_people))


async def _get(
    wanted: KindsAndNames, scope: str | None, selector: Selector, printer: ResourcePrinter, *, watch: bool, for_people: bool
) -> None:
    async with fleet_objects(load_settings()) as plane:
        found, missing, hidden = await find_objects(plane, wanted, scope, selector)
        if found:
            printer.print_all(found)
        elif not missing:
            print("No resources found" + (f" in namespace {scope}." if scope else "."), file=sys.stderr)
        warn_unanswered(found)
        warn_hidden(hidden)
        if for_people:
            _say_way(found)
        if missing and not watch:
            raise combine(missing)
        for failure in missing:
            print(report(failure), file=sys.stderr)
        while watch:
            await asyncio.sleep(_POLL_SECONDS)
            printer.print_changes((await find_objects(plane, wanted, scope, selector)).objects)


def _say_way(found: Sequence[ListedObject]) -> None:
    """Say on standard error how this machine reaches a service, if it is none that its address reaches; one line for all."""
    services = (one for one in found if one.target.kind.kind == "ModelService")
    if way := next((way for one in services if (way := way_from_here(one.target, one.tree))), ""):
        print(f"note: {way}", file=sys.stderr)
