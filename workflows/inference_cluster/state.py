"""All that an InferenceCluster knows; continue-as-new carries it whole.

Where a field has an alias, that is its name in the JSON of every release so far.
"""

from typing import Any

from pydantic import Field

from api_types.base import Message
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import ObservedCluster
from api_types.messages.versions import ObservationVersion, Version
from api_types.payloads.packing import Compact
from api_types.prices import UNPRICED
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.state import EntityState
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.stack_state import StackState


class KnownClass(Message):
    """A class as it last reported itself; the uid is empty in what earlier versions carried."""

    uid: str = ""
    generation: int
    sequence: int = 0
    spec: dict[str, Any]
    price_milli: int = UNPRICED


class ClusterState(EntityState):
    """What a cluster carries.

    Attributes:
        classes: the classes of the pools, by name, as they reported themselves.
        registered_classes: the classes that know that this cluster uses them.
        pools: what is published of the node pools.
        facts: what was found at the last connect; None before the first one.
        connected_generation: the generation with which the cluster was connected; 0: it has to be connected (again).
        failure: why the last attempt to connect failed.
        observed: the last observation; `observed_version`: that of the observation. `watches`: how many observers were started.
        unreachable_since: the time of the last answer of an API server that does not answer; empty while it does.
        unserved_queue: the task queue on which no worker took a task of this cluster in time; empty once one does.
        unwatched_since: since when no observer runs that should; empty when one reported.
        sequence: number of the last report to the scheduler or to replicas.
        epoch: that of the scheduler to which the last report went.
        occupied: the replicas that the scheduler has on this cluster, in its answer to the last report; asked for while deleting only.
        scheduler_digest, replicas_digest, caches_digest: of the last report to each of them.
        repeat_to_replicas, repeat_to_caches: the last report to them is sent again, at `repeat_at`.
        stack: what is known of the serving stack, where it is managed.
        cloud: what is known of the cluster at its cloud, where it is created.
        caches: the caches that have objects here, as namespace/name. `cache_registrations`: the last one of each cache.

    """

    classes: Compact[dict[str, KnownClass]] = Field(default_factory=dict)
    registered_classes: list[str] = Field(default_factory=list, alias="wanted")
    pools: Compact[list[dict[str, Any]]] = Field(default_factory=list)
    facts: ClusterFacts | None = None
    connected_generation: int = 0
    failure: Failure = NO_FAILURE
    observed: ObservedCluster | None = None
    observed_version: ObservationVersion = Field(default_factory=ObservationVersion)
    watches: int = 0
    unreachable_since: str = ""
    unserved_queue: str = ""
    unwatched_since: str = ""
    was_ready: bool = False
    sequence: int = 0
    epoch: int = 0
    occupied: Compact[list[str] | None] = None
    scheduler_digest: str = Field(default="", alias="reported")
    replicas_digest: str = Field(default="", alias="told")
    repeat_to_replicas: bool = Field(default=False, alias="tellAgain")
    caches_digest: str = Field(default="", alias="toldCaches")
    repeat_to_caches: bool = Field(default=False, alias="tellCachesAgain")
    repeat_at: str = ""
    caches: list[str] = Field(default_factory=list)
    cache_registrations: dict[str, Version] = Field(default_factory=dict)
    stack: StackState = Field(default_factory=StackState)
    cloud: CloudLink = Field(default_factory=CloudLink)
