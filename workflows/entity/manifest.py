"""The Kubernetes-shaped manifest of an entity: metadata, spec and status.

This module fills in the fields that all kinds share. Each kind adds its own status
fields.
"""

from collections.abc import Mapping
from typing import Any

from api_types.resources.parts.base_types import API_VERSION
from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState


def manifest_of(
    context: EntityContext[EntityState], phase: str, status: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest of the object. `status` holds the fields of its kind."""
    state = context.state
    shown: dict[str, Any] = {
        "observedGeneration": state.observed_generation,
        "phase": phase,
        "conditions": [condition.wire() for condition in state.conditions],
        "events": [event.wire() for event in state.events],
        **status,
    }
    if state.left_behind:
        shown["leftBehind"] = [item.wire() for item in state.left_behind]
    return {
        "apiVersion": API_VERSION,
        "kind": context.kind,
        "metadata": _metadata(context),
        "spec": state.spec if state.spec is not None else {},
        "status": shown,
    }


def _metadata(context: EntityContext[EntityState]) -> dict[str, Any]:
    state = context.state
    metadata: dict[str, Any] = {"name": context.name}
    if context.namespace:
        metadata["namespace"] = context.namespace
    metadata |= {
        "uid": state.uid,
        "generation": state.generation,
        "resourceVersion": str(state.resource_version),
        "creationTimestamp": state.creation_timestamp,
    }
    if state.deleting:
        metadata["deletionTimestamp"] = state.deletion_timestamp
    if state.labels:
        metadata["labels"] = state.labels
    if state.annotations:
        metadata["annotations"] = state.annotations
    return metadata
