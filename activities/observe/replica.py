"""Observe one ModelReplica on its cluster, from the records of its objects and pods."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from activities.cluster_objects import kinds
from activities.observe.objects import ObjectSeen, ParentStatusSeen, WorkloadSeen
from activities.observe.pods import PodSeen, WorkloadKey, dominant_reason, ready_groups
from api_types.limits import OBSERVED_MAX
from api_types.messages.observations import (
    ObservedObject,
    ObservedPool,
    ObservedReplica,
    ObservedRoute,
    ObservedWorkload,
)

# Some gateways never write the status of a pool. Then the status of the route is used.
POOL_WITHOUT_STATUS_AFTER = timedelta(seconds=60)


class ReplicaObservation(NamedTuple):
    """An observation, and the time at which it changes by itself (None: never)."""

    observed: ObservedReplica
    changes_at: datetime | None


def observe_replica(
    objects: Iterable[ObjectSeen],
    pods: Mapping[WorkloadKey, Iterable[PodSeen]],
    endpoints: Mapping[tuple[str, str], int],
    now: datetime,
) -> ReplicaObservation:
    """Return the observation of a replica.

    `objects` are the replica's own objects, and `pods` the pods of its workloads.
    `endpoints` counts ready endpoints by (namespace, Service).
    """
    ordered = sorted(objects, key=lambda seen: str(seen.target))[:OBSERVED_MAX]
    routes = [
        ObservedRoute(
            name=seen.target.name,
            accepted=seen.parent_status.accepted,
            message=seen.parent_status.message,
        )
        for seen in ordered
        if seen.parent_status and seen.target.kind == kinds.HTTP_ROUTE
    ]
    routed = bool(routes) and all(route.accepted for route in routes)
    pools = [
        seen.parent_status
        for seen in ordered
        if seen.parent_status and seen.target.kind == kinds.INFERENCE_POOL
    ]
    due = [
        pool.created + POOL_WITHOUT_STATUS_AFTER
        for pool in pools
        if not pool.reported and pool.created + POOL_WITHOUT_STATUS_AFTER > now
    ]
    observed = ObservedReplica(
        objects=[
            ObservedObject(id=str(seen.target), digest=seen.digest) for seen in ordered
        ],
        workloads=[
            _workload(seen, seen.workload, pods) for seen in ordered if seen.workload
        ],
        routes=routes,
        pools=[
            _pool(seen.target.name, seen.parent_status, now, routed=routed)
            for seen in ordered
            if seen.parent_status and seen.target.kind == kinds.INFERENCE_POOL
        ],
        endpoints_ready=sum(
            endpoints.get((seen.target.namespace, seen.target.name), 0)
            for seen in ordered
            if seen.backend
        ),
    )
    return ReplicaObservation(observed, min(due, default=None))


def workload_key(seen: ObjectSeen) -> WorkloadKey:
    """Return the key under which a workload's pods are kept."""
    return WorkloadKey(seen.target.kind.kind, seen.target.namespace, seen.target.name)


def _workload(
    seen: ObjectSeen,
    workload: WorkloadSeen,
    pods: Mapping[WorkloadKey, Iterable[PodSeen]],
) -> ObservedWorkload:
    alive = [pod for pod in pods.get(workload_key(seen), ()) if not pod.terminating]
    hashes = {pod.template_hash for pod in alive}
    serving = [pod for pod in alive if pod.serving and pod.ready]
    ready, available = workload.ready, workload.available
    if workload.group_size:
        # The LeaderWorkerSet controller counts a group as ready when its leader is
        # ready and its followers exist, even if they are Pending.
        groups = ready_groups(alive, workload.group_size)
        ready, available = min(ready, len(groups)), min(available, len(groups))
        serving = [pod for pod in serving if pod.group in groups]
    return ObservedWorkload(
        name=seen.target.name,
        kind=seen.target.kind.kind,
        current=workload.current and (not workload.hashes or hashes <= workload.hashes),
        desired=workload.desired,
        updated=workload.updated,
        ready=ready,
        available=available,
        total=workload.total,
        pods_ready=len(serving),
        hashes=sorted(hashes)[:OBSERVED_MAX],
        blocker=dominant_reason(alive) or workload.message,
        overdue=workload.overdue,
    )


def _pool(
    name: str, pool: ParentStatusSeen, now: datetime, *, routed: bool
) -> ObservedPool:
    if not pool.reported and routed and now >= pool.created + POOL_WITHOUT_STATUS_AFTER:
        return ObservedPool(name=name, accepted=True)
    return ObservedPool(name=name, accepted=pool.accepted, message=pool.message)
