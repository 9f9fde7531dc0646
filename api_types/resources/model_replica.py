"""ModelReplica: one serving instance on a cluster, written by the control plane.

Its spec is a deployment's template with the placement filled in; engines are directly
under `spec`.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.model_deployment import DeviceSelector, ModelCacheRef
from api_types.resources.parts.adapters import Adapters
from api_types.resources.parts.base_types import (
    Advice,
    Manifest,
    MapKeys,
    Name63,
    Name253,
    NonEmpty,
    ResourceModel,
    Whole,
)
from api_types.resources.parts.disruption import Disruption, EngineDrain
from api_types.resources.parts.engine_profile import ProfileOverrides
from api_types.resources.parts.engines import (
    Copies,
    EngineName,
    Engines,
    Members,
    Phase,
    PodsPerNode,
    Role,
    Serving,
    Worker,
)
from api_types.resources.parts.parallel import DataParallel
from api_types.resources.parts.pod_template import PodTemplate
from api_types.resources.parts.probes import Probes
from api_types.resources.parts.topology import Topology
from api_types.resources.status import ResourceStatus, RoutingStatus

ReplicaPhase = Literal[
    "Pending",
    "Applying",
    "Starting",
    "Ready",
    "Degraded",
    "Updating",
    "Unreachable",
    "Terminating",
    "Failed",
]


class ResolvedRequest(ResourceModel):
    """A device request with the placement's way to claim it.

    At most one of class and resource is set. Without them the devices are slots, which
    the pod does not claim.
    """

    name: Name63
    """Name of the request."""
    device_class_name: Name253 | None = None
    """DeviceClass for the claim."""
    resource_name: Name253 | None = None
    """Extended resource to request."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """Number per node."""
    selectors: Annotated[tuple[DeviceSelector, ...], Field(max_length=8)] | None = None
    """Copied unchanged from the deployment."""


class ReplicaMember(ResourceModel):
    """One type of pod of an engine, pinned to a pool."""

    role: Role = "Standalone"
    """Standalone alone, or one Leader and one Worker."""
    node_pool_name: NonEmpty
    """The selected pool; members without claims get their engine's pool."""
    device_requests: (
        Annotated[
            tuple[ResolvedRequest, ...],
            Field(min_length=1, max_length=16),
            MapKeys(("name",), "device request"),
            Advice(too_few="must not be empty, leave it out when nothing is claimed"),
        ]
        | None
    ) = None
    """The claimed devices; absent if there are none."""
    worker: Worker | None = None
    """Only on a Worker; absent there means one follower."""
    pods_per_node: PodsPerNode | None = None
    """Number of pods of this member that may share a node; absent means one."""
    probes: Probes | None = None
    """The time limit for loading, and the liveness check; not on a Worker."""
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
    """Its role with PrefillDecode."""
    profile: ProfileOverrides | None = None
    """How it listens and reports its health; absent: inferred from command and image."""
    drain: EngineDrain | None = None
    """How its pods stop. Absent: immediately, with the platform's grace period."""
    topology: Topology | None = None
    """The locality of its pods and their devices; absent leaves it to the cluster."""
    adapters: Adapters | None = None
    """LoRA adapters, mounted in addition to the model."""
    data_parallel: DataParallel | None = None
    """Ranks within each serving pod; absent means one."""
    members: Members[ReplicaMember]
    """One Standalone, or one Leader and one Worker."""


class ModelReplicaSpec(ResourceModel):
    """The desired state of a replica."""

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
    """The minimum that evictions on the cluster leave; absent allows every eviction."""
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
    """Copies with the newest template."""
    ready_copies: int = 0
    """Copies whose pods are ready."""
    available_copies: int = 0
    """Copies that serve."""
    kv_block_size: int | None = None
    """Tokens per block of the KV cache."""
    kv_block_size_source: str = ""
    """Source of that number."""
    message: str = ""
    """Reason for waiting."""


class ReplicaCacheStatus(ResourceModel):
    """The staged weights that a replica mounts."""

    claim_name: str = ""
    """Volume claim."""
    artifact_key: str = Field(default="", alias="artefactKey")
    """Key of the artifact on the volume."""
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
    """Outdated pods that stay until a rollout."""

    causes: tuple[str, ...] = ()
    """Reasons to replace them."""
    workloads: tuple[str, ...] = ()
    """Keys of their workloads in the inventory."""


class TeardownStepStatus(ResourceModel):
    """One step of a teardown."""

    number: int
    """Its place in the order."""
    title: str = ""
    """Title of the step."""
    state: str = ""
    """Progress of the step."""


class RemainingObjectStatus(ResourceModel):
    """An object that a teardown waits for."""

    object: str
    """API version, kind, namespace and name on the cluster."""
    why: str = ""
    """Reason why it still exists."""


class TeardownStatus(ResourceModel):
    """Progress of the teardown of a replica."""

    step: int
    """Number of the current step."""
    since: str = ""
    """Start of the step: RFC 3339, UTC."""
    steps: tuple[TeardownStepStatus, ...] = ()
    """All steps, in order."""
    waiting_for: tuple[RemainingObjectStatus, ...] = ()
    """Objects that the current step waits for."""
    problem: str = ""
    """Error of its last attempt."""


class ModelReplicaStatus(ResourceStatus):
    """The state of one replica."""

    phase: ReplicaPhase | None = None
    """Its phase."""
    applied_hash: str = ""
    """Hash of the objects that were last applied."""
    inputs_hash: str = ""
    """Hash of all input of rendering except the spec."""
    pending: PendingChange | None = None
    """Outdated pods that stay; absent if there are none."""
    adoption: int | None = None
    """Number of the deployment's last rollout that replaced its outdated pods."""
    workload_name: str = ""
    """Base name of its objects on the cluster."""
    engines: tuple[EngineStatus, ...] = ()
    """One per engine."""
    routing: RoutingStatus | None = None
    """Routing of requests to it."""
    cache: ReplicaCacheStatus | None = None
    """The weights that it mounts."""
    inventory: tuple[InventoryItem, ...] = ()
    """Its objects on the cluster: the source of truth for pruning and teardown."""
    teardown: TeardownStatus | None = None
    """Progress of its deletion; absent if it is not being deleted."""


class ModelReplica(Manifest):
    """One serving instance."""

    kind: Literal["ModelReplica"] = "ModelReplica"
    """Always ModelReplica."""
    spec: ModelReplicaSpec
    """The desired state."""
    status: ModelReplicaStatus | None = None
    """The state that the control plane reports."""
