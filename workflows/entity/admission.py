"""Admission of a manifest: how the workflow of an object checks and stores it.

A signal cannot be refused, so an invalid manifest sets a condition and the last valid
spec stays. An update is refused before the history records it. Request ids make both
safe to repeat.
"""

from typing import Any

from api_types import names
from api_types.labels import MANAGED_FIELDS
from api_types.validation.manifests import (
    NO_CHECKS,
    InvalidManifest,
    Manifest,
    admit,
    admit_update,
    load,
)
from workflows.entity.conditions import FALSE, TRUE, condition_of
from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState

# Enough request ids for every retry of a sender to be recognized.
REQUESTS_KEPT = 512
Written = tuple[dict[str, str], dict[str, str], dict[str, Any] | None]


def accept_request(state: EntityState, request_id: str) -> bool:
    """Remember the id of a request; return False if it was accepted before.

    A request without an id is always new.
    """
    if not request_id:
        return True
    if request_id in state.requests:
        return False
    state.requests = [*state.requests, request_id][-REQUESTS_KEPT:]
    return True


def admitted(
    context: EntityContext[EntityState], document: Any, present: dict[str, Any] | None
) -> Manifest:
    """Check a manifest against the object's identity and its present manifest.

    CEL rules are not evaluated. Raises InvalidManifest.
    """
    if not isinstance(document, dict):
        raise InvalidManifest.of(
            context.title,
            "manifest",
            "must be an object with apiVersion, kind, metadata and spec",
        )
    manifest = admit(document, NO_CHECKS, context.namespace or "default").manifest
    identity = (
        manifest.kind,
        manifest.metadata.namespace or "",
        manifest.metadata.name,
    )
    if identity != (context.kind, context.namespace, context.name):
        wrong = names.workflow_id(*identity)
        raise InvalidManifest.of(
            context.title,
            "metadata",
            f"the manifest describes {wrong}; send it to the workflow with that id",
        )
    if present is not None:
        admit_update(load(present), manifest)
    return manifest


def store(
    context: EntityContext[EntityState], metadata: dict[str, Any], spec: dict[str, Any]
) -> bool:
    """Store labels, annotations and spec; return False if nothing changed.

    Only a different spec makes a new generation.
    """
    state = context.state
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    if condition_of(state.conditions, "SpecAccepted"):
        context.set_condition("SpecAccepted", TRUE, "Accepted")
    if (labels, annotations, spec) == state.written:
        return False
    if spec != state.spec:
        state.generation += 1
        state.attempts = 0
    state.labels, state.annotations, state.spec = labels, annotations, spec
    return True


def without_owners(written: Written) -> Written:
    """Return labels, annotations and spec without the managed fields.

    The API server of this project keeps the owners of fields in an annotation.
    """
    labels, annotations, spec = written
    return (
        labels,
        {key: value for key, value in annotations.items() if key != MANAGED_FIELDS},
        spec,
    )


def refuse(context: EntityContext[EntityState], problems: str) -> None:
    """Keep the last valid spec, and report the problems of the new one."""
    context.set_condition("SpecAccepted", FALSE, "InvalidInput", problems)
    context.record_event("Warning", "InvalidInput", problems)
    if context.state.spec is None:
        context.set_condition("Ready", FALSE, "InvalidInput", problems)
