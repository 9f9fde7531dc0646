"""Supports the migration from client-side to server-side apply with kubectl.

`kubectl apply` without `--server-side` keeps the applied manifest in an annotation. As
long as a field has the value in that annotation, `kubectl apply --server-side` does not
conflict with it.
"""

import json
from collections.abc import Callable

from api_types import labels
from api_types.validation.normalize import drop_server_fields, without_nulls
from front.applying.fields import FieldSet, Json, of_field
from front.applying.shapes import Shape
from front.applying.trees import compared, fields_of

MANAGER = "kubectl"
"""The default manager of `kubectl apply --server-side`."""
FORMER_MANAGER = "kubectl-client-side-apply"
"""The manager of client-side `kubectl apply`."""
ANNOTATION = (
    of_field("metadata"),
    of_field("annotations"),
    of_field(labels.LAST_APPLIED),
)
"""kubectl takes over the fields of the manager that owns this field."""


def last_applied_of(tree: Json) -> str:
    """Return the last-applied annotation of kubectl; empty if there is none."""
    return str((tree["metadata"].get("annotations") or {}).get(labels.LAST_APPLIED, ""))


def unchanged(
    shape: Shape, live: Json, stored: Callable[[Json], Json | None]
) -> FieldSet:
    """Return the fields that still have the value which kubectl applied last.

    `stored` returns an object in its stored form, or None if it cannot have been
    applied. The result is empty without a usable annotation.
    """
    try:
        sent = json.loads(last_applied_of(live))
        parts = {key: sent.get(key) for key in ("metadata", "spec")}
        objects = {key: part for key, part in parts.items() if isinstance(part, dict)}
        config = without_nulls(objects)
    except (ValueError, AttributeError, RecursionError):
        return frozenset()
    drop_server_fields(config)
    applied = stored(config)
    if applied is None:
        return frozenset()
    found = compared(shape, applied, live)
    return fields_of(shape, config) - found.written - found.removed


def rewritten(result: Json, config: Json) -> Json:
    """Update the last-applied annotation, for users who return to client-side apply.

    Objects without the annotation are unchanged.
    """
    annotations = result["metadata"].get("annotations") or {}
    if labels.LAST_APPLIED not in annotations:
        return result
    text = json.dumps(config, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    rewritten_annotations = {**annotations, labels.LAST_APPLIED: f"{text}\n"}
    metadata = {**result["metadata"], "annotations": rewritten_annotations}
    return {**result, "metadata": metadata}
