"""`modelplane get`: lists and single objects, as tables or in a machine-readable form.

Its imports wait until it runs, so that its help is fast.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from client.commands import options
from fleet_client.errors import Refused

if TYPE_CHECKING:
    from client.output.chosen import OutputChoice
    from client.output.printer import ResourcePrinter
    from fleet_client.lookup import KindsAndNames, LookupResult
    from fleet_client.objects import FleetObjects
    from fleet_client.refs.seen import ListedObject
    from fleet_client.refs.selectors import ObjectSelection

_POLL_SECONDS = 1.0


def get(
    *,
    objects: Annotated[
        list[str],
        typer.Argument(
            help="A kind (`md`, `ic,icl`, `all`), or objects (`md qwen`, `md/qwen ic/oslo`)."
        ),
    ],
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    selector: options.Labels = None,
    field_selector: options.Fields = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="<table|wide|yaml|json|name|jsonpath=…|custom-columns=…>",
            help="Output format.",
        ),
    ] = "table",
    sort_by: Annotated[
        str | None,
        typer.Option(
            "--sort-by",
            help="Sort by the value at a JSONPath, such as `.metadata.creationTimestamp`.",
            show_default=False,
        ),
    ] = None,
    no_headers: Annotated[
        bool, typer.Option("--no-headers", help="Print tables without their titles.")
    ] = False,
    watch: options.Watch = False,
    show_labels: Annotated[
        bool, typer.Option("--show-labels", help="Add a column with the labels.")
    ] = False,
) -> None:
    """List objects, or show some of them.

    For example:
      modelplane get md                                # the deployments of `default`
      modelplane get md,ms -A -o wide                  # in all namespaces, with messages
      modelplane get md/qwen -n ml -o yaml             # one object
      modelplane get ic -l tier=gold --sort-by .metadata.creationTimestamp
      modelplane get mr --field-selector metadata.name!=qwen-0
      modelplane get md/qwen -o jsonpath='{.status.phase}'
      modelplane get md -o custom-columns=NAME:.metadata.name,WANTED:.spec.replicas
      modelplane get md --watch                        # print changes until Ctrl-C
    """
    # ruff: noqa: PLC0415 - see above
    from client.output.chosen import OutputChoice, sorted_by
    from client.output.columns import TableLayout
    from client.output.printer import ResourcePrinter
    from fleet_client.refs.selectors import ObjectSelection
    from fleet_client.refs.targets import DEFAULT_NAMESPACE, kinds_and_names

    wanted = kinds_and_names(objects)
    if all_namespaces and any(name for _, name in wanted):
        raise Refused(
            "an object with a name is in one namespace",
            next_step="name it with -n instead of -A",
        )
    chosen = OutputChoice.parse(output)
    scope = None if all_namespaces else (namespace or DEFAULT_NAMESPACE)
    layout = TableLayout(
        namespaces=all_namespaces,
        wide=chosen.format == "wide",
        labels=show_labels,
        titles=not no_headers,
        kinds=len({kind.kind for kind, _ in wanted}) > 1,
    )
    printer = ResourcePrinter(
        chosen, layout, single=len(wanted) == 1 and wanted[0][1] is not None
    )
    selection = ObjectSelection.parse(wanted, selector, field_selector)
    asyncio.run(
        _get(
            ObjectSearch(wanted, scope, selection, sorted_by(sort_by)),
            printer,
            watch=watch,
            chosen=chosen,
        )
    )


class ObjectSearch(NamedTuple):
    """What to find, and in which order to print it."""

    wanted: "KindsAndNames"
    namespace: str | None
    selection: "ObjectSelection"
    order: "Callable[[Sequence[ListedObject]], Sequence[ListedObject]]"

    async def run(self, plane: "FleetObjects") -> "LookupResult":
        from fleet_client.lookup import find_objects

        found = await find_objects(plane, self.wanted, self.namespace, self.selection)
        return found._replace(objects=list(self.order(found.objects)))


async def _get(
    search: ObjectSearch,
    printer: "ResourcePrinter",
    *,
    watch: bool,
    chosen: "OutputChoice",
) -> None:
    from client.failures import combine, report
    from client.output.printer import warn_hidden, warn_unanswered
    from fleet_client.configuration import load_settings
    from fleet_client.connection import fleet_objects

    async with fleet_objects(load_settings()) as plane:
        found, missing, hidden = await search.run(plane)
        if found or (chosen.shows_empty_list and not missing):
            printer.print_all(found)
        elif not missing:
            print(
                "No resources found"
                + (f" in namespace {search.namespace}." if search.namespace else "."),
                file=sys.stderr,
            )
        warn_unanswered(found)
        warn_hidden(hidden)
        if chosen.is_table:
            _say_way(found)
        if missing and not watch:
            raise combine(missing)
        for failure in missing:
            print(report(failure), file=sys.stderr)
        while watch:
            await asyncio.sleep(_POLL_SECONDS)
            printer.print_changes((await search.run(plane)).objects)


def _say_way(found: "Sequence[ListedObject]") -> None:
    """Print at most one note about how this machine reaches a local service."""
    from client.asking.service import way_from_here

    for one in found:
        if one.target.kind.kind != "ModelService":
            continue
        if note := way_from_here(one.target, one.tree):
            print(f"note: {note}", file=sys.stderr)
            return
