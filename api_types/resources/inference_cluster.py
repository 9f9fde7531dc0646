"""InferenceCluster: one GPU cluster of the fleet, created here or existing."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from api_types import labels
from api_types.resources.parts.base_types import (
    Advice,
    CredentialsRef,
    Manifest,
    MapKeys,
    Name63,
    Name253,
    NonEmpty,
    ResourceModel,
    Whole,
)
from api_types.resources.parts.gke_maintenance import GkeMaintenance
from api_types.resources.status import GatewayAddress, ResourceStatus

Source = Literal["GKE", "EKS", "AKS", "Nebius", "Vultr", "Existing"]
TaintEffect = Literal["NoSchedule", "NoExecute"]
IdentityType = Literal[
    "GoogleApplicationCredentials",
    "AWSWebIdentityCredentials",
    "NebiusServiceAccountCredentials",
]

Location = Annotated[str, Field(min_length=1, max_length=32)]


class KubeconfigRef(ResourceModel):
    """The Secret in `modelplane-system` with a kubeconfig."""

    name: Name253
    """Name of the Secret."""
    key: Name253 = "kubeconfig"
    """Key within the Secret."""


class IdentityRef(ResourceModel):
    """The Secret in `modelplane-system` with a cloud identity for the kubeconfig."""

    name: Name253
    """Name of the Secret."""
    key: Name253 = "private_key"
    """Key within the Secret."""
    type: IdentityType = "GoogleApplicationCredentials"
    """The cloud of the identity; must be the cloud of the cluster."""


class ExistingCache(ResourceModel):
    """Storage for weights on an existing cluster."""

    storage_class_name: Name253 | None = None
    """Existing ReadWriteMany storage class; without it no cache is staged here."""


class ExistingCluster(ResourceModel):
    """An existing cluster."""

    secret_ref: KubeconfigRef
    """The kubeconfig for the cluster."""
    identity_secret_ref: IdentityRef | None = None
    """The identity to use, if the kubeconfig has none."""
    cache: ExistingCache | None = None
    """Storage for caches."""


class GkeCluster(ResourceModel):
    """A cluster to create on Google Kubernetes Engine."""

    region: Location
    """Region."""
    kubernetes_version: str = "1.35"
    """Minor or full version."""
    credentials: CredentialsRef | None = None
    """The cloud credentials; they also determine the project."""
    project: NonEmpty | None = None
    """Deprecated: overrides the project of the credentials."""
    maintenance: GkeMaintenance | None = None
    """When GKE may upgrade the cluster on its own."""
    node_service_account: (
        Annotated[
            str,
            Field(pattern=r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$"),
            Advice(pattern="must be the email address of a service account"),
        ]
        | None
    ) = None
    """Existing account for nodes; by default Modelplane creates one with least rights."""


class EksCluster(ResourceModel):
    """A cluster to create on Amazon EKS."""

    region: Location
    """Region."""
    kubernetes_version: str = "1.36"
    """Minor version."""
    credentials: CredentialsRef | None = None
    """The cloud credentials."""


class AksCluster(ResourceModel):
    """A cluster to create on Azure Kubernetes Service."""

    renamed_fields: ClassVar[Mapping[str, str]] = {"region": "location"}

    location: Location
    """Location, Azure's term for a region."""
    kubernetes_version: str = "1.34"
    """Minor or full version."""
    credentials: CredentialsRef | None = None
    """The cloud credentials."""


class NebiusCluster(ResourceModel):
    """A cluster to create on Nebius, in the project of the credentials."""

    refused_fields: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("region", "location"),
        "unknown field; the project of the credentials fixes the region on Nebius",
    )

    kubernetes_version: str = "1.34"
    """Minor version."""
    credentials: CredentialsRef | None = None
    """The cloud credentials."""


class VultrCluster(ResourceModel):
    """A cluster to create on Vultr."""

    region: Location
    """Region."""
    kubernetes_version: str = "v1.36.1+3"
    """Exact version with its build suffix."""
    credentials: CredentialsRef | None = None
    """The cloud credentials."""


class ClusterOrigin(ResourceModel):
    """The source of the cluster. Blocks of other sources are ignored."""

    source: Source
    """The block that applies."""
    existing: ExistingCluster | None = None
    """Required for Existing."""
    gke: GkeCluster | None = None
    """Required for GKE."""
    eks: EksCluster | None = None
    """Required for EKS."""
    aks: AksCluster | None = None
    """Required for AKS."""
    nebius: NebiusCluster | None = None
    """Required for Nebius; may be empty."""
    vultr: VultrCluster | None = None
    """Required for Vultr."""


class Taint(ResourceModel):
    """Keeps replicas off this cluster unless their deployment tolerates the taint."""

    key: NonEmpty
    """Name of the taint."""
    value: str | None = None
    """Absent equals empty."""
    effect: TaintEffect
    """NoSchedule keeps new replicas away; NoExecute also evicts existing replicas."""


class CapacityBlock(ResourceModel):
    """A purchased EC2 Capacity Block."""

    capacity_reservation_id: Annotated[
        str, Field(min_length=4, max_length=64, pattern=r"^cr-[0-9a-f]+$")
    ]
    """Id of the reservation."""


class InfinibandFabric(ResourceModel):
    """A physical InfiniBand fabric."""

    fabric: Name63
    """Name of the existing fabric; ignored on AKS."""


class Fabric(ResourceModel):
    """The network between the nodes of a pool."""

    type: Literal["None", "EFA", "InfiniBand"] = "None"
    """EFA on EKS; InfiniBand on Nebius and AKS."""
    infiniband: InfinibandFabric | None = None
    """The fabric; only with InfiniBand."""


class NodePool(ResourceModel):
    """GPU nodes of one class. Created clusters also get a system pool."""

    renamed_fields: ClassVar[Mapping[str, str]] = {
        "class": "className",
        "maxNodes": "maxNodeCount",
        "minNodes": "minNodeCount",
        "nodes": "nodeCount",
    }

    name: Annotated[str, Field(max_length=40)]
    """Also the value of the `modelplane.ai/pool` node label."""
    class_name: Name253
    """InferenceClass of the nodes."""
    node_count: Annotated[Whole, Field(ge=0)] = 1
    """Fixed size, or initial size with autoscaling."""
    min_node_count: Annotated[Whole, Field(ge=0)] | None = None
    """Lower bound of autoscaling."""
    max_node_count: Annotated[Whole, Field(ge=1)] | None = None
    """Upper bound of autoscaling, and the capacity that the scheduler assumes."""
    zones: tuple[str, ...] | None = None
    """Zones of the nodes; required on GKE and EKS."""
    capacity_block: CapacityBlock | None = None
    """EKS only."""
    fabric: Fabric | None = None
    """Network between the nodes, for gangs."""

    @property
    def nodes_max(self) -> int:
        """The capacity that the scheduler assumes."""
        return self.node_count if self.max_node_count is None else self.max_node_count


class InferenceClusterSpec(ResourceModel):
    """The desired state of a cluster."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "scheduler": (
            f"field was removed; set annotation {labels.SCHEDULER_TYPE} "
            "on the InferenceCluster"
        )
    }

    cluster: ClusterOrigin
    """The source of the cluster."""
    taints: Annotated[tuple[Taint, ...], MapKeys(("key", "effect"), "taint")] | None = (
        None
    )
    """Taints that keep deployments away."""
    node_pools: (
        Annotated[
            tuple[NodePool, ...],
            Field(min_length=1, max_length=8),
            MapKeys(("name",), "node pool"),
            Advice(too_few="needs at least 1 item, or leave the field out"),
        ]
        | None
    ) = None
    """GPU pools, in the order in which the scheduler tries them."""


class HandleRef(ResourceModel):
    """A reference by name."""

    name: str
    """The name."""


class CacheCapability(ResourceModel):
    """Storage for staged weights."""

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
    """Number per node; absent, zero or negative means none."""
    attributes: dict[str, dict[str, Any]] | None = None
    """Attributes by name."""
    capacity: dict[str, dict[str, Any]] | None = None
    """Capacities by name."""


class PublishedPool(ResourceModel):
    """A pool, for the scheduler."""

    name: str
    """Pool name."""
    nodes: int | None = None
    """The maximum number of nodes; absent, zero or negative means none."""
    devices: tuple[PublishedDevice, ...] = ()
    """The devices of a node."""
    price_milli: int | None = None
    """Price of a node-hour in thousandths; absent if its class has none."""
    class_missing: bool | None = None
    """True after its class is deleted: the pool accepts no new replicas."""
    unusable: str | None = None
    """Why its devices cannot be claimed; if set, the pool accepts no new replicas."""
    shortage: str | None = None
    """Why the cloud has no more nodes for the pool."""


class PoolNodes(ResourceModel):
    """The nodes of one pool, as the cluster reports them."""

    pool: str
    """Pool name."""
    total: int = 0
    """Nodes with the label of the pool."""
    ready: int = 0
    """Number of these nodes that are Ready."""
    schedulable: int = 0
    """Number of Ready nodes that accept new pods."""
    devices: int = 0
    """Devices that the DRA drivers publish for these nodes."""
    resources: tuple[str, ...] | None = None
    """Extended resources that any Ready node offers."""


class CloudObjectStatus(ResourceModel):
    """A pool or another object of a created cluster, at its cloud."""

    object: str | None = None
    """Key of the object, as in the plan; absent for a pool that is not planned."""
    pool: str | None = None
    """Pool in the spec; absent for an object of the whole cluster."""
    kind: str | None = None
    """Kind at the cloud."""
    name: str | None = None
    """Name at the cloud."""
    phase: str | None = None
    """Waiting, Creating, Ready, Differs, Degraded, Broken, Absent or Unknown."""
    ready: bool = False
    """Whether it is as planned, and the cloud reports no problem."""
    reason: str | None = None
    """Type of the problem, such as CapacityUnavailable."""
    code: str | None = None
    """The cloud's code of the problem."""
    message: str | None = None
    """The words of the cloud, or the awaited state."""
    since: str | None = None
    """Since when it has the problem, or is being created."""
    next_step: str | None = None
    """The next step of a person."""
    retry_at: str | None = None
    """When Modelplane tries again."""


class InferenceClusterStatus(ResourceStatus):
    """The observed state of a cluster."""

    provider_config_ref: HandleRef | None = None
    """Set when the cluster is first reached, and never removed."""
    gateway: GatewayAddress | None = None
    """The cluster's own inference gateway."""
    cache: CacheCapability | None = None
    """Absent if no cache can be staged."""
    gpu_pools: tuple[PublishedPool, ...] | None = None
    """The capacity for scheduling, in the order of the spec."""
    missing_features: tuple[str, ...] = ()
    """Features that the cluster lacks, such as `dataParallel`."""
    nodes: tuple[PoolNodes, ...] = ()
    """The current nodes of the cluster."""
    cloud_objects: tuple[CloudObjectStatus, ...] = ()
    """The pools of a created cluster, and its other cloud objects that are not ready."""
    namespace: str | None = None
    """Namespace of internal objects."""


class InferenceCluster(Manifest):
    """One GPU cluster of the fleet."""

    kind: Literal["InferenceCluster"] = "InferenceCluster"
    """Always InferenceCluster."""
    spec: InferenceClusterSpec
    """The desired state."""
    status: InferenceClusterStatus | None = None
    """The state that the control plane reports."""
