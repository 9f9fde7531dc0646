"""The status of each kind.

These models are tolerant: a status written by a newer or an older release must still be readable. Every kind has the fields of
`ResourceStatus`; a condition type appears once per object.
"""

from typing import Any, Literal

from api_types.resources.parts.base_types import ResourceModel

CacheClusterPhase = Literal["Pending", "Hydrating", "Ready", "Failed"]
ReplicaPhase = Literal["Pending", "Applying", "Starting", "Ready", "Degraded", "Updating", "Unreachable", "Terminating", "Failed"]


class Condition(ResourceModel):
    """One condition of an object, as in Kubernetes."""

    type: str
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is true."""
    reason: str
    """Why, as one word for programs."""
    message: str = ""
    """Why, as a sentence for people."""
    last_transition_time: str
    """When `status` last changed: RFC 3339, UTC."""
    observed_generation: int | None = None
    """The generation of the spec that it is about."""


class EventRecord(ResourceModel):
    """An event of an object; repeats are counted."""

    type: Literal["Normal", "Warning"] = "Normal"
    """Warning if a person may have to act."""
    reason: str
    """What happened, as one word for programs."""
    message: str = ""
    """What happened, as a sentence for people."""
    count: int = 1
    """How often it happened."""
    first: str = ""
    """The first time: RFC 3339, UTC."""
    last: str = ""
    """The last time: RFC 3339, UTC."""


class LastScale(ResourceModel):
    """The last request for a replica count."""

    replicas: int
    """The count."""
    by: str = ""
    """Who requested it."""
    at: str = ""
    """When: RFC 3339, UTC."""
    request_id: str = ""
    """Id of the request."""


class LeftBehind(ResourceModel):
    """An object outside the control plane that a forced teardown did not remove."""

    kind: str
    """What it is."""
    name: str
    """Its name or cloud id."""
    namespace: str = ""
    """Its namespace, if it has one."""
    location: str = ""
    """The cluster, region or account that holds it."""
    reason: str = ""
    """Why it was not removed."""


class ResourceStatus(ResourceModel):
    """What every kind reports."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    conditions: tuple[Condition, ...] = ()
    """One per type."""
    left_behind: tuple[LeftBehind, ...] | None = None
    """Objects that a forced teardown did not remove."""

    def condition(self, condition_type: str) -> Condition | None:
        """Give the condition of that type, or None if there is none yet."""
        return next((condition for condition in self.conditions if condition.type == condition_type), None)


class InferenceClassStatus(ResourceStatus):
    """Conditions only."""


class HandleRef(ResourceModel):
    """A reference by name."""

    name: str
    """The name."""


class GatewayAddress(ResourceModel):
    """Where a gateway can be reached."""

    address: str = ""
    """IP address or host name."""


class CacheCapability(ResourceModel):
    """Where a cluster can store staged weights."""

    storage_class_name: str = ""
    """ReadWriteMany storage class."""


class PublishedDevice(ResourceModel):
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
    """Extended resource to request."""
    count: int | None = None
    """Per node; absent, zero or negative means none."""
    attributes: dict[str, dict[str, Any]] | None = None
    """Attributes by name."""
    capacity: dict[str, dict[str, Any]] | None = None
    """Capacities by name."""


class PublishedPool(ResourceModel):
    """A pool as the scheduler sees it."""

    name: str
    """Pool name."""
    nodes: int | None = None
    """The most nodes it may have; absent, zero or negative means none."""
    devices: tuple[PublishedDevice, ...] = ()
    """The devices of a node."""
    price_milli: int | None = None
    """Price of a node-hour in thousandths; absent when its class has none."""
    class_missing: bool | None = None
    """True once its class is deleted: the pool stays for the replicas on it, and takes no new ones."""


class InferenceClusterStatus(ResourceStatus):
    """What is known of a cluster."""

    provider_config_ref: HandleRef | None = None
    """Set once the cluster was reached, and never removed."""
    gateway: GatewayAddress | None = None
    """The cluster's own inference gateway."""
    cache: CacheCapability | None = None
    """Absent where no cache can be staged."""
    gpu_pools: tuple[PublishedPool, ...] | None = None
    """The capacity to schedule on, in the order of the spec."""
    namespace: str | None = None
    """Where internal objects live."""


class InferenceGatewayStatus(ResourceStatus):
    """Where the gateway is."""

    address: str | None = None
    """External address."""


class ReplicaCounts(ResourceModel):
    """How many replicas a deployment has."""

    total: int = 0
    """Placed now."""
    ready: int = 0
    """Of those, how many are Ready."""


class RolloutProgress(ResourceModel):
    """The rollout of the present template."""

    template_generation: int = 0
    """The generation of the spec that introduced it."""
    updated: int = 0
    """Replicas that have it."""
    updated_ready: int = 0
    """Of those, how many are Ready with it."""
    total: int = 0
    """Placed now."""
    paused: bool = False
    """No further replica is changed until the rollout is resumed."""
    revisions: tuple[int, ...] = ()
    """Generations whose templates `rollout undo` can restore, the oldest first."""


class ModelDeploymentStatus(ResourceStatus):
    """The state of a deployment."""

    replicas: ReplicaCounts | None = None
    """Counts of replicas."""
    selector: str | None = None
    """Label selector of this deployment's replicas, for the scale subresource."""
    last_scale: LastScale | None = None
    """The last accepted request for a replica count."""
    rollout: RolloutProgress | None = None
    """The rollout of the present template."""


class EngineStatus(ResourceModel):
    """One engine of a replica."""

    name: str
    """Engine name."""
    kind: str = ""
    """Kind of its workload."""
    workload_name: str = ""
    """Name of its workload."""
    phase: str = ""
    """Its phase."""
    desired_copies: int = 0
    """Desired copies."""
    updated_copies: int = 0
    """Copies of the newest template."""
    ready_copies: int = 0
    """Copies whose pods are ready."""
    available_copies: int = 0
    """Copies that serve."""
    kv_block_size: int | None = None
    """Tokens per block of the KV cache."""
    kv_block_size_source: str = ""
    """Where that number comes from."""
    message: str = ""
    """What it waits for."""


class RoutingStatus(ResourceModel):
    """How requests reach a replica or an endpoint."""

    surface: str = ""
    """`pool` or `service`."""
    connector: str = ""
    """How the KV cache is transferred from prefill to decode."""
    engine_port: int | None = None
    """The port on which the decode engine listens."""
    url: str = ""
    """Where it is published."""
    backend_name: str = ""
    """The backend object that routes refer to; set once it can be used."""


class ReplicaCacheStatus(ResourceModel):
    """The staged weights that a replica mounts."""

    claim_name: str = ""
    """Volume claim."""
    artefact_key: str = ""
    """What is on the volume."""
    phase: str = ""
    """Phase of staging."""


class InventoryItem(ResourceModel):
    """One object that a replica owns on its cluster."""

    key: str
    """Its role among the objects of the replica."""
    kind: str = ""
    """Kubernetes kind."""
    name: str = ""
    """Its name."""
    hash: str = ""
    """Hash of the rendered object."""


class ModelReplicaStatus(ResourceStatus):
    """The state of one replica."""

    phase: ReplicaPhase | None = None
    """Its phase."""
    applied_hash: str = ""
    """Hash of the objects that were last applied."""
    workload_name: str = ""
    """Base name of its objects on the cluster."""
    engines: tuple[EngineStatus, ...] = ()
    """One per engine."""
    routing: RoutingStatus | None = None
    """How requests reach it."""
    cache: ReplicaCacheStatus | None = None
    """The weights it mounts."""
    inventory: tuple[InventoryItem, ...] = ()
    """Its objects on the cluster: the source of truth for pruning and teardown."""


class ModelServiceStatus(ResourceStatus):
    """Where a service can be reached."""

    address: str | None = None
    """`http://<gateway>/<namespace>/<service>`, without a trailing slash."""


class ModelEndpointStatus(ResourceStatus):
    """Whether an endpoint can be routed to."""

    routing: RoutingStatus | None = None
    """Its backend object."""


class CacheSummary(ResourceModel):
    """Summary of staging."""

    ready: str = "0/0"
    """Ready clusters of matched clusters, such as `2/3`."""


class CacheClusterStatus(ResourceModel):
    """Staging on one cluster."""

    name: str
    """The cluster."""
    phase: CacheClusterPhase = "Pending"
    """Its phase."""
    message: str = ""
    """What it waits for, or why it failed."""
    claim_name: str = ""
    """Volume claim."""
    artefact_key: str = ""
    """What is on the volume."""
    revision: str = ""
    """The commit or digest."""
    attempts: int = 0
    """Attempts to download."""
    started_at: str = ""
    """RFC 3339, UTC."""
    ready_at: str = ""
    """RFC 3339, UTC."""
    retained: bool = False
    """Not selected any more, and kept because a replica still mounts it."""


class ModelCacheStatus(ResourceStatus):
    """Where the weights are."""

    summary: CacheSummary | None = None
    """Summary of staging."""
    clusters: tuple[CacheClusterStatus, ...] = ()
    """One per matched cluster."""
    resolved_revision: str = ""
    """The commit or digest that every cluster stages."""


class ServingStackStatus(ResourceStatus):
    """Where the stack's gateway is."""

    gateway: GatewayAddress | None = None
    """External address."""
