"""The observed state of a cluster, by owner.

Reflectors put records in, and the owner of what changed is queued. An observation is built from an owner's own records only, so its cost
does not grow with the cluster.
"""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from activities.cluster_objects.cluster_api import Kind, ObjectId
from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.cache_observation_index import CacheObservationIndex
from activities.clusters.watch.capacity_tracker import CapacityTracker
from activities.observe.cache import MODEL_CACHE
from activities.observe.capacity import NodeSeen, SliceSeen, observe_nodes
from activities.observe.endpoints import EndpointsSeen
from activities.observe.gateway import UNKNOWN_GATEWAY, GatewayState, observe_gateway
from activities.observe.objects import ObjectSeen
from activities.observe.pods import PodSeen, WorkloadKey
from activities.observe.replica import observe_replica, workload_key
from activities.watching.reflector import Key
from api_types.clock import utc_now
from api_types.digests import report_digest
from api_types.limits import REPLICAS_ON_CLUSTER_MAX
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import Observed, ObservedCache, ObservedCluster, ObservedReplica

REPLICA = "ModelReplica"
# The gateway of the cluster follows the same EndpointSlices, and answers 503 until it has them: Traefik takes them over every two seconds.
GATEWAY_FOLLOWS_AFTER = timedelta(seconds=2)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

_Identity = tuple[str, ...]


class PendingObservation(NamedTuple):
    """What to signal an owner, and when time alone would change it (None: never). `last`: the owner has no objects here any more."""

    observed: Observed
    changes_at: datetime | None = None
    last: bool = False

    @property
    def digest(self) -> str:
        """A digest over the content."""
        return self.observed.digest

    def numbered(self, sequence: int) -> Observed:
        """Give the signal with its place in the order of those of this watch."""
        order = self.observed.order.model_copy(update={"sequence": sequence})
        return self.observed.model_copy(update={"order": order})


class ObservationIndex:
    """The records of one cluster. `enqueue` is called with every owner that has changes; `cluster` is the cluster's own entity."""

    def __init__(self, cluster: Owner, enqueue: Callable[[Owner], None], capacity: CapacityTracker | None = None) -> None:
        self._capacity = capacity
        self.reachable = True
        self.silent_seconds = 0
        self.error_type = ""
        self.error = ""
        self.caches = CacheObservationIndex(cluster.name, enqueue)
        self._is_listed = False
        self._cluster = cluster
        self._enqueue = enqueue
        # By identity: when a cluster serves another version of a kind, the same objects are read in that one.
        self._objects: dict[_Identity, ObjectSeen] = {}
        self._owned: defaultdict[Owner, set[_Identity]] = defaultdict(set)
        self._workloads: dict[WorkloadKey, Owner] = {}
        self._backends: dict[tuple[str, str], Owner] = {}
        self._pods: dict[Key, PodSeen] = {}
        self._pods_of: defaultdict[WorkloadKey, dict[Key, PodSeen]] = defaultdict(dict)
        self._slices_of: defaultdict[tuple[str, str], dict[Key, EndpointsSeen]] = defaultdict(dict)
        self._endpoint_slices: dict[Key, EndpointsSeen] = {}
        # Of Services with ready endpoints: since when there is one at any time.
        self._first_ready_at: dict[tuple[str, str], datetime] = {}
        self._nodes: dict[Key, NodeSeen] = {}
        self._device_slices: dict[Key, SliceSeen] = {}
        self._gateway: GatewayState | None = None
        self._facts: ClusterFacts | None = None

    def put_listed(self) -> None:
        """Record that all kinds were listed, so that it is known which replicas have objects here."""
        if not self._is_listed:
            self._is_listed = True
            self._enqueue(self._cluster)

    def owners(self) -> list[Owner]:
        """Give all owners that are signalled: the cluster itself, and each replica and cache with objects here."""
        return [self._cluster, *self._owned, *self.caches.owners()]

    def counts(self) -> dict[str, int]:
        """Give how much is kept, for the heartbeat."""
        counts = {"owners": len(self._owned), "objects": len(self._objects), "pods": len(self._pods), "nodes": len(self._nodes)}
        return counts | self.caches.counts()

    def put_object(self, kind: Kind, key: Key, seen: ObjectSeen | None) -> None:
        """Keep one object of ours, or drop it."""
        identity = ObjectId(kind, key.namespace, key.name).identity
        known = self._objects.get(identity)
        stood = {owner: bool(self._owned.get(owner)) for each in (known, seen) if each and (owner := each.owner)}
        self._put_object(identity, key, seen)
        if any(bool(self._owned.get(owner)) != before for owner, before in stood.items()):
            self._enqueue(self._cluster)

    def _put_object(self, identity: _Identity, key: Key, seen: ObjectSeen | None) -> None:
        if old := self._objects.pop(identity, None):
            self._owned[old.owner].discard(identity)
            self._workloads.pop(workload_key(old), None)
            if old.backend:
                self._backends.pop((key.namespace, key.name), None)
            self._enqueue(old.owner)
        if seen is None or seen.owner.kind != REPLICA:
            return
        self._objects[identity] = seen
        self._owned[seen.owner].add(identity)
        if seen.workload:
            self._workloads[workload_key(seen)] = seen.owner
        if seen.backend:
            self._backends[key.namespace, key.name] = seen.owner
        self._enqueue(seen.owner)

    def put_pod(self, key: Key, seen: PodSeen | None) -> None:
        """Keep one pod of an engine, or drop it."""
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
            if pod and (owner := self._workloads.get(pod.workload)):
                self._enqueue(owner)

    def put_endpoints(self, key: Key, seen: EndpointsSeen | None) -> None:
        """Keep one EndpointSlice, or drop it."""
        old = self._endpoint_slices.pop(key, None)
        if old:
            slices = self._slices_of[old.namespace, old.service]
            slices.pop(key, None)
            if not slices:
                del self._slices_of[old.namespace, old.service]
        if seen:
            self._endpoint_slices[key] = seen
            self._slices_of[seen.namespace, seen.service][key] = seen
        for where in {(each.namespace, each.service): None for each in (old, seen) if each}:
            if self._ready_endpoints(where):
                # What was ready when the watch began was so before, as far as can be told: a replica is not taken out when a worker starts.
                self._first_ready_at.setdefault(where, utc_now() if self._is_listed else _LONG_AGO)
            else:
                self._first_ready_at.pop(where, None)
            if owner := self._backends.get(where):
                self._enqueue(owner)

    def put_node(self, key: Key, seen: NodeSeen | None) -> None:
        """Keep one node of our pools, or drop it."""
        self._nodes.pop(key, None)
        if seen:
            self._nodes[key] = seen
        self._enqueue(self._cluster)

    def put_device_slice(self, key: Key, seen: SliceSeen | None) -> None:
        """Keep one ResourceSlice, or drop it."""
        self._device_slices.pop(key, None)
        if seen:
            self._device_slices[key] = seen
        self._enqueue(self._cluster)

    def put_capacity(self, kind: str, key: Key, item: dict[str, Any] | None) -> None:
        """Keep an object that the capacity adapter reads, or drop it."""
        if self._capacity and self._capacity.objects.put(kind, key.namespace, key.name, item):
            self._enqueue(self._cluster)

    def put_gateway(self, seen: GatewayState | None) -> None:
        """Keep the state of the gateway."""
        self._gateway = seen or observe_gateway(None)
        self._enqueue(self._cluster)

    def put_facts(self, facts: ClusterFacts) -> None:
        """Keep what is found out about the cluster itself."""
        if facts != self._facts:
            self._facts = facts
            self._enqueue(self._cluster)

    def put_silence(self, error_type: str, error: str, seconds: float) -> None:
        """Keep why the API server does not answer, and since how many seconds.

        The text of one error varies with each attempt. The first one is kept.
        """
        if self.reachable or error_type != self.error_type:
            self.reachable, self.error_type, self.error = False, error_type, error
            self.silent_seconds = round(seconds)
            self._enqueue(self._cluster)

    def put_answer(self, error_type: str = "", error: str = "") -> None:
        """Keep that the API server answers, and its refusal if it refuses the list of a kind."""
        if (True, error_type, error) != (self.reachable, self.error_type, self.error):
            self.reachable, self.error_type, self.error = True, error_type, error
            self.silent_seconds = 0
            self._enqueue(self._cluster)

    def observation_for(self, owner: Owner, now: datetime) -> PendingObservation:
        """Build what an owner should know now."""
        if owner == self._cluster:
            observed = self._observe_cluster(now)
            return PendingObservation(_observed(owner, cluster=observed), self._capacity.due_at() if self._capacity else None)
        if owner.kind == MODEL_CACHE:
            return PendingObservation(_observed(owner, cache=self.caches.observation_for(owner)), last=self.caches.is_empty(owner))
        objects = [self._objects[identity] for identity in self._owned.get(owner, set())]
        pods = {key: self._pods_of[key].values() for seen in objects if seen.workload and (key := workload_key(seen)) in self._pods_of}
        backends = [(seen.target.namespace, seen.target.name) for seen in objects if seen.backend]
        known = {where: since + GATEWAY_FOLLOWS_AFTER for where in backends if (since := self._first_ready_at.get(where))}
        view = observe_replica(objects, pods, {where: self._ready_endpoints(where) for where, at in known.items() if at <= now}, now)
        changes = [view.changes_at, *(at for at in known.values() if at > now)]
        return PendingObservation(_observed(owner, replica=view.observed), min(filter(None, changes), default=None), last=not objects)

    def _ready_endpoints(self, where: tuple[str, str]) -> int:
        return sum(found.ready for found in self._slices_of[where].values()) if where in self._slices_of else 0

    def forget(self, owner: Owner) -> None:
        """Drop an owner that has no objects here any more."""
        if not self._owned.get(owner, True):
            del self._owned[owner]
        self.caches.forget(owner)

    def _observe_cluster(self, now: datetime) -> ObservedCluster:
        # What could not be listed says nothing; where the kind is not served, nothing is listed either.
        unlisted = observe_gateway(None) if self.reachable else UNKNOWN_GATEWAY
        gateway = self._gateway or unlisted
        return ObservedCluster(
            reachable=self.reachable,
            silent_seconds=self.silent_seconds,
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
        found = sorted({f"{owner.namespace}/{owner.name}" for owner, owned in self._owned.items() if owned})
        # The cluster says what stands there, and may make it up.
        return found[:REPLICAS_ON_CLUSTER_MAX]


def _observed(
    owner: Owner, replica: ObservedReplica | None = None, cluster: ObservedCluster | None = None, cache: ObservedCache | None = None
) -> Observed:
    content = (replica or cluster or cache or ObservedReplica()).wire()
    return Observed(owner_uid=owner.uid, digest=report_digest(content), replica=replica, cluster=cluster, cache=cache)
