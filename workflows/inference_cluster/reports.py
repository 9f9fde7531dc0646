"""The reports of an InferenceCluster to the scheduler, to replicas and to caches.

Pure.
"""

from datetime import datetime
from typing import Any

from api_types.labels import MANAGED_FIELDS
from api_types.messages.caches import CacheSite
from api_types.messages.entities import ClusterChanged
from api_types.messages.scheduling import ReportCluster
from workflows.entity.conditions import condition_of
from workflows.inference_cluster.gateway import gateway_of
from workflows.inference_cluster.spec import connection_of, pod_policies
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.status import drivers, status_fields


def scheduler_report(name: str, state: ClusterState, *, gone: bool) -> ReportCluster:
    """Return the report to the scheduler, with the status for placement."""
    metadata: dict[str, Any] = {"name": name, "uid": state.uid}
    annotations = {
        key: value for key, value in state.annotations.items() if key != MANAGED_FIELDS
    }
    optional = {
        "labels": state.labels,
        "annotations": annotations,
        "deletionTimestamp": state.deletion_timestamp,
    }
    metadata |= {field: value for field, value in optional.items() if value}
    status = {
        field: value
        for field, value in status_fields(name, state).items()
        if field in ("gateway", "cache", "gpuPools", "missingFeatures")
    }
    ready = condition_of(state.conditions, "Ready")
    status["conditions"] = [ready.wire()] if ready else []
    if state.observed and state.observed.capacity:
        status["capacity"] = state.observed.capacity.wire()
    spec = {
        field: value
        for field, value in (state.spec or {}).items()
        if field in ("taints", "nodePools")
    }
    created = 0
    if state.creation_timestamp:
        at = datetime.fromisoformat(state.creation_timestamp)
        created = int(at.timestamp()) * 1000
    return ReportCluster(
        name=name,
        uid=state.uid,
        sequence=state.sequence,
        epoch=state.epoch,
        created=created,
        gone=gone,
        replicas=(state.observed.replicas or []) if state.observed else [],
        manifest={"metadata": metadata, "spec": spec, "status": status},
    )


def replica_report(name: str, state: ClusterState) -> ClusterChanged:
    facts, gateway = state.facts, gateway_of(state)
    connected = state.connected_generation > 0 and not state.unreachable_since
    ready = condition_of(state.conditions, "ClusterReady")
    unreachable_seconds = 0
    if state.withdrawn and facts:
        unreachable_seconds = facts.withdraw_after_seconds
    found: dict[str, Any] = {
        "gateway_address": gateway.address,
        "gateway_message": gateway.problem,
        "drivers": drivers(state.pools),
    }
    found["pod_policies"] = pod_policies(state)
    occupied = state.occupied is None or bool(state.occupied)
    problem = ""
    if not connected and ready is not None:
        problem = f"{ready.reason}: {ready.message}"
    return ClusterChanged(
        name=name,
        uid=state.uid,
        sequence=state.sequence,
        present=not state.cloud.gone and (not state.deleting or occupied),
        connected=connected,
        problem=problem,
        unreachable_for_seconds=unreachable_seconds,
        connection=connection_of(name, state) if facts else None,
        facts=facts.model_copy(update=found) if facts else None,
        gone=state.cloud.gone or None,
    )


def cache_report(
    name: str, state: ClusterState, *, gone: bool, asking: str = ""
) -> CacheSite:
    """Return the report for caches.

    It names the caches with volumes on the cluster: all of them during the deletion, and
    otherwise only the one that is `asking`.
    """
    facts = state.facts
    known = state.cache_registrations
    caches = state.caches if state.deleting else [asking]
    holders = {
        each: known[each].uid
        for each in caches
        if each in known and each in state.caches
    }
    return CacheSite(
        name=name,
        uid=state.uid,
        sequence=state.sequence,
        labels=state.labels,
        connection=connection_of(name, state) if facts else None,
        storage_class_name=facts.storage_class_name if facts else "",
        storage_classes=facts.storage_classes if facts else None,
        scheduler_type=facts.scheduler_type if facts else "none",
        present=not gone,
        deleting=state.deleting,
        attempts_max=facts.cache_attempts_max if facts else 0,
        evict_grace_seconds=facts.cache_evict_grace_seconds if facts else 0,
        holders=holders,
    )


def unsequenced(report: ClusterChanged | CacheSite) -> dict[str, Any]:
    """Return a report without its number, for comparison with the previous one."""
    return report.model_copy(update={"sequence": 0}).wire()
