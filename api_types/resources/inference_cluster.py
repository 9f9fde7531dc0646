"""InferenceCluster: one GPU cluster of the fleet, provisioned by the control plane or existing."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from api_types import labels
from api_types.resources.parts.base_types import Advice, CredentialsRef, Manifest, MapKeys, Name63, Name253, NonEmpty, ResourceModel, Whole
from api_types.resources.status import GatewayAddress, ResourceStatus

Source = Literal["GKE", "EKS", "AKS", "Nebius", "Vultr", "Existing"]
TaintEffect = Literal["NoSchedule", "NoExecute"]
IdentityType = Literal["GoogleApplicationCredentials", "AWSWebIdentityCredentials", "NebiusServiceAccountCredentials"]

Location = Annotated[str, Field(min_length=1, max_length=32)]


class KubeconfigRef(ResourceModel):
    """The Secret in `modelplane-system` that holds a kubeconfig."""

    name: Name253
    """Name of the Secret."""
    key: Name253 = "kubeconfig"
    """Key within the Secret."""


class IdentityRef(ResourceModel):
    """The Secret in `modelplane-system` that holds a cloud identity, used with the kubeconfig."""

    name: Name253
    """Name of the Secret."""
    key: Name253 = "private_key"
    """Key within the Secret."""
    type: IdentityType = "GoogleApplicationCredentials"
    """Which cloud it logs in to; must be the cloud that the cluster is on."""


class ExistingCache(ResourceModel):
    """Where an existing cluster stores weights."""

    storage_class_name: Name253 | None = None
    """Existing ReadWriteMany storage class; without it no cache is ever staged here."""


class ExistingCluster(ResourceModel):
    """An existing cluster."""

    secret_ref: KubeconfigRef
    """How to reach it."""
    identity_secret_ref: IdentityRef | None = None
    """The identity to use, where the kubeconfig has none."""
    cache: ExistingCache | None = None
    """Where caches are staged."""


class GkeCluster(ResourceModel):
    """A cluster to create on Google Kubernetes Engine."""

    region: Location
    """Where."""
    kubernetes_version: str = "1.35"
    """Minor or full version."""
    credentials: CredentialsRef | None = None
    """How to reach the cloud; also fixes the project."""
    project: NonEmpty | None = None
    """Deprecated: overrides the project of the credentials."""


class EksCluster(ResourceModel):
    """A cluster to create on Amazon EKS."""

    region: Location
    """Where."""
    kubernetes_version: str = "1.36"
    """Minor version."""
    credentials: CredentialsRef | None = None
    """How to reach the cloud."""


class AksCluster(ResourceModel):
    """A cluster to create on Azure Kubernetes Service."""

    renamed_fields: ClassVar[Mapping[str, str]] = {"region": "location"}

    location: Location
    """Where; Azure says location, not region."""
    kubernetes_version: str = "1.34"
    """Minor or full version."""
    credentials: CredentialsRef | None = None
    """How to reach the cloud."""


class NebiusCluster(ResourceModel):
    """A cluster to create on Nebius; the project of the credentials fixes where."""

    refused_fields: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("region", "location"), "unknown field; the project of the credentials fixes the region on Nebius"
    )

    kubernetes_version: str = "1.34"
    """Minor version."""
    credentials: CredentialsRef | None = None
    """How to reach the cloud."""


class VultrCluster(ResourceModel):
    """A cluster to create on Vultr."""

    region: Location
    """Where."""
    kubernetes_version: str = "v1.36.1+3"
    """Exact version with its build suffix."""
    credentials: CredentialsRef | None = None
    """How to reach the cloud."""


class ClusterOrigin(ResourceModel):
    """Where the cluster comes from. Blocks of other sources may be present and are ignored."""

    source: Source
    """Which of the blocks applies."""
    existing: ExistingCluster | None = None
    """Needed for Existing."""
    gke: GkeCluster | None = None
    """Needed for GKE."""
    eks: EksCluster | None = None
    """Needed for EKS."""
    aks: AksCluster | None = None
    """Needed for AKS."""
    nebius: NebiusCluster | None = None
    """Needed for Nebius; may be empty."""
    vultr: VultrCluster | None = None
    """Needed for Vultr."""


class Taint(ResourceModel):
    """Keeps replicas off this cluster unless their deployment tolerates it."""

    key: NonEmpty
    """Name of the taint."""
    value: str | None = None
    """Absent equals empty."""
    effect: TaintEffect
    """NoSchedule keeps new replicas away; NoExecute also evicts those present."""


class CapacityBlock(ResourceModel):
    """A purchased EC2 Capacity Block."""

    capacity_reservation_id: Annotated[str, Field(min_length=4, max_length=64, pattern=r"^cr-[0-9a-f]+$")]
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
    """Which fabric; only with InfiniBand."""


class NodePool(ResourceModel):
    """GPU nodes of one class. A system pool is added automatically on provisioned clusters."""

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
    """Fixed size, or starting size where a maximum is given."""
    min_node_count: Annotated[Whole, Field(ge=0)] | None = None
    """Lower bound of autoscaling."""
    max_node_count: Annotated[Whole, Field(ge=1)] | None = None
    """Upper bound of autoscaling; also the capacity that the scheduler counts on."""
    zones: tuple[str, ...] | None = None
    """Where the nodes may be; needed on GKE and EKS."""
    capacity_block: CapacityBlock | None = None
    """EKS only."""
    fabric: Fabric | None = None
    """Network between the nodes, for gangs."""

    @property
    def nodes_max(self) -> int:
        """The most nodes this pool may have: what the scheduler counts on."""
        return self.node_count if self.max_node_count is None else self.max_node_count


class InferenceClusterSpec(ResourceModel):
    """What the cluster is and what it is for."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "scheduler": f"field was removed; set annotation {labels.SCHEDULER_TYPE} on the InferenceCluster"
    }

    cluster: ClusterOrigin
    """Where it comes from."""
    taints: Annotated[tuple[Taint, ...], MapKeys(("key", "effect"), "taint")] | None = None
    """What keeps deployments away."""
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


class PoolNodes(ResourceModel):
    """The nodes of one pool, as the cluster reports them."""

    pool: str
    """Pool name."""
    total: int = 0
    """Nodes with the label of the pool."""
    ready: int = 0
    """Of those, how many are Ready."""
    schedulable: int = 0
    """Of those that are Ready, how many take new pods."""
    devices: int = 0
    """Devices that the DRA drivers of these nodes publish."""


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
    nodes: tuple[PoolNodes, ...] = ()
    """The nodes that the cluster has at present."""
    namespace: str | None = None
    """Where internal objects live."""


class InferenceCluster(Manifest):
    """One GPU cluster of the fleet."""

    kind: Literal["InferenceCluster"] = "InferenceCluster"
    """Always InferenceCluster."""
    spec: InferenceClusterSpec
    """What the cluster is."""
    status: InferenceClusterStatus | None = None
    """What the control plane reports."""
