"""Admission of a manifest by the workflow of its object: how it is checked and stored.

A signal cannot be refused, so an invalid manifest becomes a condition and the last valid spec stays; an update can, before it is written
to the history.
Request ids make both safe to repeat.
"""

from typing import Any

from api_types import names
from api_types.labels import MANAGED_FIELDS
from api_types.validation.manifests import NO_CHECKS, InvalidManifest, Manifest, admit, admit_update, load
from workflows.entity.conditions import FALSE, TRUE, condition_of
from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState

# Request ids are remembered long enough to outlast every retry of a sender, and no longer.
REQUESTS_KEPT = 512
Written = tuple[dict[str, str], dict[str, str], dict[str, Any] | None]


def accept_request(state: EntityState, request_id: str) -> bool:
    """Remember the id of a request; False when it was accepted before. A request without an id is always new."""
    if not request_id:
        return True
    if request_id in state.requests:
        return False
    state.requests = [*state.requests, request_id][-REQUESTS_KEPT:]
    return True


def admitted(context: EntityContext[EntityState], document: Any, present: dict[str, Any] | None) -> Manifest:
    """Check a manifest in full, CEL aside, against the object's identity and its present manifest, if it has one."""
    if not isinstance(document, dict):
        raise InvalidManifest.of(context.title, "manifest", "must be an object with apiVersion, kind, metadata and spec")
    manifest = admit(document, NO_CHECKS, context.namespace or "default").manifest
    identity = (manifest.kind, manifest.metadata.namespace or "", manifest.metadata.name)
    if identity != (context.kind, context.namespace, context.name):
        wrong = names.workflow_id(*identity)
        raise InvalidManifest.of(context.title, "metadata", f"the manifest is of {wrong}; send it to the workflow of that id")
    if present is not None:
        admit_update(load(present), manifest)
    return manifest


def store(context: EntityContext[EntityState], metadata: dict[str, Any], spec: dict[str, Any]) -> bool:
    """Store labels, annotations and spec; False when nothing changed. Only another spec makes a new generation."""
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
    """Give labels, annotations and spec without what the front keeps there about the owners of fields."""
    labels, annotations, spec = written
    return labels, {key: value for key, value in annotations.items() if key != MANAGED_FIELDS}, spec


def refuse(context: EntityContext[EntityState], problems: str) -> None:
    """Keep the last valid spec and report what is wrong with the new one."""
    context.set_condition("SpecAccepted", FALSE, "InvalidInput", problems)
    context.record_event("Warning", "InvalidInput", problems)
    if context.state.spec is None:
        context.set_condition("Ready", FALSE, "InvalidInput", problems)
