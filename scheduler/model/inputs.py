"""The inputs of the scheduler as plain frozen data.

Workflows, activities and the plan command exchange these types. They are not pydantic
models because one decision touches thousands of them. Times are milliseconds since
1970. The order of pools, device entries, engines, members and requests matters; the
order of clusters, replicas, labels and taints does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scheduler.model.decision import AntiAffinity, EnginePlacement
from scheduler.model.devices import DeviceEntry
from scheduler.model.policy import PlacementPolicy
from scheduler.model.reasons import BOUND, RELEASING


@dataclass(frozen=True, slots=True)
class ClusterTaint:
    """A taint of a cluster.

    `since` is when the scheduler first saw it (0 = always there).
    """

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    since: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ClusterToleration:
    """A toleration of a deployment; an empty effect matches both effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """The device entries of one InferenceClass in class order.

    Equal content has an equal digest on every cluster.
    """

    digest: str
    entries: tuple[DeviceEntry, ...]


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """A capacity adapter's observation of a pool, in nodes; negative means unknown.

    Attributes:
        schedulable: nodes that take pods now.
        growable: nodes that the autoscaler may still add.
        foreign: nodes used by others, already excluded from `schedulable`.
        queue_free: nodes that the cluster's admission queue still grants.
        admitted: nodes of this control plane that the queue has already admitted.
        observed_at: time of the observation, in ms.

    """

    schedulable: int = -1
    growable: int = 0
    foreign: int = 0
    queue_free: int = -1
    admitted: int = 0
    observed_at: int = 0


@dataclass(frozen=True, slots=True)
class QueueView:
    """The devices that an admission queue of a cluster would still admit.

    `free` is -1 for any number. No pools means all pools; no tenants means no tenant.
    """

    name: str
    tenants: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    free: int = -1


@dataclass(frozen=True, slots=True)
class AdmissionView:
    """The admission state of one workload of this control plane.

    The state is Admitted, or Pending or Evicted since a time in ms, with the reason.
    """

    workload: str
    state: str
    reason: str = ""
    since: int = 0


@dataclass(frozen=True, slots=True)
class PoolView:
    """A published node pool; each of its nodes has the devices of the set.

    Attributes:
        class_missing: running replicas stay on the pool, and it takes no new ones.
        unusable: why the cluster cannot provide the devices of the pool, or empty. It
            has the effect of `class_missing`.
        shortage: why the cloud has no more nodes for the pool, or empty. Only
            explanations read it.
        price_milli: price of one node-hour in thousandths; negative if unknown.
        network_domain: empty if the pool shares the cluster's plain network.

    """

    name: str
    nodes: int
    device_set: DeviceSet
    class_name: str = ""
    class_missing: bool = False
    network_domain: str = ""
    price_milli: int = -1
    observed: PoolObservation | None = None
    unusable: str = ""
    shortage: str = ""

    @property
    def takes_new(self) -> bool:
        """Whether new replicas may be placed on the pool."""
        return not (self.class_missing or self.unusable)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as published; pools are in published order.

    Attributes:
        accounted: False while a restarted scheduler does not yet know which replicas
            run there; the cluster takes no new replica until then.
        queues: admission queues that a capacity adapter observed at `observed_at` (ms).
        admission: workloads that the adapter observed at the same time.
        unpublished: node pools that are declared but not published, with their class;
            only explanations read it.
        missing_features: keys of the features that the cluster lacks.

    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[ClusterTaint, ...] = ()
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
    missing_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestView:
    """The devices that each pod of a member needs from its node.

    All selectors must accept the device.
    """

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
    """An engine of the template; its members and copies share one pool.

    With `span_pools`, members may use several pools.
    """

    name: str
    members: tuple[MemberView, ...]
    copies: int = 1
    phase: str = ""
    span_pools: bool = False


@dataclass(frozen=True, slots=True)
class CacheView:
    """The ModelCache of a deployment.

    Attributes:
        state: NotReferenced, Unresolved (not read yet), Absent (missing or being
            deleted) or Present.
        name: name of the ModelCache, for messages.
        match_labels: labels of the clusters that stage it; empty = all.
        phases: cluster name to Pending, Hydrating, Ready or Failed.

    """

    state: str = "NotReferenced"
    name: str = ""
    match_labels: Mapping[str, str] = field(default_factory=dict)
    phases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """A deployment as the scheduler sees it.

    `template` is a digest of everything that is copied onto its replicas. `features`
    are the keys of the features that a cluster must have for it.
    """

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    replicas: int = 1
    match_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[ClusterToleration, ...] = ()
    cache: CacheView = field(default_factory=CacheView)
    serving_mode: str = "Unified"
    engines: tuple[EngineView, ...] = ()
    template: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FillGate:
    """Whether a decision may place new replicas; `reason` explains a closed gate."""

    is_open: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KeptReplica:
    """A deployment's knowledge of one of its replicas.

    `ready` means Ready with the template that the ledger records for the replica.
    """

    uid: str
    ready: bool = False
    serving: bool = False
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A replica in the ledger: its identity, its placed engines and its state.

    Attributes:
        engines: the placed engines: pools, pods and resolved requests.
        template: digest of the template that the replica carries, "" if unknown.
        name_counter: number of times a name was changed because of a collision.
        reuse: nodes per pool that releasing replicas of the same deployment still hold.
        since: when the state began, in ms.
        labels: labels of the deployment, for affinity terms of other deployments.
        avoids: required anti-affinity of the deployment.
        origin: uid of the deployment and id of the request that placed the replica,
            from which its uid was made; empty if unknown.
        priority_class: priority class of the deployment; empty if it has none, or if an
            older scheduler did not record it.
        nominated_for: namespace and name of the deployment it was preempted for, whose
            replica gets its nodes.
        held: the charge while pods of an earlier template may still run and hold more
            than `engines`; empty otherwise. An engine may occur several times.
        held_until: the template that the replica must be Ready with before `held` ends.
        after: the releasing replicas that a reserved replica waits for; empty if it
            waits for all on its cluster whose nodes its deployment may reuse.

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
    held: tuple[EnginePlacement, ...] = ()
    held_until: str = ""
    after: tuple[str, ...] = ()

    @property
    def charged(self) -> tuple[EnginePlacement, ...]:
        """Return the engines whose nodes and devices the replica is charged with."""
        return self.held or self.engines

    def as_rolled_out(self) -> LedgerEntry:
        """Return the entry of a replica that has no pods of an earlier template."""
        return replace(self, held=(), held_until="") if self.held else self

    def as_bound(self, since: int) -> LedgerEntry:
        """Return the entry of a started replica.

        The replicas it waited for are gone, so it reuses no nodes any more.
        """
        return replace(self, state=BOUND, since=since, reuse=(), after=())

    def as_releasing(self, since: int) -> LedgerEntry:
        """Return the entry of a released replica.

        The replica holds its nodes until its objects are gone, and it serves no
        traffic.
        """
        return replace(self, state=RELEASING, since=since, ready=False, serving=False)


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """A request to schedule one deployment.

    `kept` overrides the ledger's knowledge of the health of the deployment's replicas.
    """

    request_id: str
    deployment: DeploymentView
    fill: FillGate = field(default_factory=FillGate)
    kept: tuple[KeptReplica, ...] = ()
    dry_run: bool = False
