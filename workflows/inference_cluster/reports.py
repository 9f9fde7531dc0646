"""What an InferenceCluster reports to the scheduler, to replicas and to caches. Pure."""

from datetime import datetime, timedelta
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
    """Say what the scheduler must know: the manifest, with the part of its status that placement reads."""
    metadata: dict[str, Any] = {"name": name, "uid": state.uid}
    annotations = {key: value for key, value in state.annotations.items() if key != MANAGED_FIELDS}
    optional = {"labels": state.labels, "annotations": annotations, "deletionTimestamp": state.deletion_timestamp}
    metadata |= {field: value for field, value in optional.items() if value}
    status = {field: value for field, value in status_fields(name, state).items() if field in ("gateway", "cache", "gpuPools")}
    ready = condition_of(state.conditions, "Ready")
    status["conditions"] = [ready.wire()] if ready else []
    if state.observed and state.observed.capacity:
        status["capacity"] = state.observed.capacity.wire()
    spec = {field: value for field, value in (state.spec or {}).items() if field in ("taints", "nodePools")}
    return ReportCluster(
        name=name,
        uid=state.uid,
        sequence=state.sequence,
        epoch=state.epoch,
        created=int(datetime.fromisoformat(state.creation_timestamp).timestamp()) * 1000 if state.creation_timestamp else 0,
        gone=gone,
        replicas=(state.observed.replicas or []) if state.observed else [],
        manifest={"metadata": metadata, "spec": spec, "status": status},
    )


def replica_report(name: str, state: ClusterState, now: datetime) -> ClusterChanged:
    """Say what replicas must know."""
    facts, gateway = state.facts, gateway_of(state)
    connected = state.connected_generation > 0 and not state.unreachable_since
    ready = condition_of(state.conditions, "ClusterReady")
    left = time_to_withdrawal(state, now)
    withdrawn = left is not None and left <= timedelta()
    found: dict[str, Any] = {"gateway_address": gateway.address, "gateway_message": gateway.problem, "drivers": drivers(state.pools)}
    found["pod_policies"] = pod_policies(state)
    return ClusterChanged(
        name=name,
        uid=state.uid,
        sequence=state.sequence,
        present=not state.cloud.gone and (not state.deleting or state.occupied is None or bool(state.occupied)),
        connected=connected,
        problem="" if connected or ready is None else f"{ready.reason}: {ready.message}",
        unreachable_for_seconds=int(_withdraw_after(state).total_seconds()) if withdrawn else 0,
        connection=connection_of(name, state) if facts else None,
        facts=facts.model_copy(update=found) if facts else None,
        gone=state.cloud.gone or None,
    )


def cache_report(name: str, state: ClusterState, *, gone: bool) -> CacheSite:
    """Say what caches must know."""
    facts = state.facts
    known = state.cache_registrations
    holders = {each: known[each].uid for each in state.caches if each in known}
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
        holders=holders if state.deleting else {},
    )


def time_to_withdrawal(state: ClusterState, now: datetime) -> timedelta | None:
    """Give how long until the endpoints on an unresponsive cluster are withdrawn (`cluster.unreachableAfter`); None while it answers."""
    if not state.unreachable_since:
        return None
    return _withdraw_after(state) - (now - datetime.fromisoformat(state.unreachable_since))


def _withdraw_after(state: ClusterState) -> timedelta:
    return timedelta(seconds=state.facts.withdraw_after_seconds if state.facts else 0)


def unsequenced(report: ClusterChanged | CacheSite) -> dict[str, Any]:
    """Give a report without its number, to compare it with the one before."""
    return report.model_copy(update={"sequence": 0}).wire()
