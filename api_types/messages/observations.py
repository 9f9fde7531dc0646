"""Observations of `watch_cluster`, which it signals to the owners of the objects.

An observation contains the whole state that one owner needs, never a difference. The
next observation therefore replaces a lost one (level-triggered, not edge-triggered).
"""

from typing import Annotated

from pydantic import Field

from api_types.base import Id, Message, Name, Text
from api_types.limits import NODE_RESOURCES_MAX
from api_types.messages.capacity import CapacitySnapshot
from api_types.messages.cluster_work import ClusterFacts, Seconds
from api_types.messages.versions import ObservationOrder
from api_types.payloads.packing import Compact


class ObservedObject(Message):
    """One applied object, as observed on the cluster.

    `id` is as in `AppliedObject`; `digest` is a `content_digest`.
    """

    id: Id
    digest: Id


class ObservedWorkload(Message):
    """The workload of one engine, in copies.

    `current`: the controller has seen the newest spec. `hashes`: template hashes of its
    pods that are not terminating. `blocker`: the dominant reason why pods are not
    ready, empty if all are. `pods_ready` counts serving pods with condition Ready; in a
    gang, the followers must be ready too. `overdue`: its progress deadline has passed,
    which is a warning and not a failure.
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
    """The gateway's status of an HTTPRoute at the current generation."""

    name: Id
    accepted: bool = False
    message: Text = ""


class ObservedPool(Message):
    """The gateway's status of an InferencePool."""

    name: Id
    accepted: bool = False
    message: Text = ""


class ObservedReplica(Message):
    objects: list[ObservedObject] = Field(default_factory=list)
    workloads: list[ObservedWorkload] = Field(default_factory=list)
    routes: list[ObservedRoute] = Field(default_factory=list)
    pools: list[ObservedPool] = Field(default_factory=list)
    endpoints_ready: int = 0


class ObservedNodes(Message):
    """The nodes of one pool, in nodes, and its published devices.

    `resources` are the extended resources that any Ready node offers; None if they are
    not reported, as by earlier versions.
    """

    pool: Id
    total: int = 0
    ready: int = 0
    schedulable: int = 0
    devices: int = 0
    resources: Annotated[list[Name], Field(max_length=NODE_RESOURCES_MAX)] | None = None


class ObservedCluster(Message):
    """The observed state of an InferenceCluster.

    `replicas`: the replicas with objects on the cluster, as namespace/name; None until
    the first complete list. `facts` are the facts that depend on no object, with the
    settings of the watching worker; None until they are known. `silent_seconds`: how
    long an unreachable API server had not responded at the time of the observation.
    `gateway_answers`: whether the gateway answers requests; None if it never has.
    """

    reachable: bool = True
    silent_seconds: Seconds = 0
    gateway_answers: bool | None = None
    error_type: Id = ""
    error: Text = ""
    gateway_address: Id = ""
    gateway_message: Text = ""
    nodes: list[ObservedNodes] = Field(default_factory=list)
    capacity: CapacitySnapshot | None = None
    replicas: Compact[list[Id] | None] = None
    facts: ClusterFacts | None = None


class ObservedVolume(Message):
    """A volume claim of a cache. `digest` is as in `ObservedObject`."""

    claim: Id
    phase: Id = ""
    digest: Id = ""


class ObservedJob(Message):
    """A hydration Job.

    `state` is Running, Complete or Failed; `exit_code` and `message` are from its last
    failed pod. `blocker` is the reason why its pod does not run, or empty. `commit` is
    the commit that a complete Job reports as staged, or empty.
    """

    claim: Id
    uid: Id
    state: Id = "Running"
    exit_code: int = 0
    message: Text = ""
    blocker: Text = ""
    commit: Id = ""


class ObservedCache(Message):
    cluster: Id
    volumes: list[ObservedVolume] = Field(default_factory=list)
    jobs: list[ObservedJob] = Field(default_factory=list)


class Observed(Message):
    """The signal `observed`: exactly one of the parts is set.

    `order` orders the signals.
    """

    owner_uid: Id
    order: ObservationOrder = ObservationOrder()
    digest: Id
    replica: ObservedReplica | None = None
    cluster: ObservedCluster | None = None
    cache: ObservedCache | None = None
