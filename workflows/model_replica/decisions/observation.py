"""The observation of a ModelReplica: drift, readiness of engines and routing, status fields.

Readiness compares counts at the current template. The Available condition of a workload
would tolerate missing copies. Serving needs less than Ready: a model with several
copies keeps serving when it loses one.
"""

from collections.abc import Sequence
from typing import Any

from api_types import names
from api_types.messages.cluster_work import (
    Applied,
    AppliedEngine,
    AppliedObject,
    ObjectIdParts,
)
from api_types.messages.observations import (
    ObservedObject,
    ObservedReplica,
    ObservedWorkload,
)


def drift(applied: Applied, seen: ObservedReplica) -> list[AppliedObject]:
    """Return the inventory objects that are missing or modified on the cluster.

    Copies of Secrets have no digest, because replicas share them and no observation of
    one replica covers them.
    """
    there = {_identity(item): item.digest for item in seen.objects}
    return [
        item
        for item in applied.inventory
        if item.digest and there.get(item.identity) != item.digest
    ]


def drift_message(applied: Applied, seen: ObservedReplica) -> str:
    """Describe drift, as in `Deployment/x was modified, Service/y is missing`."""
    there = {_identity(item) for item in seen.objects}
    return ", ".join(
        f"{_title(item)} {'was modified' if item.identity in there else 'is missing'}"
        for item in drift(applied, seen)
    )


def _identity(item: ObservedObject) -> tuple[str, ...]:
    try:
        return ObjectIdParts.parse(item.id).identity
    except ValueError:
        return (item.id,)


def _title(item: AppliedObject) -> str:
    return f"{item.kind}/{item.name}"


def engine_problem(engine: AppliedEngine, seen: ObservedReplica) -> str:
    """Return why an engine is not ready; empty if it is."""
    workload = workload_of(engine, seen)
    if workload is None:
        return f"{engine.kind} {engine.workload_name} does not exist yet"
    counts = (workload.desired, workload.updated, workload.ready, workload.total)
    wanted = (engine.copies,) * 4
    if workload.current and counts == wanted and _is_current(engine, workload):
        return ""
    tail = f": {workload.blocker}" if workload.blocker else ""
    return (
        f"engine {engine.name} has {workload.ready} of {engine.copies} copies ready, "
        f"{workload.updated} up to date{tail}"
    )


def _is_current(engine: AppliedEngine, workload: ObservedWorkload) -> bool:
    if workload.kind == "Deployment":
        return workload.available == engine.copies
    # A LeaderWorkerSet has no observed generation, so all pods, leaders included, must
    # have the current templates.
    return engine.template_hash in workload.hashes


def workload_of(
    engine: AppliedEngine, seen: ObservedReplica
) -> ObservedWorkload | None:
    """Return the observed workload of an engine."""
    return next(
        (
            workload
            for workload in seen.workloads
            if workload.name == engine.workload_name
        ),
        None,
    )


def overdue(applied: Applied, seen: ObservedReplica) -> list[str]:
    """Return the engines whose progress deadline has passed.

    They may still become ready.
    """
    return [
        engine.name
        for engine in applied.engines
        if (workload := workload_of(engine, seen)) and workload.overdue
    ]


def model_problem(applied: Applied, seen: ObservedReplica) -> str:
    """Return why an engine is not ready; empty if all are."""
    problems = [engine_problem(engine, seen) for engine in applied.engines]
    return "; ".join(problem for problem in problems if problem)


def routing_problem(applied: Applied, seen: ObservedReplica) -> str:
    """Return why requests do not reach the engines through the gateway; empty if they do."""
    route = next(
        (route for route in seen.routes if route.name == applied.workload_name), None
    )
    if route is None:
        return f"HTTPRoute {applied.workload_name} does not exist yet"
    if not route.accepted:
        why = f": {route.message}" if route.message else ""
        return f"HTTPRoute {applied.workload_name} is not accepted by the gateway{why}"
    if applied.routing_surface == "service":
        return (
            ""
            if seen.endpoints_ready
            else f"Service {applied.workload_name} has no ready endpoint"
        )
    name = names.inference_pool_name(applied.workload_name)
    pool = next((pool for pool in seen.pools if pool.name == name), None)
    if pool is None or not pool.accepted:
        return f"InferencePool {name} is not accepted by the gateway"
    return "" if picker_ready(applied, seen) else "the endpoint picker is not ready"


def picker_ready(applied: Applied, seen: ObservedReplica) -> bool:
    """Return whether all endpoint pickers are up to date and gateways know them.

    Gateways resolve the address of a new picker before it becomes available.
    """
    picker = _picker(applied, seen)
    return (
        picker is not None and picker.current and picker.available >= picker.desired > 0
    )


def _picker(applied: Applied, seen: ObservedReplica) -> ObservedWorkload | None:
    name = names.picker_name(applied.workload_name)
    return next(
        (workload for workload in seen.workloads if workload.name == name), None
    )


def holds_floor(
    applied: Applied, seen: ObservedReplica, engines: Sequence[dict[str, Any]]
) -> bool:
    """Return whether a replica that served can still answer.

    It needs a ready serving pod of each phase, an accepted route and, if it has pickers,
    one that is ready. Without it, the gateway answers 500 to every request, whatever
    failure mode the pool has.
    """
    route = next(
        (route for route in seen.routes if route.name == applied.workload_name), None
    )
    if route is None or not route.accepted:
        return False
    picker = _picker(applied, seen)
    if applied.picker_guards and (picker is None or not picker.ready):
        return False
    ready = {
        engine.name: (
            workload_of(engine, seen) or ObservedWorkload(name="", kind="")
        ).pods_ready
        for engine in applied.engines
    }
    phases: dict[str, int] = {}
    for engine in engines:
        phase = engine.get("phase", "")
        phases[phase] = phases.get(phase, 0) + ready.get(engine["name"], 0)
    return bool(phases) and all(phases.values())


def is_complete(applied: Applied, seen: ObservedReplica) -> bool:
    """Return whether all pods of each workload are ready, with whatever template."""
    workloads = [workload_of(engine, seen) for engine in applied.engines]
    return all(
        workload is not None
        and workload.current
        and workload.desired == workload.ready == workload.total > 0
        for workload in workloads
    )


def endpoint_url(address: str, namespace: str, name: str, scheme: str = "http") -> str:
    """Return the replica's address at its cluster's gateway; IPv6 addresses get brackets."""
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}/{namespace}/{name}/v1"


def observed_status(
    applied: Applied, seen: ObservedReplica | None, endpoint: str
) -> dict[str, Any]:
    """Return the status fields for engines, routing and inventory."""
    engines = []
    for engine in applied.engines:
        workload = (workload_of(engine, seen) if seen else None) or ObservedWorkload(
            name="", kind=""
        )
        problem = engine_problem(engine, seen) if seen else ""
        engines.append(
            {
                "name": engine.name,
                "kind": engine.kind,
                "workloadName": engine.workload_name,
                "phase": engine_phase(engine, workload, problem)
                if seen
                else "Applying",
                "desiredCopies": engine.copies,
                "updatedCopies": workload.updated,
                "readyCopies": workload.ready,
                "availableCopies": workload.available,
                "kvBlockSize": engine.kv_block_size,
                "kvBlockSizeSource": engine.kv_block_size_source,
                "message": problem,
            }
        )
    decode = (
        {"connector": applied.connector, "enginePort": applied.decode_port}
        if applied.connector
        else {}
    )
    return {
        "appliedHash": applied.hash,
        "inputsHash": applied.inputs_hash,
        **(
            {
                "pending": {
                    "causes": applied.pending_causes,
                    "workloads": applied.pending,
                }
            }
            if applied.pending
            else {}
        ),
        "workloadName": applied.workload_name,
        "engines": engines,
        "routing": {"surface": applied.routing_surface, **decode, "url": endpoint},
        "inventory": [inventory_item(item) for item in applied.inventory],
    }


def engine_phase(
    engine: AppliedEngine, workload: ObservedWorkload, problem: str
) -> str:
    """Return the phase of an engine; it is Updating while old and new copies run."""
    if not problem:
        return "Ready"
    if workload.total and workload.updated < engine.copies:
        return "Updating"
    return "Degraded" if workload.ready else "Starting"


def inventory_item(item: AppliedObject) -> dict[str, Any]:
    """Return the status of one inventory object."""
    return {"key": item.key, "kind": item.kind, "name": item.name, "hash": item.hash}
