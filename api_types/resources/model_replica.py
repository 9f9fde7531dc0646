"""ModelReplica: one complete serving instance pinned to one cluster, written by the control plane.

Its spec is a deployment's template with the placement filled in; engines are directly under `spec`.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.model_deployment import DeviceSelector, ModelCacheRef
from api_types.resources.parts.adapters import Adapters
from api_types.resources.parts.base_types import Advice, Manifest, MapKeys, Name63, Name253, NonEmpty, ResourceModel, Whole
from api_types.resources.parts.disruption import Disruption, EngineDrain
from api_types.resources.parts.engines import Copies, EngineName, Engines, Members, Phase, PodsPerNode, Role, Serving, Worker
from api_types.resources.parts.parallel import DataParallel
from api_types.resources.parts.pod_template import PodTemplate
from api_types.resources.parts.probes import Probes
from api_types.resources.parts.topology import Topology
from api_types.resources.status import ResourceStatus, RoutingStatus

ReplicaPhase = Literal["Pending", "Applying", "Starting", "Ready", "Degraded", "Updating", "Unreachable", "Terminating", "Failed"]


class ResolvedRequest(ResourceModel):
    """A device request and the way in which the chosen pool grants it; exactly one of class and resource."""

    name: Name63
    """Name of the request."""
    device_class_name: Name253 | None = None
    """DeviceClass to claim through."""
    resource_name: Name253 | None = None
    """Extended resource to request."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """How many, per node."""
    selectors: Annotated[tuple[DeviceSelector, ...], Field(max_length=8)] | None = None
    """Copied unchanged from the deployment."""


class ReplicaMember(ResourceModel):
    """One kind of pod of an engine, pinned to a pool."""

    role: Role = "Standalone"
    """Standalone alone, or one Leader and one Worker."""
    node_pool_name: NonEmpty
    """Pool chosen for it; members that claim nothing get their engine's pool."""
    device_requests: (
        Annotated[
            tuple[ResolvedRequest, ...],
            Field(min_length=1, max_length=16),
            MapKeys(("name",), "device request"),
            Advice(too_few="must not be empty, leave it out when nothing is claimed"),
        ]
        | None
    ) = None
    """What it claims; absent when nothing is claimed."""
    worker: Worker | None = None
    """Only on a Worker; absent there means one follower."""
    pods_per_node: PodsPerNode | None = None
    """How many pods of this member may share a node; absent means one."""
    probes: Probes | None = None
    """How long the engine may load, and when it is hung; not on a Worker."""
    template: PodTemplate
    """The pod."""

    @property
    def worker_nodes(self) -> int:
        """Follower pods of a Worker: one by default."""
        return self.worker.nodes if self.worker else 1


class ReplicaEngine(ResourceModel):
    """One serving unit of the replica."""

    name: EngineName
    """Part of workload names."""
    copies: Copies = 1
    """Identical copies."""
    phase: Phase | None = None
    """Which half of PrefillDecode it is."""
    drain: EngineDrain | None = None
    """How its pods stop; absent stops them at once, with the platform's grace period."""
    topology: Topology | None = None
    """How close together its pods and their devices are; absent leaves it to the cluster."""
    adapters: Adapters | None = None
    """LoRA adapters, mounted beside the model."""
    data_parallel: DataParallel | None = None
    """Ranks within each serving pod; absent means one."""
    members: Members[ReplicaMember]
    """One Standalone, or one Leader and one Worker."""


class ModelReplicaSpec(ResourceModel):
    """What runs where."""

    renamed_fields: ClassVar[Mapping[str, str]] = {"inferenceClusterRef": "clusterName"}
    refused_fields: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("clusterSelector", "nodeSelector", "replicas", "template", "tolerations"),
        "unknown field; it belongs to the ModelDeployment, a ModelReplica is already placed",
    )

    cluster_name: NonEmpty
    """The InferenceCluster; never changes."""
    model_cache_ref: ModelCacheRef | None = None
    """Staged weights."""
    serving: Serving | None = None
    """Absent means Unified."""
    disruption: Disruption | None = None
    """What evictions on the cluster must leave of it; absent allows every eviction."""
    engines: Engines[ReplicaEngine]
    """Serving units."""

    @property
    def serving_mode(self) -> str:
        """Unified by default."""
        return self.serving.mode if self.serving else "Unified"


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


class ReplicaCacheStatus(ResourceModel):
    """The staged weights that a replica mounts."""

    claim_name: str = ""
    """Volume claim."""
    artifact_key: str = Field(default="", alias="artefactKey")
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


class PendingChange(ResourceModel):
    """Pods that would be other ones if they were made now, and stay until a rollout."""

    causes: tuple[str, ...] = ()
    """Why they would be."""
    workloads: tuple[str, ...] = ()
    """Keys of their workloads in the inventory."""


class TeardownStepStatus(ResourceModel):
    """One step of a teardown."""

    number: int
    """Its place in the order."""
    title: str = ""
    """What it does."""
    state: str = ""
    """How far it is."""


class RemainingObjectStatus(ResourceModel):
    """An object that a teardown waits for."""

    object: str
    """API version, kind, namespace and name on the cluster."""
    why: str = ""
    """What keeps it."""


class TeardownStatus(ResourceModel):
    """How far the teardown of a replica is."""

    step: int
    """Number of the current step."""
    since: str = ""
    """When it began: RFC 3339, UTC."""
    steps: tuple[TeardownStepStatus, ...] = ()
    """All steps, in order."""
    waiting_for: tuple[RemainingObjectStatus, ...] = ()
    """What the current step waits for."""
    problem: str = ""
    """Why its last attempt failed."""


class ModelReplicaStatus(ResourceStatus):
    """The state of one replica."""

    phase: ReplicaPhase | None = None
    """Its phase."""
    applied_hash: str = ""
    """Hash of the objects that were last applied."""
    inputs_hash: str = ""
    """Hash of all that they were rendered from besides the spec."""
    pending: PendingChange | None = None
    """Pods that stay although they would be other ones now; absent if there are none."""
    adoption: int | None = None
    """Number of the last rollout of the deployment that replaced its pods for such a change."""
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
    teardown: TeardownStatus | None = None
    """How far its deletion is; absent while it is not being deleted."""


class ModelReplica(Manifest):
    """One serving instance."""

    kind: Literal["ModelReplica"] = "ModelReplica"
    """Always ModelReplica."""
    spec: ModelReplicaSpec
    """What runs where."""
    status: ModelReplicaStatus | None = None
    """What the control plane reports."""
