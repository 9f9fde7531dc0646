"""`modelplane events`: the events of objects or of a whole namespace, oldest first."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from api_types.clock import utc_now
from api_types.resources.kinds import SERVED
from api_types.text.age import age
from client.commands import options
from client.failures import combine
from client.output.formats import Format, as_json, as_yaml
from client.output.printer import warn_hidden, warn_unanswered
from client.output.tables import columns, measure
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused
from fleet_client.lookup import KindsAndNames, find_objects
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.selectors import ObjectSelection
from fleet_client.refs.targets import DEFAULT_NAMESPACE, Target, kinds_and_names
from fleet_client.refs.tree import Tree, events

_POLL_SECONDS = 1.0
_TITLES = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]


@dataclass(frozen=True)
class ObjectEvent:
    """An event and its object."""

    target: Target
    event: Tree

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The identity of the event.

        A repeated event has another count, so it is a new one.
        """
        return (
            self.target.workflow_id,
            str(self.event.get("reason")),
            str(self.event.get("message")),
            int(self.event.get("count") or 1),
        )

    @property
    def tree(self) -> Tree:
        """The event with its object, for JSON and YAML output."""
        about = {"kind": self.target.kind.kind, "name": self.target.name}
        return {
            **self.event,
            "object": about
            | ({"namespace": self.target.namespace} if self.target.namespace else {}),
        }


def show_events(
    *,
    objects: Annotated[
        list[str] | None,
        typer.Argument(
            help="Objects or kinds; without any, everything in the namespace and the fleet."
        ),
    ] = None,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    selector: options.Labels = None,
    output: options.Output = Format.TABLE,
    watch: options.Watch = False,
) -> None:
    """Show the events of objects, the latest last.

    For example:
      modelplane events md/qwen -n ml
      modelplane events -A --watch
    """
    if output == Format.NAME:
        raise Refused(
            "events have no names", next_step="use -o table, wide, yaml or json"
        )
    wanted: KindsAndNames = (
        kinds_and_names(objects) if objects else [(kind, None) for kind in SERVED]
    )
    scope = None if all_namespaces else (namespace or DEFAULT_NAMESPACE)
    chosen = ObjectSelection.parse(wanted, selector)
    asyncio.run(_show(wanted, scope, chosen, output, watch=watch))


async def _show(
    wanted: KindsAndNames,
    scope: str | None,
    chosen: ObjectSelection,
    output: Format,
    *,
    watch: bool,
) -> None:
    async with fleet_objects(load_settings()) as plane:
        found, missing, hidden = await find_objects(plane, wanted, scope, chosen)
        warn_unanswered(found)
        warn_hidden(hidden)
        if missing:
            raise combine(missing)
        shown = in_order(found)
        _print(shown, output, titled=True)
        while watch:
            await asyncio.sleep(_POLL_SECONDS)
            found = (await find_objects(plane, wanted, scope, chosen)).objects
            present, known = in_order(found), {one.key for one in shown}
            _print(
                [one for one in present if one.key not in known], output, titled=False
            )
            shown = present


def in_order(found: Iterable[ListedObject]) -> list[ObjectEvent]:
    """Return the events of objects, sorted by the time of their last occurrence."""
    all_events = [
        ObjectEvent(one.target, event) for one in found for event in events(one.tree)
    ]
    return sorted(all_events, key=lambda one: str(one.event.get("last") or ""))


def _print(shown: Sequence[ObjectEvent], output: Format, *, titled: bool) -> None:
    if output in {Format.JSON, Format.YAML}:
        trees = [one.tree for one in shown]
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
        for one in shown
    ]
    for line in columns(_TITLES if titled else (), rows, measure([_TITLES])):
        print(line, flush=True)
