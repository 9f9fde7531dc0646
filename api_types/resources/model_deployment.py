"""ModelDeployment: the model, the devices of each pod, and the number of replicas."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.limits import REPLICAS_MAX, REQUESTS_MAX
from api_types.resources.inference_cluster import TaintEffect
from api_types.resources.parts import misplaced
from api_types.resources.parts.adapters import Adapters
from api_types.resources.parts.base_types import (
    Advice,
    Flag,
    Labels,
    LabelSelector,
    Manifest,
    MapKeys,
    Name63,
    NonEmpty,
    ResourceModel,
    Whole,
)
from api_types.resources.parts.disruption import (
    Disruption,
    DrainBudget,
    EngineDrain,
    Rollout,
)
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
from api_types.resources.parts.scheduling import Scheduling
from api_types.resources.parts.topology import Topology
from api_types.resources.status import LastScale, ResourceStatus


class DeviceSelector(ResourceModel):
    """A condition that one device must meet."""

    cel: Annotated[
        str,
        Field(min_length=1, max_length=10240),
        Advice(
            missing_from_parent="an empty selector would match every device; set cel"
        ),
    ]
    """DRA device expression over `device`; must return a boolean."""


class DeviceRequest(ResourceModel):
    """Devices that each pod of a member needs on its node."""

    name: Name63
    """Name of the request, also in the ResourceClaim."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """Number per node."""
    selectors: Annotated[tuple[DeviceSelector, ...], Field(min_length=1, max_length=8)]
    """All must be true for the same device."""


class NodeSelector(ResourceModel):
    """Requirements for a node; a pool fits if it satisfies every entry."""

    devices: Annotated[
        tuple[DeviceRequest, ...],
        Field(min_length=1, max_length=REQUESTS_MAX),
        MapKeys(("name",), "device"),
    ]
    """The requests, in the order of device assignment."""


class Member(ResourceModel):
    """One type of pod of an engine."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_MEMBER

    role: Role = "Standalone"
    """Standalone alone, or one Leader and one Worker."""
    node_selector: NodeSelector | None = None
    """Devices per pod; absent claims none and uses the engine's pool."""
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


class Engine(ResourceModel):
    """One serving unit of a replica."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_ENGINE

    name: EngineName
    """Part of workload names."""
    copies: Copies = 1
    """Identical copies inside one replica; never autoscaled."""
    phase: Phase | None = None
    """Its role with PrefillDecode."""
    profile: ProfileOverrides | None = None
    """How it listens and reports its health; absent: inferred from command and image."""
    span_pools: Flag | None = None
    """True if its copies may be split over pools of one network domain."""
    drain: EngineDrain | None = None
    """How its pods stop. Absent: immediately, with the platform's grace period."""
    topology: Topology | None = None
    """The locality of its pods and their devices; absent leaves it to the cluster."""
    adapters: Adapters | None = None
    """LoRA adapters, mounted in addition to the model."""
    data_parallel: DataParallel | None = None
    """Ranks within each serving pod; absent means one."""
    members: Members[Member]
    """One Standalone, or one Leader and one Worker."""


class Toleration(ResourceModel):
    """Allows replicas on clusters with a taint."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "tolerationSeconds": "unknown field; spec.drain limits how fast replicas are moved"
    }

    key: str | None = None
    """Taint key; absent with Exists matches every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists ignores the value."""
    value: str | None = None
    """Absent equals empty."""
    effect: TaintEffect | None = None
    """Absent matches both effects."""


class ModelCacheRef(ResourceModel):
    """A ModelCache of the same namespace, mounted at `/mnt/models` in every pod."""

    name: NonEmpty
    """Name of the ModelCache."""


class ReplicaTemplateMetadata(ResourceModel):
    """Metadata of the objects that a deployment creates."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "annotations": "unknown field; only labels are passed on to replicas and endpoints"
    }

    labels: Labels | None = None
    """Extra labels of replicas and endpoints; the prefix modelplane.ai/ is rejected."""


class ReplicaTemplateSpec(ResourceModel):
    """One replica."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_TEMPLATE

    cluster_selector: LabelSelector | None = None
    """Candidate InferenceClusters."""
    model_cache_ref: ModelCacheRef | None = None
    """Staged weights."""
    serving: Serving | None = None
    """Absent means Unified."""
    tolerations: tuple[Toleration, ...] | None = None
    """Against taints of InferenceClusters, not of nodes."""
    disruption: Disruption | None = None
    """The minimum that evictions on the cluster leave of a replica.

    Absent allows every eviction.
    """
    engines: Engines[Engine]
    """Serving units of one replica, all on one cluster."""

    @property
    def serving_mode(self) -> str:
        """Unified by default."""
        return self.serving.mode if self.serving else "Unified"


class ReplicaTemplate(ResourceModel):
    """The template of every replica of a deployment."""

    metadata: ReplicaTemplateMetadata | None = None
    """Labels."""
    spec: ReplicaTemplateSpec
    """One replica."""


class ModelDeploymentSpec(ResourceModel):
    """The desired state of a deployment."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_DEPLOYMENT

    replicas: Annotated[Whole, Field(ge=0, le=REPLICAS_MAX)]
    """Number of ModelReplicas; the only scaling axis. Zero keeps the deployment."""
    template: ReplicaTemplate
    """The template of the replicas."""
    rollout: Rollout | None = None
    """How replicas get a changed template."""
    drain: DrainBudget | None = None
    """How fast replicas move off a drained cluster."""
    scheduling: Scheduling | None = None
    """Placement policy of this deployment."""


class ReplicaCounts(ResourceModel):
    """Counts of a deployment's replicas."""

    total: int = 0
    """Number of placed replicas."""
    ready: int = 0
    """Number of Ready replicas."""


class RolloutProgress(ResourceModel):
    """The rollout of the current template."""

    template_generation: int = 0
    """The generation of the spec that introduced the template."""
    updated: int = 0
    """Replicas with the template."""
    updated_ready: int = 0
    """Replicas that are Ready with the template."""
    total: int = 0
    """Number of placed replicas."""
    paused: bool = False
    """No further replica changes until the rollout is resumed."""
    revisions: tuple[int, ...] = ()
    """Generations whose templates `rollout undo` can restore, the oldest first."""
    pending: tuple[str, ...] = ()
    """Reasons to replace pods although the template is the same.

    Examples are a newer worker or another setting. They wait for `rollout restart`.
    """
    adoption: int | None = None
    """Number of the last rollout that the deployment started by itself.

    Such a rollout replaces pods although the template is the same.
    """


class PlacementStatus(ResourceModel):
    """One replica, as the deployment knows it."""

    replica: str
    """Name of the ModelReplica."""
    cluster: str = ""
    """The cluster of the replica."""
    index: int = 0
    """Its index among the deployment's replicas on that cluster."""
    phase: str = ""
    """Its phase."""
    ready: bool = False
    """Whether it is Ready."""
    endpoint: str = ""
    """Its URL; empty while it does not serve."""
    message: str = ""
    """Reason for waiting."""


class Pace(ResourceModel):
    """Duration of the rollout of a generation."""

    generation: int = 0
    """The generation of the spec."""
    placed_seconds: float | None = None
    """Time until all its replicas were placed."""
    ready_seconds: float | None = None
    """Time until it was Ready."""


class ModelDeploymentStatus(ResourceStatus):
    """The state of a deployment."""

    replicas: ReplicaCounts | None = None
    """Counts of replicas."""
    selector: str | None = None
    """Label selector of this deployment's replicas, for the scale subresource."""
    last_scale: LastScale | None = None
    """The last accepted request for a replica count."""
    placements: tuple[PlacementStatus, ...] = ()
    """Its replicas, by name."""
    rollout: RolloutProgress | None = None
    """The rollout of the current template."""
    pace: Pace | None = None
    """Duration of the last generation's rollout."""


class ModelDeployment(Manifest):
    """A served model."""

    kind: Literal["ModelDeployment"] = "ModelDeployment"
    """Always ModelDeployment."""
    spec: ModelDeploymentSpec
    """The desired state."""
    status: ModelDeploymentStatus | None = None
    """The state that the control plane reports."""
