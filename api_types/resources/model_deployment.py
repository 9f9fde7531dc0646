"""ModelDeployment: what to serve, the devices each pod needs, and the number of replicas."""

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
from api_types.resources.parts.disruption import Disruption, EngineDrain
from api_types.resources.parts.engines import Copies, EngineName, Engines, Members, Phase, PodsPerNode, Role, Serving, Worker
from api_types.resources.parts.parallel import DataParallel
from api_types.resources.parts.pod_template import PodTemplate
from api_types.resources.parts.probes import Probes
from api_types.resources.parts.rollout import DrainBudget, Rollout
from api_types.resources.parts.scheduling import Scheduling
from api_types.resources.parts.topology import Topology
from api_types.resources.status import LastScale, ResourceStatus


class DeviceSelector(ResourceModel):
    """A condition that one device must meet."""

    cel: Annotated[
        str,
        Field(min_length=1, max_length=10240),
        Advice(missing_from_parent="an empty selector would match every device; set cel"),
    ]
    """DRA device expression over `device`; must give a boolean."""


class DeviceRequest(ResourceModel):
    """Devices that each pod of a member needs from its node."""

    name: Name63
    """Name of the request, carried into the ResourceClaim."""
    count: Annotated[Whole, Field(ge=1, le=64)] = 1
    """How many, per node."""
    selectors: Annotated[tuple[DeviceSelector, ...], Field(min_length=1, max_length=8)]
    """All must be true for one device."""


class NodeSelector(ResourceModel):
    """What a node must offer; a pool fits when it satisfies every entry."""

    devices: Annotated[tuple[DeviceRequest, ...], Field(min_length=1, max_length=REQUESTS_MAX), MapKeys(("name",), "device")]
    """The requests, in the order in which devices are assigned."""


class Member(ResourceModel):
    """One kind of pod of an engine."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_MEMBER

    role: Role = "Standalone"
    """Standalone alone, or one Leader and one Worker."""
    node_selector: NodeSelector | None = None
    """Devices per pod; absent claims nothing and uses the engine's pool."""
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


class Engine(ResourceModel):
    """One serving unit of a replica."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_ENGINE

    name: EngineName
    """Part of workload names."""
    copies: Copies = 1
    """Identical copies inside one replica; never autoscaled."""
    phase: Phase | None = None
    """Which half of PrefillDecode it is."""
    span_pools: Flag | None = None
    """True if its copies may be split over pools of one network domain."""
    drain: EngineDrain | None = None
    """How its pods stop; absent stops them at once, with the platform's grace period."""
    topology: Topology | None = None
    """How close together its pods and their devices are; absent leaves it to the cluster."""
    adapters: Adapters | None = None
    """LoRA adapters, mounted beside the model."""
    data_parallel: DataParallel | None = None
    """Ranks within each serving pod; absent means one."""
    members: Members[Member]
    """One Standalone, or one Leader and one Worker."""


class Toleration(ResourceModel):
    """Allows replicas on clusters with a taint."""

    refused_fields: ClassVar[Mapping[str, str]] = {"tolerationSeconds": "unknown field; spec.drain limits how fast replicas are moved"}

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
    """Metadata of what a deployment creates."""

    refused_fields: ClassVar[Mapping[str, str]] = {"annotations": "unknown field; only labels are passed on to replicas and endpoints"}

    labels: Labels | None = None
    """Extra labels of replicas and endpoints; the reserved prefix modelplane.ai/ is refused."""


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
    """What evictions on the cluster must leave of a replica; absent allows every eviction."""
    engines: Engines[Engine]
    """Serving units of one replica, all on one cluster."""

    @property
    def serving_mode(self) -> str:
        """Unified by default."""
        return self.serving.mode if self.serving else "Unified"


class ReplicaTemplate(ResourceModel):
    """What every replica of a deployment is."""

    metadata: ReplicaTemplateMetadata | None = None
    """Labels."""
    spec: ReplicaTemplateSpec
    """One replica."""


class ModelDeploymentSpec(ResourceModel):
    """How many replicas of what."""

    refused_fields: ClassVar[Mapping[str, str]] = misplaced.IN_DEPLOYMENT

    replicas: Annotated[Whole, Field(ge=0, le=REPLICAS_MAX)]
    """Number of ModelReplicas; the only scaling axis. Zero keeps the deployment and runs nothing."""
    template: ReplicaTemplate
    """What each replica is."""
    rollout: Rollout | None = None
    """How a changed template reaches the replicas."""
    drain: DrainBudget | None = None
    """How fast replicas are moved off a drained cluster."""
    scheduling: Scheduling | None = None
    """Placement policy of this deployment."""


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
    pending: tuple[str, ...] = ()
    """What would replace pods of an equal template, such as a newer worker or another setting, and waits for `rollout restart`."""
    adoption: int | None = None
    """Number of the last rollout that the deployment began by itself, to replace pods of an equal template."""


class PlacementStatus(ResourceModel):
    """One replica, as the deployment knows it."""

    replica: str
    """Name of the ModelReplica."""
    cluster: str = ""
    """The cluster that it is placed on."""
    index: int = 0
    """Its index among the deployment's replicas on that cluster."""
    phase: str = ""
    """Its phase."""
    ready: bool = False
    """Whether it is Ready."""
    endpoint: str = ""
    """Where it serves; empty while it does not."""
    message: str = ""
    """What it waits for."""


class Pace(ResourceModel):
    """How long a generation took."""

    generation: int = 0
    """The generation of the spec."""
    placed_seconds: float | None = None
    """Until all its replicas were placed."""
    ready_seconds: float | None = None
    """Until it was Ready."""


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
    """The rollout of the present template."""
    pace: Pace | None = None
    """How long the last generation took."""


class ModelDeployment(Manifest):
    """What to serve."""

    kind: Literal["ModelDeployment"] = "ModelDeployment"
    """Always ModelDeployment."""
    spec: ModelDeploymentSpec
    """How many replicas of what."""
    status: ModelDeploymentStatus | None = None
    """What the control plane reports."""
