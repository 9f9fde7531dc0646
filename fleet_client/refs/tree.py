"""Reading the JSON tree of an object.

The query `describe` returns plain JSON, perhaps from a newer worker, so no function
assumes that a field exists.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from api_types.labels import MANAGED_FIELDS

Tree = dict[str, Any]

# One step of a path such as `.status.conditions[?(@.type=='Ready')].status`.
_STEP = re.compile(
    r"\.(?P<field>[A-Za-z0-9_-]+)|\[\?\(@\.(?P<key>[A-Za-z0-9_-]+)=='(?P<value>[^']*)'\)\]"
)

# The Ready reason of a deployment that is scaled to zero. It counts as having reached
# its goal.
SCALED_TO_ZERO = "ScaledToZero"
FOR_PROGRAMS = frozenset({"appliedRequestIds", "changingRequestIds", "manifestVersion"})
"""Fields that workflows add for the client and the front. Users do not see them."""


def at_path(tree: Any, path: str) -> Any:
    """Return the value at a JSON path of a printer column, or None."""
    value = tree
    for step in _STEP.finditer(path):
        if field := step["field"]:
            value = value.get(field) if isinstance(value, Mapping) else None
        else:
            value = _row_with(value, step["key"], step["value"])
    return value


def _row_with(rows: Any, key: str, wanted: str) -> Any:
    if isinstance(rows, Sequence):
        for row in rows:
            if isinstance(row, Mapping) and row.get(key) == wanted:
                return row
    return None


def text_at(tree: Tree, paths: Sequence[str]) -> str:
    """Return the first value at one of the paths as text, or an empty string."""
    for path in paths:
        value = at_path(tree, path)
        if value is not None:
            return str(value)
    return ""


def conditions(tree: Tree) -> list[Tree]:
    return list(at_path(tree, ".status.conditions") or [])


def condition(tree: Tree, condition_type: str) -> Tree:
    """Return the condition of a type, or an empty tree."""
    return next(
        (row for row in conditions(tree) if row.get("type") == condition_type), {}
    )


def events(tree: Tree) -> list[Tree]:
    """Return the events of an object, the oldest first."""
    return list(at_path(tree, ".status.events") or [])


def generation(tree: Tree) -> int:
    return int(at_path(tree, ".metadata.generation") or 0)


def annotations(tree: Tree) -> dict[str, str]:
    return dict(at_path(tree, ".metadata.annotations") or {})


def labels(tree: Tree) -> dict[str, str]:
    return dict(at_path(tree, ".metadata.labels") or {})


def deleting(tree: Tree) -> bool:
    """Return whether deletion was requested."""
    return bool(at_path(tree, ".metadata.deletionTimestamp"))


def has_changed(tree: Tree, request_id: str) -> bool:
    """Return whether an applied request changed the manifest of its object."""
    return request_id in (tree.get("changingRequestIds") or ())


def has_applied(tree: Tree, request_id: str) -> bool:
    """Return whether the workflow of the object has applied a request."""
    return request_id in (tree.get("appliedRequestIds") or ())


def settled(tree: Tree, wanted_generation: int) -> bool:
    """Return whether the object is Ready at a generation of its spec.

    A deployment that is scaled to zero on purpose counts as Ready.
    """
    ready = condition(tree, "Ready")
    observed = min(
        int(at_path(tree, ".status.observedGeneration") or 0),
        int(ready.get("observedGeneration") or generation(tree)),
    )
    reached = ready.get("status") == "True" or ready.get("reason") == SCALED_TO_ZERO
    return reached and observed >= wanted_generation


def refusal(tree: Tree) -> str:
    """Return why the last spec was refused, or an empty string."""
    accepted = condition(tree, "SpecAccepted")
    if accepted.get("status") != "False":
        return ""
    return str(accepted.get("message") or accepted.get("reason"))


def clean(tree: Tree) -> Tree:
    """Return the object as users see it, without fields for programs and field owners."""
    shown = {key: value for key, value in tree.items() if key not in FOR_PROGRAMS}
    if (
        MANAGED_FIELDS not in annotations(tree)
        and at_path(tree, ".metadata.managedFields") is None
    ):
        return shown
    hidden = ("annotations", "managedFields")
    metadata = {
        key: value for key, value in tree["metadata"].items() if key not in hidden
    }
    rest = {
        key: value for key, value in annotations(tree).items() if key != MANAGED_FIELDS
    }
    if rest:
        metadata["annotations"] = rest
    return {**shown, "metadata": metadata}
