"""What `watch_cluster` observes on a cluster and signals to the owners of the objects.

An observation is the whole state that one owner needs, never a difference: a lost one is replaced by the next (level, not edge).
"""

from pydantic import Field

from api_types.base import Id, Message, Text
from api_types.messages.capacity import CapacitySnapshot
from api_types.messages.cluster_work import ClusterFacts, Seconds
from api_types.messages.versions import ObservationOrder
from api_types.payloads.packing import Compact


class ObservedObject(Message):
    """One applied object as it is on the cluster. `id` as in `AppliedObject`; `digest` is a `content_digest`."""

    id: Id
    digest: Id


class ObservedWorkload(Message):
    """The workload of one engine, in copies.

    `current`: the controller has seen the newest spec. `hashes`: template hashes of its pods that are not terminating. `blocker`: the
    dominant reason why pods are not ready, empty if all are. `pods_ready` counts serving pods with condition Ready, of gangs only those
    whose followers are ready too. `overdue`: its progress deadline has passed, which is a warning and not a failure.
    """

    name: Id
    kind: Id
    current: bool = False
    desired: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    total: int = 0
    pods_ready: int = 0
    hashes: list[Id] = Field(default_factory=list)
    blocker: Text = ""
    overdue: bool = False


class ObservedRoute(Message):
    """The status that its gateway gave an HTTPRoute at the current generation."""

    name: Id
    accepted: bool = False
    message: Text = ""


class ObservedPool(Message):
    """The status that its gateway gave an InferencePool."""

    name: Id
    accepted: bool = False
    message: Text = ""


class ObservedReplica(Message):
    """The observed state of a ModelReplica."""

    objects: list[ObservedObject] = Field(default_factory=list)
    workloads: list[ObservedWorkload] = Field(default_factory=list)
    routes: list[ObservedRoute] = Field(default_factory=list)
    pools: list[ObservedPool] = Field(default_factory=list)
    endpoints_ready: int = 0


class ObservedNodes(Message):
    """The nodes of one pool, in nodes, and its published devices."""

    pool: Id
    total: int = 0
    ready: int = 0
    schedulable: int = 0
    devices: int = 0


class ObservedCluster(Message):
    """The observed state of an InferenceCluster.

    `replicas`: those that have objects there, as namespace/name; None until everything was listed once. `facts` are those that depend on
    no object, with the settings of the worker that watches; None until they were found out. `silent_seconds`: how long an API server that
    is not reachable had not answered when this was observed.
    """

    reachable: bool = True
    silent_seconds: Seconds = 0
    error_type: Id = ""
    error: Text = ""
    gateway_address: Id = ""
    gateway_message: Text = ""
    nodes: list[ObservedNodes] = Field(default_factory=list)
    capacity: CapacitySnapshot | None = None
    replicas: Compact[list[Id] | None] = None
    facts: ClusterFacts | None = None


class ObservedVolume(Message):
    """A volume claim of a cache: its Kubernetes phase, and `digest` as in `ObservedObject`."""

    claim: Id
    phase: Id = ""
    digest: Id = ""


class ObservedJob(Message):
    """A hydration Job. `state` is Running, Complete or Failed; `exit_code` and `message` are those of its last failed pod.

    `blocker` says why its pod does not run, empty if it does. `commit` is what a complete one says that it staged, or empty.
    """

    claim: Id
    uid: Id
    state: Id = "Running"
    exit_code: int = 0
    message: Text = ""
    blocker: Text = ""
    commit: Id = ""


class ObservedCache(Message):
    """The observed state of a ModelCache on one cluster."""

    cluster: Id
    volumes: list[ObservedVolume] = Field(default_factory=list)
    jobs: list[ObservedJob] = Field(default_factory=list)


class Observed(Message):
    """The signal `observed`: exactly one of the parts is set. `order` tells it from older ones."""

    owner_uid: Id
    order: ObservationOrder = ObservationOrder()
    digest: Id
    replica: ObservedReplica | None = None
    cluster: ObservedCluster | None = None
    cache: ObservedCache | None = None
