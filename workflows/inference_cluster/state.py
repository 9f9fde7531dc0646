"""The state of an InferenceCluster. Continue-as-new carries all of it."""

from typing import Any

from pydantic import Field

from api_types.base import Message
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import ObservedCluster
from api_types.messages.versions import MessageVersion, ObservationVersion
from api_types.payloads.packing import Compact
from api_types.prices import UNPRICED
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.state import EntityState
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.stack_state import StackState

# The limit of the reason of a LeftBehind entry. The state carries hundreds of them.
REASON_BYTES_MAX = 600


class KnownClass(Message):
    """The last report of an InferenceClass. Earlier versions did not carry a uid."""

    uid: str = ""
    generation: int
    sequence: int = 0
    spec: dict[str, Any]
    price_milli: int = UNPRICED


class ClusterState(EntityState):
    """The carried state of an InferenceCluster.

    Attributes:
        classes: the last report of each class that the pools use, by name.
        registered_classes: the classes that know that this cluster uses them.
        pools: the published node pools.
        facts: the facts found by the last connect. None before the first one.
        connected_generation: the generation with which the cluster was connected. 0 if it
            has to connect (again).
        failure: why the last attempt to connect failed.
        observed: the last observation.
        observed_version: the version of the last observation.
        watches: the number of observers started so far.
        unreachable_since: the time of the API server's last answer. Empty while it answers.
        unreachable_noticed: when the observer noticed that. Empty while it answers.
        withdrawn: whether the endpoints on the cluster are withdrawn, because neither its
            API server nor its gateway answers.
        fleet_silent: how many clusters of the fleet are silent, as in `3 of 4`, if that
            is the reason not to withdraw the endpoints. Otherwise empty.
        unserved_queue: the task queue on which no worker accepted a task in time. Empty
            once a worker does.
        unwatched_since: since when no observer runs although one should. Empty once an
            observer has reported.
        sequence: the number of the last report to the scheduler or to replicas.
        epoch: the epoch of the scheduler that received the last report.
        occupied: the replicas that the scheduler has on this cluster, from its answer to
            the last report. Used only during the deletion.
        scheduler_digest, replicas_digest, caches_digest: the digest of the last report to
            each receiver.
        repeat_to_replicas, repeat_to_caches: whether the last report is sent again at
            `repeat_at`.
        stack: the state of the serving stack, if Modelplane manages it.
        cloud: the state of the CloudCluster, if Modelplane creates the cluster.
        caches: the caches that have objects on this cluster, as namespace/name.
        cache_registrations: the version of the last registration of each cache.

    """

    classes: Compact[dict[str, KnownClass]] = Field(default_factory=dict)
    registered_classes: list[str] = Field(default_factory=list)
    pools: Compact[list[dict[str, Any]]] = Field(default_factory=list)
    facts: ClusterFacts | None = None
    connected_generation: int = 0
    failure: Failure = NO_FAILURE
    observed: ObservedCluster | None = None
    observed_version: ObservationVersion = Field(default_factory=ObservationVersion)
    watches: int = 0
    unreachable_since: str = ""
    unreachable_noticed: str = ""
    withdrawn: bool = False
    fleet_silent: str = ""
    unserved_queue: str = ""
    unwatched_since: str = ""
    was_ready: bool = False
    sequence: int = 0
    epoch: int = 0
    occupied: Compact[list[str] | None] = None
    scheduler_digest: str = ""
    replicas_digest: str = ""
    repeat_to_replicas: bool = False
    caches_digest: str = ""
    repeat_to_caches: bool = False
    repeat_at: str = ""
    caches: list[str] = Field(default_factory=list)
    cache_registrations: dict[str, MessageVersion] = Field(default_factory=dict)
    stack: StackState = Field(default_factory=StackState)
    cloud: CloudLink = Field(default_factory=CloudLink)
