"""What the control plane reports about each kind.

These models are tolerant: a status written by a newer or an older release must still open. Every kind shares the fields of
`ResourceStatus`; a condition type appears once per object.
"""

from typing import Any, Literal

from api_types.resources.parts.base_types import Shape

CacheClusterPhase = Literal["Pending", "Hydrating", "Ready", "Failed"]
ReplicaPhase = Literal["Pending", "Applying", "Starting", "Ready", "Degraded", "Updating", "Unreachable", "Terminating", "Failed"]


class Condition(Shape):
    """One statement about an object, as Kubernetes writes conditions."""

    type: str
    """What is stated."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str
    """One word why, for programs."""
    message: str = ""
    """A sentence why, for people."""
    last_transition_time: str
    """When `status` last changed: RFC 3339, UTC."""
    observed_generation: int | None = None
    """The generation of the spec that it speaks of."""


class EventRecord(Shape):
    """Something that happened to an object; repeats are counted."""

    type: Literal["Normal", "Warning"] = "Normal"
    """Whether a person should look."""
    reason: str
    """One word, for programs."""
    message: str = ""
    """A sentence, for people."""
    count: int = 1
    """How often it happened."""
    first: str = ""
    """The first time: RFC 3339, UTC."""
    last: str = ""
    """The last time: RFC 3339, UTC."""


class LastScale(Shape):
    """Who last ordered a replica count."""

    replicas: int
    """The count."""
    by: str = ""
    """Who asked."""
    at: str = ""
    """When: RFC 3339, UTC."""
    request_id: str = ""
    """Of the order."""


class LeftBehind(Shape):
    """An outside object that a forced teardown did not remove."""

    kind: str
    """What it is."""
    name: str
    """Its name or cloud id."""
    namespace: str = ""
    """Its namespace, if it has one."""
    location: str = ""
    """The cluster, region or account that holds it."""
    reason: str = ""
    """Why it stayed."""


class ResourceStatus(Shape):
    """What every kind reports."""

    observed_generation: int = 0
    """The generation of the spec that this status answers."""
    conditions: tuple[Condition, ...] = ()
    """One per type."""
    left_behind: tuple[LeftBehind, ...] | None = None
    """What a forced teardown left in the world."""

    def condition(self, condition_type: str) -> Condition | None:
        """Give the condition of that type, or None while it was never stated."""
        return next((condition for condition in self.conditions if condition.type == condition_type), None)


class InferenceClassStatus(ResourceStatus):
    """Conditions only."""


class HandleRef(Shape):
    """A name under which something is known."""

    name: str
    """The name."""


class GatewayAddress(Shape):
    """Where a gateway answers."""

    address: str = ""
    """IP address or host name."""


class CacheCapability(Shape):
    """Where a cluster can keep staged weights."""

    storage_class_name: str = ""
    """ReadWriteMany storage class."""


class PublishedDevice(Shape):
    """A device of a class as copied to a cluster: same fields, no defaults, no rules."""

    name: str
    """Local name of the device."""
    claim: str | None = None
    """Absent means DRA."""
    driver: str
    """DRA driver."""
    device_class_name: str | None = None
    """DeviceClass to claim through."""
    resource_name: str | None = None
    """Extended resource to ask for."""
    count: int | None = None
    """Per node; absent, zero or negative means none."""
    attributes: dict[str, dict[str, Any]] | None = None
    """Attributes by name."""
    capacity: dict[str, dict[str, Any]] | None = None
    """Capacities by name."""


class PublishedPool(Shape):
    """A pool as the scheduler sees it."""

    name: str
    """Pool name."""
    nodes: int | None = None
    """The most nodes it may have; absent, zero or negative means none."""
    devices: tuple[PublishedDevice, ...] = ()
    """The devices of a node."""
    price_milli: int | None = None
    """Price of a node-hour in thousandths; absent when its class tells none."""
    class_missing: bool | None = None
    """True once its class is gone: kept for the replicas on it, closed to new ones."""


class InferenceClusterStatus(ResourceStatus):
    """What is known of a cluster."""

    provider_config_ref: HandleRef | None = None
    """Set once the cluster was reached, never withdrawn."""
    gateway: GatewayAddress | None = None
    """The cluster's own inference gateway."""
    cache: CacheCapability | None = None
    """Absent where no cache can be staged."""
    gpu_pools: tuple[PublishedPool, ...] | None = None
    """The capacity to schedule on, in the order of the spec."""
    namespace: str | None = None
    """Where internal objects live."""


class InferenceGatewayStatus(ResourceStatus):
    """Where the front door is."""

    address: str | None = None
    """External address."""


class ReplicaCounts(Shape):
    """How many replicas a deployment has."""

    total: int = 0
    """Placed now."""
    ready: int = 0
    """Of those, how many are Ready."""


class RolloutProgress(Shape):
    """How far the present template has come."""

    template_generation: int = 0
    """The generation that brought it."""
    updated: int = 0
    """Replicas that were given it."""
    updated_ready: int = 0
    """Of those, how many are Ready with it."""
    total: int = 0
    """Placed now."""
    paused: bool = False
    """Nothing further is changed until somebody resumes."""
    revisions: tuple[int, ...] = ()
    """Generations whose templates `rollout undo` can bring back, the oldest first."""


class ModelDeploymentStatus(ResourceStatus):
    """How much of a deployment stands."""

    replicas: ReplicaCounts | None = None
    """Counts of replicas."""
    selector: str | None = None
    """Label selector of this deployment's replicas, for the scale subresource."""
    last_scale: LastScale | None = None
    """The last accepted order of a replica count."""
    rollout: RolloutProgress | None = None
    """How far the present template has come."""


class EngineStatus(Shape):
    """One engine of a replica."""

    name: str
    """Engine name."""
    kind: str = ""
    """Kind of its workload."""
    workload_name: str = ""
    """Name of its workload."""
    phase: str = ""
    """How far it is."""
    desired_copies: int = 0
    """Copies asked for."""
    updated_copies: int = 0
    """Copies of the newest template."""
    ready_copies: int = 0
    """Copies whose pods are ready."""
    available_copies: int = 0
    """Copies that serve."""
    kv_block_size: int | None = None
    """Tokens per block of the key-value cache."""
    kv_block_size_source: str = ""
    """Where that number is from."""
    message: str = ""
    """What it waits for."""


class RoutingStatus(Shape):
    """How requests reach a replica or an endpoint."""

    surface: str = ""
    """`pool` or `service`."""
    connector: str = ""
    """How prefill hands over to decode."""
    engine_port: int | None = None
    """The port on which the decode engine listens."""
    url: str = ""
    """Where it is published."""
    backend_name: str = ""
    """The backend object that routes point at; set once usable."""


class ReplicaCacheStatus(Shape):
    """The staged weights that a replica mounts."""

    claim_name: str = ""
    """Volume claim."""
    artefact_key: str = ""
    """What the claim holds."""
    phase: str = ""
    """How far staging is."""


class InventoryItem(Shape):
    """One object that a replica owns on its cluster."""

    key: str
    """What it is for."""
    kind: str = ""
    """Kubernetes kind."""
    name: str = ""
    """Its name."""
    hash: str = ""
    """Of its rendered form."""


class ModelReplicaStatus(ResourceStatus):
    """How one serving instance stands."""

    phase: ReplicaPhase | None = None
    """How far it is."""
    applied_hash: str = ""
    """Of the set of objects last applied."""
    workload_name: str = ""
    """Base name of what it owns."""
    engines: tuple[EngineStatus, ...] = ()
    """One per engine."""
    routing: RoutingStatus | None = None
    """How requests reach it."""
    cache: ReplicaCacheStatus | None = None
    """The weights it mounts."""
    inventory: tuple[InventoryItem, ...] = ()
    """What it owns: the source of truth for pruning and teardown."""


class ModelServiceStatus(ResourceStatus):
    """Where a service answers."""

    address: str | None = None
    """`http://<gateway>/<namespace>/<service>`, without a trailing slash."""


class ModelEndpointStatus(ResourceStatus):
    """Whether an endpoint can be routed to."""

    routing: RoutingStatus | None = None
    """Its backend object."""


class CacheSummary(Shape):
    """Staging in one line."""

    ready: str = "0/0"
    """Ready clusters of matched clusters, such as `2/3`."""


class CacheClusterStatus(Shape):
    """Staging on one cluster."""

    name: str
    """The cluster."""
    phase: CacheClusterPhase = "Pending"
    """How far it is."""
    message: str = ""
    """What it waits for, or why it failed."""
    claim_name: str = ""
    """Volume claim."""
    artefact_key: str = ""
    """What the claim holds."""
    revision: str = ""
    """The commit or digest."""
    attempts: int = 0
    """Downloads tried."""
    started_at: str = ""
    """RFC 3339, UTC."""
    ready_at: str = ""
    """RFC 3339, UTC."""
    retained: bool = False
    """Kept only because a replica still mounts it."""


class ModelCacheStatus(ResourceStatus):
    """Where the weights are."""

    summary: CacheSummary | None = None
    """In one line."""
    clusters: tuple[CacheClusterStatus, ...] = ()
    """One per matched cluster."""
    resolved_revision: str = ""
    """The commit or digest that every cluster stages."""


class ServingStackStatus(ResourceStatus):
    """Where the stack's gateway is."""

    gateway: GatewayAddress | None = None
    """External address."""
