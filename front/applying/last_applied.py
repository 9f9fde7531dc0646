"""What `kubectl apply` without `--server-side` left on an object, for users who change to server-side apply.

It keeps what it sent in an annotation. Where an object still is as that says, `kubectl apply --server-side` meets no conflict with itself.
"""

import json
from collections.abc import Callable

from api_types import labels
from api_types.validation.normalize import drop_server_fields, without_nulls
from front.applying.fields import FieldSet, Json, of_field
from front.applying.shapes import Shape
from front.applying.trees import compared, fields_of

MANAGER = "kubectl"
"""The manager of `kubectl apply --server-side`, unless its user names another."""
FORMER_MANAGER = "kubectl-client-side-apply"
"""The manager of `kubectl apply` without that."""
ANNOTATION = (of_field("metadata"), of_field("annotations"), of_field(labels.LAST_APPLIED))
"""The field by which kubectl finds the manager that it takes over from."""


def last_applied_of(tree: Json) -> str:
    """Give what was applied last, as kubectl keeps it; empty if nothing was."""
    return str((tree["metadata"].get("annotations") or {}).get(labels.LAST_APPLIED, ""))


def unchanged(shape: Shape, live: Json, stored: Callable[[Json], Json | None]) -> FieldSet:
    """Give the fields that are as they were applied last; none if nothing was, or not by kubectl.

    `stored`: gives an object as it would be stored; None for what never can have been applied, which nothing else here reads.
    """
    try:
        sent = json.loads(last_applied_of(live))
        config = without_nulls({key: sent[key] for key in ("metadata", "spec") if isinstance(sent.get(key), dict)})
    except (ValueError, AttributeError, RecursionError):
        return frozenset()
    drop_server_fields(config)
    applied = stored(config)
    if applied is None:
        return frozenset()
    found = compared(shape, applied, live)
    return fields_of(shape, config) - found.written - found.removed


def rewritten(result: Json, config: Json) -> Json:
    """Give an object with the annotation of what is applied now, if it has one, for users who go back to the other way."""
    annotations = result["metadata"].get("annotations") or {}
    if labels.LAST_APPLIED not in annotations:
        return result
    text = json.dumps(config, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    return {**result, "metadata": {**result["metadata"], "annotations": {**annotations, labels.LAST_APPLIED: text}}}
