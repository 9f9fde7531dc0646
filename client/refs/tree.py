"""Reading the JSON tree of an object.

The query `describe` returns plain JSON, perhaps of a newer worker, so nothing here assumes that a field exists.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from api_types.labels import MANAGED_FIELDS

Tree = dict[str, Any]

# One step of a path such as `.status.conditions[?(@.type=='Ready')].status`.
_STEP = re.compile(r"\.(?P<field>[A-Za-z0-9_-]+)|\[\?\(@\.(?P<key>[A-Za-z0-9_-]+)=='(?P<value>[^']*)'\)\]")

# A deployment that a user scaled to zero is never Ready, and has reached what was requested.
SCALED_TO_ZERO = "ScaledToZero"
FOR_PROGRAMS = frozenset({"appliedRequestIds", "changingRequestIds", "manifestVersion"})
"""What workflows answer beside the object, for the client and the front; users are not shown it."""


def at_path(tree: Any, path: str) -> Any:
    """Resolve a JSON path as printer columns use it; None if there is no value."""
    value = tree
    for step in _STEP.finditer(path):
        if field := step["field"]:
            value = value.get(field) if isinstance(value, Mapping) else None
        else:
            rows = value if isinstance(value, Sequence) else ()
            value = next((row for row in rows if isinstance(row, Mapping) and row.get(step["key"]) == step["value"]), None)
    return value


def text_at(tree: Tree, paths: Sequence[str]) -> str:
    """Give the first value that one of the paths finds, as text; empty if none does."""
    found = next((value for value in (at_path(tree, path) for path in paths) if value is not None), "")
    return str(found)


def conditions(tree: Tree) -> list[Tree]:
    """Give the conditions of an object."""
    return list(at_path(tree, ".status.conditions") or [])


def condition(tree: Tree, condition_type: str) -> Tree:
    """Give one condition; empty if the object does not state it."""
    return next((row for row in conditions(tree) if row.get("type") == condition_type), {})


def events(tree: Tree) -> list[Tree]:
    """Give the events of an object, the oldest first."""
    return list(at_path(tree, ".status.events") or [])


def generation(tree: Tree) -> int:
    """Give the generation of the spec."""
    return int(at_path(tree, ".metadata.generation") or 0)


def annotations(tree: Tree) -> dict[str, str]:
    """Give the annotations."""
    return dict(at_path(tree, ".metadata.annotations") or {})


def labels(tree: Tree) -> dict[str, str]:
    """Give the labels."""
    return dict(at_path(tree, ".metadata.labels") or {})


def deleting(tree: Tree) -> bool:
    """Whether deletion was requested."""
    return bool(at_path(tree, ".metadata.deletionTimestamp"))


def has_changed(tree: Tree, request_id: str) -> bool:
    """Tell whether a request that was applied changed the manifest of its object."""
    return request_id in (tree.get("changingRequestIds") or ())


def has_applied(tree: Tree, request_id: str) -> bool:
    """Whether the workflow of the object has applied a request."""
    return request_id in (tree.get("appliedRequestIds") or ())


def settled(tree: Tree, wanted_generation: int) -> bool:
    """Whether the object has reached a generation of its spec: Ready with it, or scaled to zero on purpose."""
    ready = condition(tree, "Ready")
    observed = min(int(at_path(tree, ".status.observedGeneration") or 0), int(ready.get("observedGeneration") or generation(tree)))
    reached = ready.get("status") == "True" or ready.get("reason") == SCALED_TO_ZERO
    return reached and observed >= wanted_generation


def refusal(tree: Tree) -> str:
    """Give why the last spec was refused; empty if it was not."""
    accepted = condition(tree, "SpecAccepted")
    return str(accepted.get("message") or accepted.get("reason")) if accepted.get("status") == "False" else ""


def clean(tree: Tree) -> Tree:
    """Give the object as it is shown to users, without the fields for this client, and without who owns which fields."""
    shown = {key: value for key, value in tree.items() if key not in FOR_PROGRAMS}
    if MANAGED_FIELDS not in annotations(tree) and at_path(tree, ".metadata.managedFields") is None:
        return shown
    rest = {key: value for key, value in annotations(tree).items() if key != MANAGED_FIELDS}
    metadata = {key: value for key, value in tree["metadata"].items() if key not in ("annotations", "managedFields")}
    return {**shown, "metadata": metadata | ({"annotations": rest} if rest else {})}
