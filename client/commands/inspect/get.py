"""`modelplane get`: lists and single objects, as tables or for machines."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from api_types.clock import utc_now
from api_types.resources.kinds import KindInfo
from client.commands import options
from client.configuration import load_settings
from client.errors import NotFound, Refused, report, together
from client.output.columns import MARK, Layout, header, row
from client.output.formats import Format, render
from client.output.tables import columns, measure
from client.refs.selectors import Selector, parse_selector
from client.refs.targets import DEFAULT_NAMESPACE, kinds_and_names, target
from client.refs.tree import at_path, labels
from client.temporal.control_plane import ControlPlane, ListedObject, control_plane

_LOOK_EVERY_SECONDS = 1.0

Wanted = Sequence[tuple[KindInfo, str | None]]


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
    asyncio.run(_get(wanted, scope, parse_selector(selector), Screen(output, layout, single=_is_single(wanted)), watch=watch))


class Screen:
    """Prints objects in one form, and on later calls only those that changed."""

    def __init__(self, output: Format, layout: Layout, *, single: bool) -> None:
        self._output = output
        self._layout = layout
        self._single = single
        self._versions: dict[str, str] = {}
        self._widths: dict[str, list[int]] = {}

    def show(self, found: Sequence[ListedObject]) -> None:
        """Print all objects, kind by kind."""
        self._versions = {seen.target.workflow_id: _version(seen) for seen in found}
        if self._output not in {Format.TABLE, Format.WIDE}:
            print(render([seen.tree for seen in found], self._output, single=self._single), flush=True)
            return
        for at, kind in enumerate(dict.fromkeys(seen.target.kind for seen in found)):
            if at:
                print()
            self._table(kind, [seen for seen in found if seen.target.kind == kind], titled=True)
        sys.stdout.flush()

    def show_changes(self, found: Sequence[ListedObject]) -> None:
        """Print what is new or different, and say what is gone."""
        for seen in found:
            if self._versions.get(seen.target.workflow_id) == _version(seen):
                continue
            if self._output in {Format.TABLE, Format.WIDE}:
                self._table(seen.target.kind, [seen], titled=seen.target.kind.kind not in self._widths)
            else:
                print(render([seen.tree], self._output, single=True), flush=True)
        present = {seen.target.workflow_id: _version(seen) for seen in found}
        for gone in sorted(set(self._versions) - set(present)):
            print(f"{gone} is gone", file=sys.stderr, flush=True)
        self._versions = present
        sys.stdout.flush()

    def _table(self, kind: KindInfo, found: Sequence[ListedObject], *, titled: bool) -> None:
        titles = header(kind, self._layout)
        rows = [row(kind, seen, self._layout, utc_now()) for seen in found]
        self._widths[kind.kind] = measure([titles, *rows], self._widths.get(kind.kind, ()))
        for line in columns(titles if titled else (), rows, self._widths[kind.kind]):
            print(line)


async def _get(wanted: Wanted, scope: str | None, selector: Selector, screen: Screen, *, watch: bool) -> None:
    async with control_plane(load_settings()) as plane:
        found, missing = await look(plane, wanted, scope, selector)
        if found:
            screen.show(found)
        elif not missing:
            print("No resources found" + (f" in namespace {scope}." if scope else "."), file=sys.stderr)
        warn_of_silence(found)
        if missing and not watch:
            raise together(missing)
        for failure in missing:
            print(report(failure), file=sys.stderr)
        while watch:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            found, _ = await look(plane, wanted, scope, selector)
            screen.show_changes(found)


async def look(plane: ControlPlane, wanted: Wanted, scope: str | None, selector: Selector) -> tuple[list[ListedObject], list[NotFound]]:
    """Find the objects of whole kinds, in a namespace or (None) in all, and the named ones; name those that do not exist."""
    found: list[ListedObject] = []
    missing: list[NotFound] = []
    for kind, name in wanted:
        if name is None:
            found += [seen for seen in await plane.list(kind, scope) if selector(labels(seen.tree))]
            continue
        one = target(kind, scope, name)
        try:
            found.append(ListedObject(one, await plane.describe(one)))
        except NotFound as failure:
            missing.append(failure)
    return found, missing


def warn_of_silence(found: Sequence[ListedObject]) -> None:
    """Say on standard error that some objects are shown from their search attributes."""
    silent = sum(not seen.answered for seen in found)
    if silent:
        what = f"{silent} of {len(found)} objects did not answer within 3 s: values marked {MARK} are the last known ones"
        print(f"warning: {what}; is a worker running?", file=sys.stderr)


def _is_single(wanted: Wanted) -> bool:
    return len(wanted) == 1 and wanted[0][1] is not None


def _version(seen: ListedObject) -> str:
    return f"{at_path(seen.tree, '.metadata.uid')}/{at_path(seen.tree, '.metadata.resourceVersion')}"
