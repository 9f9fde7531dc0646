"""The caches in the spec of a ModelReplica, and their last reports."""

from typing import Any

from api_types.messages.caches import CacheReport
from api_types.resources.parts.referenced_caches import adapter_caches, model_cache
from workflows.entity.conditions import is_true
from workflows.model_replica.state import ModelReplicaState


def cache_name(state: ModelReplicaState) -> str:
    """Return the name of the cache in the spec, or an empty string."""
    return model_cache(state.spec or {})


def mounted_claims(state: ModelReplicaState, adapter: str = "") -> list[str]:
    """Return the claims of a cache that pods may mount, the newest last.

    During a rollout these include the earlier claims. `name` is the cache of an
    adapter, or the model's.
    """
    inputs = state.applied_inputs
    applied = (
        (
            (inputs.adapter_claims or {}).get(adapter, "")
            if adapter
            else inputs.cache_claim
        )
        if inputs
        else ""
    )
    mounted = state.adapters[adapter].cache_mounted if adapter else state.cache_mounted
    older = [claim for claim in mounted if claim != applied]
    if is_true(state.conditions, "Ready"):
        older = []
    return [*older, applied] if applied else older


def cache_problem(state: ModelReplicaState) -> str:
    """Return the caches for which the engines wait, with their progress."""
    name, ready = cache_name(state), state.adapter_claims()
    waiting = {} if not name or state.cache_claim else {name: state.cache}
    adapters = [
        adapter for adapter in adapter_caches(state.spec or {}) if adapter not in ready
    ]
    waiting |= {
        adapter: state.adapters[adapter].cache if adapter in state.adapters else None
        for adapter in adapters
    }
    return "; ".join(
        _how_far(state, name, report)
        for name, report in (waiting or {name: state.cache}).items()
    )


def _how_far(state: ModelReplicaState, name: str, report: CacheReport | None) -> str:
    cluster, title = state.start.cluster, f"ModelCache {state.start.namespace}/{name}"
    if report is None:
        return f"{title} does not exist, or has not answered yet; engines on {cluster} wait for it"
    detail = f": {report.message}" if report.message else ""
    return f"{title} is {report.phase or 'not staged'} on {cluster}{detail}"


def cache_status(state: ModelReplicaState) -> dict[str, Any]:
    """Return the mounted weights for the status; empty without a cache."""
    if not cache_name(state):
        return {}
    report = state.cache
    shown = (
        {
            "claimName": state.cache_claim,
            "artefactKey": report.artifact_key,
            "phase": report.phase,
        }
        if report
        else {}
    )
    return {"cache": {field: value for field, value in shown.items() if value}}
