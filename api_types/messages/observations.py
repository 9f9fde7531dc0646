"""What `watch_cluster` observes on a cluster and signals to the owners of the objects.

An observation is the whole state that one owner needs, never a difference: a lost one is replaced by the next (level, not edge).
"""

from pydantic import Field

from api_types.base import Message
from api_types.messages.capacity import CapacitySnapshot
from api_types.messages.versions import ObservationOrder
from api_types.packing import Compact


class ObservedObject(Message):
    """One applied object as it is on the cluster. `id` as in `AppliedObject`; `digest` is a `content_digest`."""

    id: str
    digest: str


class ObservedWorkload(Message):
    """The workload of one engine, in copies.

    `current`: the controller has seen the newest spec. `hashes`: template hashes of its pods that are not terminating. `blocker`: the
    dominant reason why pods are not ready, empty if all are. `pods_ready` counts serving pods with condition Ready, of gangs only those
    whose followers are ready too. `overdue`: its progress deadline has passed, which is a warning and not a failure.
    """

    name: str
    kind: str
    current: bool = False
    desired: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    total: int = 0
    pods_ready: int = 0
    hashes: list[str] = Field(default_factory=list)
    blocker: str = ""
    overdue: bool = False


class ObservedRoute(Message):
    """The status that its gateway gave an HTTPRoute at the current generation."""

    name: str
    accepted: bool = False
    message: str = ""


class ObservedPool(Message):
    """The status that its gateway gave an InferencePool."""

    name: str
    accepted: bool = False
    message: str = ""


class ObservedReplica(Message):
    """The observed state of a ModelReplica."""

    objects: list[ObservedObject] = Field(default_factory=list)
    workloads: list[ObservedWorkload] = Field(default_factory=list)
    routes: list[ObservedRoute] = Field(default_factory=list)
    pools: list[ObservedPool] = Field(default_factory=list)
    endpoints_ready: int = 0


class ObservedNodes(Message):
    """The nodes of one pool, in nodes, and its published devices."""

    pool: str
    total: int = 0
    ready: int = 0
    schedulable: int = 0
    devices: int = 0


class ObservedCluster(Message):
    """The observed state of an InferenceCluster.

    `replicas`: those that have objects there, as namespace/name; None until everything was listed once.
    """

    reachable: bool = True
    error_type: str = ""
    error: str = ""
    gateway_address: str = ""
    gateway_message: str = ""
    nodes: list[ObservedNodes] = Field(default_factory=list)
    capacity: CapacitySnapshot | None = None
    replicas: Compact[list[str] | None] = None


class ObservedVolume(Message):
    """A volume claim of a cache: its Kubernetes phase, and `digest` as in `ObservedObject`."""

    claim: str
    phase: str = ""
    digest: str = ""


class ObservedJob(Message):
    """A hydration Job. `state` is Running, Complete or Failed; `exit_code` and `message` are those of its last failed pod.

    `blocker` says why its pod does not run, empty if it does.
    """

    claim: str
    uid: str
    state: str = "Running"
    exit_code: int = 0
    message: str = ""
    blocker: str = ""


class ObservedCache(Message):
    """The observed state of a ModelCache on one cluster."""

    cluster: str
    volumes: list[ObservedVolume] = Field(default_factory=list)
    jobs: list[ObservedJob] = Field(default_factory=list)


class Observed(Message):
    """The signal `observed`: exactly one of the parts is set. `order` tells it from older ones."""

    owner_uid: str
    order: ObservationOrder = ObservationOrder()
    digest: str
    replica: ObservedReplica | None = None
    cluster: ObservedCluster | None = None
    cache: ObservedCache | None = None
