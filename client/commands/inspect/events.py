"""`modelplane events`: what happened, over one object or a whole namespace, oldest first."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from api_types.clock import utc_now
from api_types.resources.kinds import BY_KIND
from client.commands import options
from client.commands.inspect.get import Wanted, look, warn_of_silence
from client.configuration import load_settings
from client.errors import Refused, together
from client.output.formats import Format, as_json, as_yaml
from client.output.tables import age, columns, measure
from client.refs.selectors import parse_selector
from client.refs.targets import DEFAULT_NAMESPACE, Target, kinds_and_names, served_kinds
from client.refs.tree import Tree, events
from client.temporal.control_plane import ControlPlane, ListedObject, control_plane

_LOOK_EVERY_SECONDS = 1.0
_TITLES = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]


@dataclass(frozen=True)
class Happening:
    """An event and the object that it happened to."""

    target: Target
    event: Tree

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Tell two happenings apart; a repeat of an event is a new one."""
        return (self.target.workflow_id, str(self.event.get("reason")), str(self.event.get("message")), int(self.event.get("count") or 1))

    @property
    def tree(self) -> Tree:
        """Give the event for machines, with the object it is about."""
        about = {"kind": self.target.kind.kind, "name": self.target.name}
        return {**self.event, "object": about | ({"namespace": self.target.namespace} if self.target.namespace else {})}


def show_events(
    *,
    objects: Annotated[
        list[str] | None, typer.Argument(help="Objects or kinds; without any, everything in the namespace and the fleet.")
    ] = None,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    selector: options.Labels = None,
    output: options.Output = Format.TABLE,
    watch: options.Watch = False,
) -> None:
    """Show what happened to objects, the latest last."""
    if output == Format.NAME:
        raise Refused("events have no names", next_step="use -o table, wide, yaml or json")
    wanted: Wanted = kinds_and_names(objects) if objects else [(BY_KIND[kind], None) for kind in served_kinds()]
    scope = None if all_namespaces else (namespace or DEFAULT_NAMESPACE)
    asyncio.run(_show(wanted, scope, selector, output, watch=watch))


async def _show(wanted: Wanted, scope: str | None, selector: str | None, output: Format, *, watch: bool) -> None:
    chosen = parse_selector(selector)
    async with control_plane(load_settings()) as plane:
        found, missing = await look(plane, wanted, scope, chosen)
        warn_of_silence(found)
        if missing:
            raise together(missing)
        happened = in_order(found)
        _print(happened, output, titled=True)
        while watch:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            happened = await _print_new(plane, wanted, scope, happened, output)


async def _print_new(plane: ControlPlane, wanted: Wanted, scope: str | None, known: Sequence[Happening], output: Format) -> list[Happening]:
    found, _ = await look(plane, wanted, scope, parse_selector(None))
    happened = in_order(found)
    keys = {one.key for one in known}
    _print([one for one in happened if one.key not in keys], output, titled=False)
    return happened


def in_order(found: Iterable[ListedObject]) -> list[Happening]:
    """Give the events of objects by the time they were last seen."""
    happened = [Happening(seen.target, event) for seen in found for event in events(seen.tree)]
    return sorted(happened, key=lambda one: str(one.event.get("last") or ""))


def _print(happened: Sequence[Happening], output: Format, *, titled: bool) -> None:
    if output in {Format.JSON, Format.YAML}:
        trees = [one.tree for one in happened]
        if trees or titled:
            print((as_json if output == Format.JSON else as_yaml)(trees), flush=True)
        return
    now = utc_now()
    rows = [
        [
            age(str(one.event.get("last") or ""), now),
            str(one.event.get("type") or ""),
            str(one.event.get("reason") or ""),
            one.target.workflow_id if output == Format.WIDE else one.target.label,
            str(one.event.get("count") or 1),
            " ".join(str(one.event.get("message") or "").split()),
        ]
        for one in happened
    ]
    for line in columns(_TITLES if titled else (), rows, measure([_TITLES])):
        print(line, flush=True)
