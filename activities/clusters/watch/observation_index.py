"""The observed state of a cluster, by owner.

Reflectors store records, and the owner of a changed record is queued. An observation is
built from an owner's own records only, so its cost does not grow with the cluster.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import GroupVersionKind, ObjectId
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.cache_observation_index import CacheObservationIndex
from activities.clusters.watch.capacity_tracker import CapacityTracker
from activities.observe.cache import MODEL_CACHE
from activities.observe.capacity import NodeSeen, SliceSeen, observe_nodes
from activities.observe.endpoints import EndpointsSeen
from activities.observe.gateway import UNKNOWN_GATEWAY, GatewayReading, observe_gateway
from activities.observe.objects import ObjectSeen
from activities.observe.pods import PodSeen, WorkloadKey
from activities.observe.replica import observe_replica, workload_key
from activities.watching.reflector import NamespacedName
from api_types.clock import utc_now
from api_types.digests import report_digest
from api_types.limits import REPLICAS_ON_CLUSTER_MAX
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import (
    Observed,
    ObservedCache,
    ObservedCluster,
    ObservedReplica,
)

REPLICA = "ModelReplica"
# The gateway of the cluster follows the same EndpointSlices and responds with 503 until
# it has applied them. Traefik applies them every two seconds.
GATEWAY_FOLLOWS_AFTER = timedelta(seconds=2)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

UNPROVEN = "the gateway has accepted it, but does not serve it yet"

_Identity = tuple[str, ...]


class PendingObservation(NamedTuple):
    """The observation that an owner should get.

    `changes_at` is the time at which it changes without an event, or None for never.
    `last` is True if the owner has no objects on the cluster any more.
    """

    observed: Observed
    changes_at: datetime | None = None
    last: bool = False

    @property
    def digest(self) -> str:
        return self.observed.digest

    def numbered(self, sequence: int) -> Observed:
        """Return the signal with its sequence number within this watch."""
        order = self.observed.order.model_copy(update={"sequence": sequence})
        return self.observed.model_copy(update={"order": order})


class ObservationIndex:
    """The records of one cluster.

    Every owner with changes is passed to `enqueue`. `cluster` is the cluster's own
    entity.
    """

    def __init__(
        self,
        cluster: ObjectOwner,
        enqueue: Callable[[ObjectOwner], None],
        capacity: CapacityTracker | None = None,
    ) -> None:
        self._capacity = capacity
        self.reachable = True
        self.silent_seconds = 0
        self.gateway_answers: bool | None = None
        self.error_type = ""
        self.error = ""
        self.caches = CacheObservationIndex(cluster.name, enqueue)
        self._is_listed = False
        self._cluster = cluster
        self._enqueue = enqueue
        # By identity, because a cluster may later serve the same objects in another
        # version of their kind.
        self._objects: dict[_Identity, ObjectSeen] = {}
        self._owned: defaultdict[ObjectOwner, set[_Identity]] = defaultdict(set)
        self._workloads: dict[WorkloadKey, ObjectOwner] = {}
        self._backends: dict[tuple[str, str], ObjectOwner] = {}
        self._pods: dict[NamespacedName, PodSeen] = {}
        self._pods_of: defaultdict[WorkloadKey, dict[NamespacedName, PodSeen]] = (
            defaultdict(dict)
        )
        self._slices_of: defaultdict[
            tuple[str, str], dict[NamespacedName, EndpointsSeen]
        ] = defaultdict(dict)
        self._endpoint_slices: dict[NamespacedName, EndpointsSeen] = {}
        # For Services with ready endpoints: since when there has been at least one
        # without interruption.
        self._first_ready_at: dict[tuple[str, str], datetime] = {}
        self._nodes: dict[NamespacedName, NodeSeen] = {}
        self._device_slices: dict[NamespacedName, SliceSeen] = {}
        self._gateway: GatewayReading | None = None
        self._facts: ClusterFacts | None = None
        # Routes that no request has proven. Those that exist when the watch begins
        # count as proven.
        self._unproven: dict[_Identity, None] = {}
        self.has_unproven = asyncio.Event()

    def put_listed(self) -> None:
        """Record that all kinds were listed, so all owners on the cluster are known."""
        if not self._is_listed:
            self._is_listed = True
            self._enqueue(self._cluster)

    def owners(self) -> list[ObjectOwner]:
        """Return the cluster, and each replica and cache with objects on it."""
        return [self._cluster, *self._owned, *self.caches.owners()]

    def counts(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        counts = {
            "owners": len(self._owned),
            "objects": len(self._objects),
            "pods": len(self._pods),
            "nodes": len(self._nodes),
        }
        return counts | self.caches.counts()

    def put_object(
        self, kind: GroupVersionKind, key: NamespacedName, seen: ObjectSeen | None
    ) -> None:
        """Store one of Modelplane's objects, or drop it."""
        identity = ObjectId(kind, key.namespace, key.name).identity
        known = self._objects.get(identity)
        owners = {each.owner for each in (known, seen) if each}
        stood = {owner: bool(self._owned.get(owner)) for owner in owners}
        self._put_object(identity, key, seen)
        if any(
            bool(self._owned.get(owner)) != before for owner, before in stood.items()
        ):
            self._enqueue(self._cluster)

    def _put_object(
        self, identity: _Identity, key: NamespacedName, seen: ObjectSeen | None
    ) -> None:
        old = self._objects.pop(identity, None)
        if old:
            self._owned[old.owner].discard(identity)
            self._workloads.pop(workload_key(old), None)
            if old.backend:
                self._backends.pop((key.namespace, key.name), None)
            self._enqueue(old.owner)
        if seen is None or seen.owner.kind != REPLICA:
            self._unproven.pop(identity, None)
            return
        if seen.target.kind == kinds.HTTP_ROUTE:
            if old is None and self._is_listed:
                self._unproven[identity] = None
            if identity in self._unproven:
                self.has_unproven.set()
        self._objects[identity] = seen
        self._owned[seen.owner].add(identity)
        if seen.workload:
            self._workloads[workload_key(seen)] = seen.owner
        if seen.backend:
            self._backends[key.namespace, key.name] = seen.owner
        self._enqueue(seen.owner)

    def unproven_routes(self) -> list[ObjectSeen]:
        """Return the accepted routes of replicas that no request has proven yet."""
        seen = [self._objects[identity] for identity in self._unproven]
        return [each for each in seen if _is_accepted(each)]

    def put_proof(self, route: ObjectSeen) -> None:
        """Record that a request has proven a route."""
        self._unproven.pop(route.target.identity, None)
        self._enqueue(route.owner)

    def put_pod(self, key: NamespacedName, seen: PodSeen | None) -> None:
        """Store one pod of an engine, or drop it."""
        old = self._pods.pop(key, None)
        if old:
            pods = self._pods_of[old.workload]
            pods.pop(key, None)
            if not pods:
                del self._pods_of[old.workload]
        if seen:
            self._pods[key] = seen
            self._pods_of[seen.workload][key] = seen
        for pod in (old, seen):
            owner = self._workloads.get(pod.workload) if pod else None
            if owner:
                self._enqueue(owner)

    def put_endpoints(self, key: NamespacedName, seen: EndpointsSeen | None) -> None:
        """Store one EndpointSlice, or drop it."""
        old = self._endpoint_slices.pop(key, None)
        if old:
            slices = self._slices_of[old.namespace, old.service]
            slices.pop(key, None)
            if not slices:
                del self._slices_of[old.namespace, old.service]
        if seen:
            self._endpoint_slices[key] = seen
            self._slices_of[seen.namespace, seen.service][key] = seen
        services = {
            (each.namespace, each.service): None for each in (old, seen) if each
        }
        for where in services:
            if self._ready_endpoints(where):
                # Endpoints that were ready when the watch began count as ready for
                # long. Otherwise each start of a worker would take replicas out of
                # service.
                self._first_ready_at.setdefault(
                    where, utc_now() if self._is_listed else _LONG_AGO
                )
            else:
                self._first_ready_at.pop(where, None)
            if owner := self._backends.get(where):
                self._enqueue(owner)

    def put_node(self, key: NamespacedName, seen: NodeSeen | None) -> None:
        """Store one node of the pools, or drop it."""
        self._nodes.pop(key, None)
        if seen:
            self._nodes[key] = seen
        self._enqueue(self._cluster)

    def put_device_slice(self, key: NamespacedName, seen: SliceSeen | None) -> None:
        """Store one ResourceSlice, or drop it."""
        self._device_slices.pop(key, None)
        if seen:
            self._device_slices[key] = seen
        self._enqueue(self._cluster)

    def put_capacity(
        self, kind: str, key: NamespacedName, item: dict[str, Any] | None
    ) -> None:
        """Store an object that the capacity adapter reads, or drop it."""
        if self._capacity and self._capacity.objects.put(
            kind, key.namespace, key.name, item
        ):
            self._enqueue(self._cluster)

    def put_gateway(self, seen: GatewayReading | None) -> None:
        self._gateway = seen or observe_gateway(None)
        self._enqueue(self._cluster)

    def put_facts(self, facts: ClusterFacts) -> None:
        """Store the facts about the cluster."""
        if facts != self._facts:
            self._facts = facts
            self._enqueue(self._cluster)

    def put_silence(self, error_type: str, error: str, seconds: float) -> None:
        """Record why and for how long the API server has not responded.

        The text of one error type varies with each attempt. The first text is kept.
        """
        if self.reachable or error_type != self.error_type:
            self.reachable, self.error_type, self.error = False, error_type, error
            self.silent_seconds = round(seconds)
            self._enqueue(self._cluster)

    def put_answer(self, error_type: str = "", error: str = "") -> None:
        """Record that the API server responds, and any refusal to list a kind."""
        if (True, error_type, error) != (self.reachable, self.error_type, self.error):
            self.reachable, self.error_type, self.error = True, error_type, error
            self.silent_seconds = 0
            self._enqueue(self._cluster)

    def put_gateway_answers(self, *, answers: bool | None) -> None:
        """Record whether the gateway answers.

        The cluster's entity needs it only while the API server is silent.
        """
        if answers != self.gateway_answers:
            self.gateway_answers = answers
            if not self.reachable:
                self._enqueue(self._cluster)

    @property
    def gateway_address(self) -> str:
        return self._gateway.address if self._gateway else ""

    def observation_for(self, owner: ObjectOwner, now: datetime) -> PendingObservation:
        """Build the current observation of an owner."""
        if owner == self._cluster:
            observed = self._observe_cluster(now)
            return PendingObservation(
                _observed(owner, cluster=observed),
                self._capacity.due_at() if self._capacity else None,
            )
        if owner.kind == MODEL_CACHE:
            return PendingObservation(
                _observed(owner, cache=self.caches.observation_for(owner)),
                last=self.caches.is_empty(owner),
            )
        return self._observe_replica(owner, now)

    def _observe_replica(self, owner: ObjectOwner, now: datetime) -> PendingObservation:
        objects = [
            _unproven(self._objects[identity])
            if identity in self._unproven
            else self._objects[identity]
            for identity in self._owned.get(owner, set())
        ]
        workloads = [workload_key(seen) for seen in objects if seen.workload]
        pods = {
            key: self._pods_of[key].values()
            for key in workloads
            if key in self._pods_of
        }
        backends = [
            (seen.target.namespace, seen.target.name)
            for seen in objects
            if seen.backend
        ]
        known = {
            where: self._first_ready_at[where] + GATEWAY_FOLLOWS_AFTER
            for where in backends
            if where in self._first_ready_at
        }
        endpoints = {
            where: self._ready_endpoints(where)
            for where, at in known.items()
            if at <= now
        }
        view = observe_replica(objects, pods, endpoints, now)
        changes = [view.changes_at, *(at for at in known.values() if at > now)]
        return PendingObservation(
            _observed(owner, replica=view.observed),
            min(filter(None, changes), default=None),
            last=not objects,
        )

    def _ready_endpoints(self, where: tuple[str, str]) -> int:
        slices = self._slices_of.get(where, {})
        return sum(found.ready for found in slices.values())

    def forget(self, owner: ObjectOwner) -> None:
        """Drop an owner if it has no objects on the cluster."""
        if not self._owned.get(owner, True):
            del self._owned[owner]
        self.caches.forget(owner)

    def _observe_cluster(self, now: datetime) -> ObservedCluster:
        # If a gateway could not be listed, its state is unknown. If its kind is not
        # served, there is no gateway.
        unlisted = observe_gateway(None) if self.reachable else UNKNOWN_GATEWAY
        gateway = self._gateway or unlisted
        return ObservedCluster(
            reachable=self.reachable,
            silent_seconds=self.silent_seconds,
            gateway_answers=self.gateway_answers,
            error_type=self.error_type,
            error=self.error,
            gateway_address=gateway.address,
            gateway_message=gateway.message,
            nodes=observe_nodes(self._nodes.values(), self._device_slices.values()),
            capacity=self._capacity.snapshot(now) if self._capacity else None,
            replicas=self._replicas() if self._is_listed else None,
            facts=self._facts,
        )

    def _replicas(self) -> list[str]:
        found = sorted(
            {
                f"{each.namespace}/{each.name}"
                for each, owned in self._owned.items()
                if owned
            }
        )
        # The cluster reports these objects and may invent them.
        return found[:REPLICAS_ON_CLUSTER_MAX]


def _is_accepted(route: ObjectSeen) -> bool:
    return route.parent_status is not None and route.parent_status.accepted


def _unproven(route: ObjectSeen) -> ObjectSeen:
    """Return an accepted route as one that the gateway does not serve."""
    if route.parent_status is None or not route.parent_status.accepted:
        return route
    status = route.parent_status._replace(accepted=False, message=UNPROVEN)
    return route._replace(parent_status=status)


def _observed(
    owner: ObjectOwner,
    replica: ObservedReplica | None = None,
    cluster: ObservedCluster | None = None,
    cache: ObservedCache | None = None,
) -> Observed:
    content = (replica or cluster or cache or ObservedReplica()).wire()
    return Observed(
        owner_uid=owner.uid,
        digest=report_digest(content),
        replica=replica,
        cluster=cluster,
        cache=cache,
    )
