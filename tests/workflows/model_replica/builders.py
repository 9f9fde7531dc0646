"""A replica at rest: applied, observed, Ready and serving.

Each test changes only its subject.
"""

from typing import Any

from api_types.messages.cluster_work import (
    Applied,
    AppliedEngine,
    AppliedObject,
    ClusterFacts,
    Connection,
)
from api_types.messages.entities import ClusterChanged, StartReplica
from api_types.messages.observations import (
    ObservedObject,
    ObservedReplica,
    ObservedRoute,
    ObservedWorkload,
)
from workflows.model_replica.state import ModelReplicaState

WORKLOAD = "qwen-1a2b3c4d"
DEPLOYMENT = AppliedObject(
    key="model-serving-main", id=f"apps/v1/Deployment/ml/{WORKLOAD}-main", digest="d1"
)
SECRET_COPY = AppliedObject(key="secret-hub", id="v1/Secret/ml/mpx-hub")
ENGINE = AppliedEngine(
    name="main",
    kind="Deployment",
    workload_name=f"{WORKLOAD}-main",
    copies=1,
    template_hash="h",
)
APPLIED = Applied(
    hash="h",
    workload_name=WORKLOAD,
    workload_namespace="ml",
    inventory=[DEPLOYMENT],
    engines=[ENGINE],
    routing_surface="service",
)
CLUSTER = ClusterChanged(
    name="eu",
    sequence=1,
    connected=True,
    connection=Connection(cluster="eu", namespace="modelplane-system", name="eu"),
    facts=ClusterFacts(gateway_address="10.0.0.1"),
)


def observed(digest: str = "d1", ready: int = 1, **fields: Any) -> ObservedReplica:
    """Return an observation of the replica.

    Its Deployment with this number of ready pods, and its accepted route.
    """
    workload = ObservedWorkload(
        name=ENGINE.workload_name,
        kind="Deployment",
        current=True,
        desired=1,
        updated=1,
        ready=ready,
        available=ready,
        total=1,
        pods_ready=ready,
    )
    seen = ObservedReplica(
        objects=[ObservedObject(id=DEPLOYMENT.id, digest=digest)],
        workloads=[workload],
        routes=[ObservedRoute(name=WORKLOAD, accepted=True)],
        endpoints_ready=ready,
    )
    return seen.model_copy(update=fields)


def a_replica(**changes: Any) -> ModelReplicaState:
    """Return the state of a replica that serves generation 1."""
    start = StartReplica(
        uid="u",
        namespace="ml",
        name="qwen-eu-0",
        deployment="qwen",
        deployment_uid="d",
        cluster="eu",
        index=0,
        generation=1,
        spec={},
    )
    fields: dict[str, Any] = {
        "uid": "u",
        "generation": 1,
        "spec": {"engines": [{"name": "main"}]},
        "start": start,
        "cluster": CLUSTER,
        "applied": APPLIED,
        "applied_generation": 1,
        "apply_started": True,
        "inventory_complete": True,
        "observed": observed(),
        "serving": True,
        "served": True,
        "was_ready": True,
    }
    state = ModelReplicaState(**(fields | changes))
    if "applied_inputs" not in changes:
        state.applied_inputs = state.inputs()
    if "applied_sources" not in changes:
        state.applied_sources = state.pod_sources()
    return state
