"""Everything that one ModelReplica should know of its cluster, put together from the records of its objects and pods."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from activities.cluster_objects import kinds
from activities.observe.objects import JudgedSeen, ObjectSeen, WorkloadSeen
from activities.observe.pods import PodSeen, WorkloadKey, dominant, whole_groups
from api_types.messages.observations import ObservedObject, ObservedPool, ObservedReplica, ObservedRoute, ObservedWorkload

# Some gateways never write a pool's status; the route's own verdict then speaks for it.
SILENT_POOL_AFTER = timedelta(seconds=60)


class ReplicaView(NamedTuple):
    """An observation, and when time alone would change it (None: never)."""

    observed: ObservedReplica
    changes_at: datetime | None


def observe_replica(
    objects: Iterable[ObjectSeen],
    pods: Mapping[WorkloadKey, Iterable[PodSeen]],
    endpoints: Mapping[tuple[str, str], int],
    now: datetime,
) -> ReplicaView:
    """Put an observation together.

    `objects` are the replica's own. `pods` are those of its workloads. `endpoints` counts ready endpoints by (namespace, Service).
    """
    ordered = sorted(objects, key=lambda seen: str(seen.target))
    routes = [
        ObservedRoute(name=seen.target.name, accepted=seen.judged.accepted, message=seen.judged.message)
        for seen in ordered
        if seen.judged and seen.target.kind == kinds.HTTP_ROUTE
    ]
    routed = bool(routes) and all(route.accepted for route in routes)
    silent = [seen.judged for seen in ordered if seen.judged and seen.target.kind == kinds.INFERENCE_POOL and not seen.judged.judged]
    due = [pool.created + SILENT_POOL_AFTER for pool in silent if pool.created + SILENT_POOL_AFTER > now]
    observed = ObservedReplica(
        objects=[ObservedObject(id=str(seen.target), digest=seen.digest) for seen in ordered],
        workloads=[_workload(seen, seen.workload, pods) for seen in ordered if seen.workload],
        routes=routes,
        pools=[
            _pool(seen.target.name, seen.judged, now, routed=routed)
            for seen in ordered
            if seen.judged and seen.target.kind == kinds.INFERENCE_POOL
        ],
        endpoints_ready=sum(endpoints.get((seen.target.namespace, seen.target.name), 0) for seen in ordered if seen.backend),
    )
    return ReplicaView(observed, min(due, default=None))


def workload_key(seen: ObjectSeen) -> WorkloadKey:
    """Give the key under which a workload's pods are kept."""
    return WorkloadKey(seen.target.kind.kind, seen.target.namespace, seen.target.name)


def _workload(seen: ObjectSeen, workload: WorkloadSeen, pods: Mapping[WorkloadKey, Iterable[PodSeen]]) -> ObservedWorkload:
    alive = [pod for pod in pods.get(workload_key(seen), ()) if not pod.terminating]
    hashes = {pod.template_hash for pod in alive}
    answering = [pod for pod in alive if pod.serving and pod.ready]
    ready, available = workload.ready, workload.available
    if workload.group_size:
        # The controller of LeaderWorkerSets takes a group for ready once its leader is ready and its followers exist, be they Pending.
        whole = whole_groups(alive, workload.group_size)
        ready, available = min(ready, len(whole)), min(available, len(whole))
        answering = [pod for pod in answering if pod.group in whole]
    return ObservedWorkload(
        name=seen.target.name,
        kind=seen.target.kind.kind,
        current=workload.current and (not workload.hashes or hashes <= workload.hashes),
        desired=workload.desired,
        updated=workload.updated,
        ready=ready,
        available=available,
        total=workload.total,
        pods_ready=len(answering),
        hashes=sorted(hashes),
        blocker=dominant(alive) or workload.message,
        overdue=workload.overdue,
    )


def _pool(name: str, pool: JudgedSeen, now: datetime, *, routed: bool) -> ObservedPool:
    if not pool.judged and routed and now >= pool.created + SILENT_POOL_AFTER:
        return ObservedPool(name=name, accepted=True)
    return ObservedPool(name=name, accepted=pool.accepted, message=pool.message)
