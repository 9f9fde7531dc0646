"""What a ModelReplica reads from its spec and from the last report of its cache."""

from typing import Any

from workflows.entity.conditions import is_true
from workflows.model_replica.state import ModelReplicaState


def cache_name(state: ModelReplicaState) -> str:
    """Name the cache that the spec references; empty if it references none."""
    name: str = ((state.spec or {}).get("modelCacheRef") or {}).get("name", "")
    return name


def mounted_claims(state: ModelReplicaState) -> list[str]:
    """Name the claims that pods may mount, the newest last: while a change is rolled out, those before it too."""
    applied = state.applied_inputs.cache_claim if state.applied_inputs else ""
    older = [claim for claim in state.cache_mounted if claim != applied]
    if is_true(state.conditions, "Ready"):
        older = []
    return [*older, applied] if applied else older


def cache_problem(state: ModelReplicaState) -> str:
    """Say which cache keeps the engines from starting, and how far it is."""
    report, cluster = state.cache, state.start.cluster
    title = f"ModelCache {state.start.namespace}/{cache_name(state)}"
    if report is None:
        return f"{title} does not exist, or has not answered yet; engines on {cluster} wait for it"
    detail = f": {report.message}" if report.message else ""
    return f"{title} is {report.phase or 'not staged'} on {cluster}{detail}"


def cache_status(state: ModelReplicaState) -> dict[str, Any]:
    """Show which weights are mounted; nothing without a cache."""
    if not cache_name(state):
        return {}
    report = state.cache
    shown = {"claimName": state.cache_claim, "artefactKey": report.artifact_key, "phase": report.phase} if report else {}
    return {"cache": {field: value for field, value in shown.items() if value}}
