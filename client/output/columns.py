"""The tables of `get`: the columns of each kind, READY and AGE, and those of `-o wide`."""

from dataclasses import dataclass
from datetime import datetime

from api_types.resources.kinds import READY, KindInfo, PrinterColumn, columns_of
from api_types.text.age import age
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.tree import (
    Tree,
    at_path,
    condition,
    conditions,
    labels,
    text_at,
)

# The suffix of a last known value, which is shown if no worker answered.
MARK = "?"

_DISABLED = "SchedulingDisabled"
_DELETING = "Deleting"


@dataclass(frozen=True)
class TableLayout:
    """The parts of a `get` table besides the columns of its kind."""

    namespaces: bool = False
    wide: bool = False
    labels: bool = False
    titles: bool = True
    kinds: bool = False
    """Show the kind with each name, because several kinds are listed."""


def header(kind: KindInfo, layout: TableLayout) -> list[str]:
    titles = ["NAMESPACE"] if layout.namespaces and kind.namespaced else []
    titles += ["NAME", *(column.title for column in columns_of(kind)), "AGE"]
    titles += ["PHASE", "REASON", "MESSAGE"] if layout.wide else []
    return titles + (["LABELS"] if layout.labels else [])


def row(
    kind: KindInfo, seen: ListedObject, layout: TableLayout, now: datetime
) -> list[str]:
    tree = seen.tree
    cells = [seen.target.namespace] if layout.namespaces and kind.namespaced else []
    cells.append(seen.target.label if layout.kinds else seen.target.name)
    cells += [_cell(tree, column, seen.answered) for column in columns_of(kind)]
    cells.append(age(str(at_path(tree, ".metadata.creationTimestamp") or ""), now))
    if layout.wide:
        cells += [str(at_path(tree, ".status.phase") or ""), *_why(tree)]
    if layout.labels:
        cells.append(
            ",".join(f"{key}={value}" for key, value in sorted(labels(tree).items()))
        )
    return cells


def _cell(tree: Tree, column: PrinterColumn, answered: bool) -> str:
    value = text_at(tree, column.paths)
    if column.title == READY.title:
        value = ",".join(filter(None, (value, *_marks(tree))))
    return value if answered else f"{value}{MARK}"


def _marks(tree: Tree) -> list[str]:
    """Return marks that follow the readiness.

    They say that scheduling is disabled, or that the object is being deleted.
    """
    marks = [_DISABLED] if condition(tree, _DISABLED).get("status") == "True" else []
    if at_path(tree, ".metadata.deletionTimestamp"):
        reason = str(condition(tree, _DELETING).get("reason") or "")
        marks.append(f"{_DELETING}({reason})" if reason else _DELETING)
    return marks


def _why(tree: Tree) -> tuple[str, str]:
    ready, deleting = condition(tree, "Ready"), condition(tree, _DELETING)
    if deleting.get("message"):
        message = " ".join(str(deleting["message"]).split())
        return str(deleting.get("reason") or ""), message
    reason = str(ready.get("reason") or "")
    if ready.get("status") == "True":
        return reason, str(condition(tree, _DISABLED).get("message") or "")
    blocking = [
        row
        for row in conditions(tree)
        if row.get("status") != "True" and row.get("message")
    ]
    shown = blocking[0] if blocking else ready
    return reason, " ".join(str(shown.get("message") or "").split())
