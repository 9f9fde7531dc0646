"""Tables for `kubectl get`, with the columns of `modelplane get`."""

from collections.abc import Iterable, Iterator
from typing import Any

from api_types.clock import utc_now
from api_types.resources.kinds import READY, KindInfo, PrinterColumn, columns_of
from api_types.text.age import age
from fleet_client.refs.tree import text_at
from front.store.projection import Tree

WIDE = (
    PrinterColumn("PHASE", (".status.phase",)),
    PrinterColumn("REASON", (".status.conditions[?(@.type=='Ready')].reason",)),
    PrinterColumn("MESSAGE", (".status.conditions[?(@.type=='Ready')].message",)),
)
_NAME = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name of the object.",
    "priority": 0,
}
_AGE = {
    "name": "Age",
    "type": "date",
    "format": "",
    "description": "Age of the object.",
    "priority": 0,
}


META_GROUP = "meta.k8s.io"
_V1 = f"{META_GROUP}/v1"
INCLUDED = ("", "Metadata", "Object", "None")
"""The parts of an object that a row of a Table may include. The default is the metadata."""


def table(
    info: KindInfo,
    trees: Iterable[Tree],
    metadata: Tree,
    included: str,
    api_version: str = _V1,
    *,
    headed: bool = True,
) -> Tree:
    """Return a Table.

    `included` selects the object in each row: `Metadata` (or empty), `Object` or
    `None`.
    """
    definitions = [_NAME, *(_definition(column) for column in _columns(info)), _AGE]
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": definitions if headed else [],
        "rows": list(rows(info, trees, included, api_version)),
    }


def rows(
    info: KindInfo, trees: Iterable[Tree], included: str, api_version: str = _V1
) -> Iterator[Tree]:
    """Yield the rows of a Table; each is computed when it is consumed."""
    columns = _columns(info)
    return (_row(columns, tree, included, api_version) for tree in trees)


def _columns(info: KindInfo) -> list[PrinterColumn]:
    return [*columns_of(info), *WIDE]


def _definition(column: PrinterColumn) -> Tree:
    about = (
        "Whether the object is ready."
        if column.title == READY.title
        else f"{', '.join(column.paths)} of the object."
    )
    return {
        "name": column.title.title(),
        "type": "string",
        "format": "",
        "description": about,
        "priority": 1 if column in WIDE else 0,
    }


def _row(
    columns: list[PrinterColumn], tree: Tree, included: str, api_version: str
) -> Tree:
    metadata = tree["metadata"]
    cells: list[Any] = [
        metadata["name"],
        *(text_at(tree, column.paths) or None for column in columns),
    ]
    # Clients print this cell without changes.
    cells.append(age(str(metadata.get("creationTimestamp") or ""), utc_now()))
    shown = {"Object": tree, "None": None}
    if included in shown:
        return {"cells": cells, "object": shown[included]}
    return {"cells": cells, "object": partial(tree, api_version)}


def partial(tree: Tree, api_version: str = _V1) -> Tree:
    """Return only the metadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": api_version,
        "metadata": tree["metadata"],
    }
