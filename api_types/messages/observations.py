"""What `watch_cluster` sees on a cluster and tells the owners of it.

An observation is the whole of what one owner should know, never a difference: a lost one is made good by the next.
"""

from pydantic import Field

from api_types.base import Message
from api_types.messages.capacity import CapacitySnapshot


class ObservedObject(Message):
    """One applied object as it stands on the cluster. `id` as in `AppliedObject`; `digest` as `content_digest` makes it."""

    id: str
    digest: str


class ObservedWorkload(Message):
    """The workload of one engine, in copies.

    `current`: the controller has seen the newest spec. `hashes`: template hashes of its pods that are not terminating. `blocker`: the
    dominant reason why pods are not ready, in words, empty if all are. `pods_ready` counts serving pods with condition Ready, of
    gangs only those whose followers are ready too. `overdue`: its progress deadline has passed, which is a warning and no verdict.
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
    """An HTTPRoute as its gateway judged it at the current generation."""

    name: str
    accepted: bool = False
    message: str = ""


class ObservedPool(Message):
    """An InferencePool as its gateway judged it."""

    name: str
    accepted: bool = False
    message: str = ""


class ObservedReplica(Message):
    """All that a ModelReplica should know of its cluster."""

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
    """All that an InferenceCluster should know of itself."""

    reachable: bool = True
    error_type: str = ""
    error: str = ""
    gateway_address: str = ""
    gateway_message: str = ""
    nodes: list[ObservedNodes] = Field(default_factory=list)
    capacity: CapacitySnapshot | None = None


class ObservedVolume(Message):
    """A volume claim of a cache: its phase as Kubernetes words it, and `digest` as in `ObservedObject`."""

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
    """All that a ModelCache should know of one cluster."""

    cluster: str
    volumes: list[ObservedVolume] = Field(default_factory=list)
    jobs: list[ObservedJob] = Field(default_factory=list)


class Observed(Message):
    """The signal `observed`: exactly one of the parts is set."""

    owner_uid: str
    digest: str
    replica: ObservedReplica | None = None
    cluster: ObservedCluster | None = None
    cache: ObservedCache | None = None
