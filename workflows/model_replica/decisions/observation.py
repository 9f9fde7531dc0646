"""What an observation says of a ModelReplica: drift, readiness of engines and routing, and the status fields that show them.

Readiness is by counts at the current template, never by a workload's own Available condition, which tolerates missing copies. Serving has
a floor below Ready: losing one of several copies does not take a model out of service.
"""

from collections.abc import Sequence
from typing import Any

from api_types import names
from api_types.messages.cluster_work import Applied, AppliedEngine, AppliedObject, ObjectIdParts
from api_types.messages.observations import ObservedObject, ObservedReplica, ObservedWorkload


def drift(applied: Applied, seen: ObservedReplica) -> list[AppliedObject]:
    """Give the objects of the inventory that are missing on the cluster or were modified there.

    A copy of a Secret has no digest: it is shared, and no observation of one replica covers it.
    """
    there = {_identity(item): item.digest for item in seen.objects}
    return [item for item in applied.inventory if item.digest and there.get(item.identity) != item.digest]


def drift_message(applied: Applied, seen: ObservedReplica) -> str:
    """Say how each object drifted: `Deployment/x was modified, Service/y is missing`."""
    there = {_identity(item) for item in seen.objects}
    return ", ".join(f"{_title(item)} {'was modified' if item.identity in there else 'is missing'}" for item in drift(applied, seen))


def _identity(item: ObservedObject) -> tuple[str, ...]:
    try:
        return ObjectIdParts.parse(item.id).identity
    except ValueError:
        return (item.id,)


def _title(item: AppliedObject) -> str:
    return f"{item.kind}/{item.name}"


def engine_problem(engine: AppliedEngine, seen: ObservedReplica) -> str:
    """Say why an engine is not ready; empty when it is."""
    workload = workload_of(engine, seen)
    if workload is None:
        return f"{engine.kind} {engine.workload_name} does not exist yet"
    counts = (workload.desired, workload.updated, workload.ready, workload.total)
    wanted = (engine.copies,) * 4
    if workload.current and counts == wanted and _is_current(engine, workload):
        return ""
    tail = f": {workload.blocker}" if workload.blocker else ""
    return f"engine {engine.name} has {workload.ready} of {engine.copies} copies ready, {workload.updated} up to date{tail}"


def _is_current(engine: AppliedEngine, workload: ObservedWorkload) -> bool:
    if workload.kind == "Deployment":
        return workload.available == engine.copies
    # A LeaderWorkerSet reports no observed generation: the pods themselves must carry the templates, those of leaders among them.
    return engine.template_hash in workload.hashes


def workload_of(engine: AppliedEngine, seen: ObservedReplica) -> ObservedWorkload | None:
    """Find an engine's workload among those seen."""
    return next((workload for workload in seen.workloads if workload.name == engine.workload_name), None)


def overdue(applied: Applied, seen: ObservedReplica) -> list[str]:
    """Name the engines whose progress deadline has passed; they may become ready all the same."""
    return [engine.name for engine in applied.engines if (workload := workload_of(engine, seen)) and workload.overdue]


def model_problem(applied: Applied, seen: ObservedReplica) -> str:
    """Say why not every engine is ready; empty when all are."""
    problems = [engine_problem(engine, seen) for engine in applied.engines]
    return "; ".join(problem for problem in problems if problem)


def routing_problem(applied: Applied, seen: ObservedReplica) -> str:
    """Say why requests cannot reach the engines through the cluster's gateway; empty when they can."""
    route = next((route for route in seen.routes if route.name == applied.workload_name), None)
    if route is None:
        return f"HTTPRoute {applied.workload_name} does not exist yet"
    if not route.accepted:
        return f"HTTPRoute {applied.workload_name} is not accepted by the gateway{f': {route.message}' if route.message else ''}"
    if applied.routing_surface == "service":
        return "" if seen.endpoints_ready else f"Service {applied.workload_name} has no ready endpoint"
    name = names.inference_pool_name(applied.workload_name)
    pool = next((pool for pool in seen.pools if pool.name == name), None)
    if pool is None or not pool.accepted:
        return f"InferencePool {name} is not accepted by the gateway"
    return "" if picker_ready(applied, seen) else "the endpoint picker is not ready"


def picker_ready(applied: Applied, seen: ObservedReplica) -> bool:
    """Tell whether the endpoint picker answers, with all its pods up to date."""
    name = names.picker_name(applied.workload_name)
    picker = next((workload for workload in seen.workloads if workload.name == name), None)
    return picker is not None and picker.current and picker.ready == picker.desired > 0


def holds_floor(applied: Applied, seen: ObservedReplica, engines: Sequence[dict[str, Any]]) -> bool:
    """Tell whether a replica that served can still answer: a ready serving pod (of each phase), an accepted route, a picker if it must."""
    route = next((route for route in seen.routes if route.name == applied.workload_name), None)
    if route is None or not route.accepted or (applied.picker_guards and not picker_ready(applied, seen)):
        return False
    ready = {engine.name: (workload_of(engine, seen) or ObservedWorkload(name="", kind="")).pods_ready for engine in applied.engines}
    phases: dict[str, int] = {}
    for engine in engines:
        phase = engine.get("phase", "")
        phases[phase] = phases.get(phase, 0) + ready.get(engine["name"], 0)
    return bool(phases) and all(phases.values())


def endpoint_url(address: str, namespace: str, name: str, scheme: str = "http") -> str:
    """Give the address of a replica through its cluster's gateway; an IPv6 address is bracketed."""
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}/{namespace}/{name}/v1"


def observed_status(applied: Applied, seen: ObservedReplica | None, endpoint: str) -> dict[str, Any]:
    """Give the status fields that show engines, routing and inventory."""
    engines = []
    for engine in applied.engines:
        workload = (workload_of(engine, seen) if seen else None) or ObservedWorkload(name="", kind="")
        problem = engine_problem(engine, seen) if seen else ""
        engines.append(
            {
                "name": engine.name,
                "kind": engine.kind,
                "workloadName": engine.workload_name,
                "phase": engine_phase(engine, workload, problem) if seen else "Applying",
                "desiredCopies": engine.copies,
                "updatedCopies": workload.updated,
                "readyCopies": workload.ready,
                "availableCopies": workload.available,
                "kvBlockSize": engine.kv_block_size,
                "kvBlockSizeSource": engine.kv_block_size_source,
                "message": problem,
            }
        )
    decode = {"connector": applied.connector, "enginePort": applied.decode_port} if applied.connector else {}
    return {
        "appliedHash": applied.hash,
        "inputsHash": applied.inputs_hash,
        **({"pending": {"causes": applied.pending_causes, "workloads": applied.pending}} if applied.pending else {}),
        "workloadName": applied.workload_name,
        "engines": engines,
        "routing": {"surface": applied.routing_surface, **decode, "url": endpoint},
        "inventory": [inventory_item(item) for item in applied.inventory],
    }


def engine_phase(engine: AppliedEngine, workload: ObservedWorkload, problem: str) -> str:
    """Say how far an engine is: with old and new copies side by side it is Updating, with some of its copies Degraded."""
    if not problem:
        return "Ready"
    if workload.total and workload.updated < engine.copies:
        return "Updating"
    return "Degraded" if workload.ready else "Starting"


def inventory_item(item: AppliedObject) -> dict[str, Any]:
    """Show one object of the inventory."""
    return {"key": item.key, "kind": item.kind, "name": item.name, "hash": item.hash}
