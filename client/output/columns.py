"""The tables of `get`: the printer columns of each kind, READY and AGE, and what `-o wide` adds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from api_types.resources.kinds import READY, Column, KindInfo
from client.output.tables import age
from client.refs.tree import Tree, at_path, condition, labels, text_at
from client.temporal.control_plane import ListedObject

# Suffix of a value that is only the last known one, because no worker answered.
MARK = "?"

_DISABLED = "SchedulingDisabled"
_DELETING = "Deleting"


@dataclass(frozen=True)
class Layout:
    """What a table of `get` shows beyond the columns of its kind."""

    namespaces: bool = False
    wide: bool = False
    labels: bool = False
    kinds: bool = False
    """Whether names show their kind, because several kinds are listed."""


def header(kind: KindInfo, layout: Layout) -> list[str]:
    """Give the titles of the columns."""
    titles = ["NAMESPACE"] if layout.namespaces and kind.namespaced else []
    titles += ["NAME", *(column.title for column in columns_of(kind)), "AGE"]
    titles += ["PHASE", "REASON", "MESSAGE"] if layout.wide else []
    return titles + (["LABELS"] if layout.labels else [])


def row(kind: KindInfo, seen: ListedObject, layout: Layout, now: datetime) -> list[str]:
    """Give the cells of one object."""
    tree = seen.tree
    cells = [seen.target.namespace] if layout.namespaces and kind.namespaced else []
    cells.append(seen.target.label if layout.kinds else seen.target.name)
    cells += [_cell(tree, column, seen.answered) for column in columns_of(kind)]
    cells.append(age(str(at_path(tree, ".metadata.creationTimestamp") or ""), now))
    if layout.wide:
        cells += [str(at_path(tree, ".status.phase") or ""), *_why(tree)]
    if layout.labels:
        cells.append(",".join(f"{key}={value}" for key, value in sorted(labels(tree).items())))
    return cells


def columns_of(kind: KindInfo) -> Sequence[Column]:
    """Give the columns between name and age."""
    own = [column for column in kind.columns if column.title != READY.title]
    ready_of_kind = [column for column in kind.columns if column.title == READY.title]
    # A cache's own READY column says `2/3`; its condition would be a second column of the same name.
    return [*own, *(ready_of_kind or [READY])]


def _cell(tree: Tree, column: Column, answered: bool) -> str:
    value = text_at(tree, column.paths)
    if column.title == READY.title:
        value = ",".join(filter(None, (value, *_marks(tree))))
    return value if answered else f"{value}{MARK}"


def _marks(tree: Tree) -> list[str]:
    """Say after the readiness that an object takes nothing new, as kubectl does for nodes, or is being deleted."""
    marks = [_DISABLED] if condition(tree, _DISABLED).get("status") == "True" else []
    if at_path(tree, ".metadata.deletionTimestamp"):
        reason = str(condition(tree, _DELETING).get("reason") or "")
        marks.append(f"{_DELETING}({reason})" if reason else _DELETING)
    return marks


def _why(tree: Tree) -> tuple[str, str]:
    ready, deleting = condition(tree, "Ready"), condition(tree, _DELETING)
    if deleting.get("message"):
        return str(deleting.get("reason") or ""), " ".join(str(deleting["message"]).split())
    if ready.get("status") == "True":
        return str(ready.get("reason") or ""), str(condition(tree, _DISABLED).get("message") or "")
    blocking = next((row for row in at_path(tree, ".status.conditions") or [] if row.get("status") != "True" and row.get("message")), ready)
    return str(ready.get("reason") or ""), " ".join(str(blocking.get("message") or "").split())
