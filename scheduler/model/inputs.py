"""What the scheduler reads, as plain frozen data.

Workflows, activities and the plan command exchange these; nothing here is a pydantic model, because one decision touches thousands of
them. Times are milliseconds since 1970, counts are whole numbers. Order of pools, device entries, engines, members and requests carries
meaning; order of clusters, replicas, labels and taints does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scheduler.model.decision import AntiAffinity, EnginePlacement
from scheduler.model.devices import DeviceEntry
from scheduler.model.policy import PlacementPolicy
from scheduler.model.reasons import BOUND, RELEASING


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps deployments off a cluster; `since` is when the scheduler first saw it (0 = always there)."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    since: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Toleration:
    """Lets a deployment onto tainted clusters; an empty effect matches both effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """The device entries of one InferenceClass in class order; equal content has an equal digest on every cluster."""

    digest: str
    entries: tuple[DeviceEntry, ...]


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """What a capacity adapter observed of a pool, in nodes; a negative number means that the adapter does not know.

    Attributes:
        schedulable: nodes that take pods now.
        growable: nodes that the autoscaler may still add.
        foreign: nodes used by others, already left out of `schedulable`.
        queue_free: nodes that the cluster's admission queue still grants.
        admitted: nodes of this control plane that the queue has admitted already.
        observed_at: when, in ms.

    """

    schedulable: int = -1
    growable: int = 0
    foreign: int = 0
    queue_free: int = -1
    admitted: int = 0
    observed_at: int = 0


@dataclass(frozen=True, slots=True)
class QueueView:
    """What an admission queue of a cluster would still admit, in devices; -1 = any number. No pools = all, no tenants = none."""

    name: str
    tenants: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    free: int = -1


@dataclass(frozen=True, slots=True)
class AdmissionView:
    """Whether the cluster admitted a workload of this control plane: Admitted, or Pending or Evicted since a time in ms, and why."""

    workload: str
    state: str
    reason: str = ""
    since: int = 0


@dataclass(frozen=True, slots=True)
class PoolView:
    """A published node pool: so many nodes, each with the devices of the set.

    With `class_missing` running replicas stay pinned to the pool, and it takes no new one. `price_milli` is the price of one node-hour in
    thousandths, negative when unknown. `network_domain` is empty when the pool shares the cluster's plain network.
    """

    name: str
    nodes: int
    device_set: DeviceSet
    class_name: str = ""
    class_missing: bool = False
    network_domain: str = ""
    price_milli: int = -1
    observed: PoolObservation | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as published: its labels, taints and readiness, and its capacity; pools in published order.

    `accounted` is False while a restarted scheduler does not yet know what runs there: no new replica then. `queues` and `admission` are
    what a capacity adapter observed at `observed_at` (ms). `unpublished` names the node pools that are declared and not published, with
    their class: only explanations read it.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = False
    gateway_address: str = ""
    deleting: bool = False
    cache_storage_class: str = ""
    pools: tuple[PoolView, ...] = ()
    accounted: bool = True
    generation: int = 0
    queues: tuple[QueueView, ...] = ()
    admission: tuple[AdmissionView, ...] = ()
    observed_at: int = 0
    unpublished: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestView:
    """Devices that each pod of a member needs from its node: `count` of a kind that all selectors accept."""

    name: str
    count: int = 1
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberView:
    """A part of an engine: one pod, or `worker_nodes` pods for a Worker."""

    role: str = "Standalone"
    worker_nodes: int = 1
    requests: tuple[RequestView, ...] = ()
    pods_per_node: int = 1


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine of the template; all its members and copies share one pool."""

    name: str
    members: tuple[MemberView, ...]
    copies: int = 1
    phase: str = ""
    span_pools: bool = False


@dataclass(frozen=True, slots=True)
class CacheView:
    """The ModelCache of a deployment.

    Attributes:
        state: NotReferenced, Unresolved (not read yet), Absent (does not exist, or is being deleted) or Present.
        name: its name, for messages.
        match_labels: the clusters that stage it; empty = all.
        phases: cluster name to Pending, Hydrating, Ready or Failed.

    """

    state: str = "NotReferenced"
    name: str = ""
    match_labels: Mapping[str, str] = field(default_factory=dict)
    phases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """What a deployment wants. `template` is a digest of everything that is copied onto its replicas."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    replicas: int = 1
    match_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    cache: CacheView = field(default_factory=CacheView)
    serving_mode: str = "Unified"
    engines: tuple[EngineView, ...] = ()
    template: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)


@dataclass(frozen=True, slots=True)
class FillGate:
    """Whether new replicas may be placed this time; `reason` says why not."""

    is_open: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KeptReplica:
    """What a deployment knows of one of its replicas; `ready` means Ready with the template that the ledger has for it."""

    uid: str
    ready: bool = False
    serving: bool = False
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A replica as the ledger knows it: its identity, its placed engines, and its state.

    Attributes:
        engines: as placed: pools, pods and resolved requests.
        template: digest of the template it carries, "" when unknown.
        name_counter: how often another name was made because of a collision.
        reuse: nodes per pool that releasing replicas of its own deployment still hold.
        since: when its state began, in ms.
        labels: of its deployment, by which affinity terms of others find it.
        avoids: required anti-affinity of its deployment.
        origin: uid of the deployment and id of the request that placed it, from which its uid was made; empty when unknown.
        priority_class: of its deployment; empty for none, and for an entry of a scheduler that did not keep it.
        nominated_for: namespace and name of the deployment it was preempted for, whose replica gets its nodes.

    """

    uid: str
    namespace: str
    deployment: str
    cluster: str
    index: int
    name: str
    engines: tuple[EnginePlacement, ...]
    state: str = BOUND
    priority: int = 0
    since: int = 0
    ready: bool = False
    serving: bool = False
    template: str = ""
    name_counter: int = 0
    reuse: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    min_available: int = 0
    avoids: AntiAffinity = ()
    nominated_for: tuple[str, str] | None = None
    origin: tuple[str, str] = ("", "")
    priority_class: str = ""

    def as_bound(self, since: int) -> LedgerEntry:
        """Give the entry once its replica was started: what it waited for is gone, and no nodes of others pay for it any more."""
        return replace(self, state=BOUND, since=since, reuse=())

    def as_releasing(self, since: int) -> LedgerEntry:
        """Give the entry once its replica is released: it holds its nodes until its objects are gone, and serves no traffic."""
        return replace(self, state=RELEASING, since=since, ready=False, serving=False)


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A request to schedule one deployment; `kept` overrides what the ledger knows of its replicas' health."""

    request_id: str
    deployment: DeploymentView
    fill: FillGate = field(default_factory=FillGate)
    kept: tuple[KeptReplica, ...] = ()
    dry_run: bool = False
