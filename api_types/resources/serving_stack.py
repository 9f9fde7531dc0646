"""ServingStack: the serving software of a cluster, written by the control plane."""

from typing import Annotated, Any, Literal

from pydantic import Field

from api_types.labels import INFRASTRUCTURE_GROUP
from api_types.pins import charts
from api_types.resources.parts.base_types import (
    VERSION,
    Manifest,
    MapKeys,
    Name63,
    ResourceModel,
    Whole,
)
from api_types.resources.status import GatewayAddress, ResourceStatus

Pin = Annotated[str, Field(min_length=1, max_length=32)]
Upto253 = Annotated[str, Field(max_length=253)]


class StackSecret(ResourceModel):
    """One credential for the cluster: a Kubeconfig, or an identity to use with it."""

    type: Literal[
        "Kubeconfig",
        "GoogleApplicationCredentials",
        "AWSWebIdentityCredentials",
        "NebiusServiceAccountCredentials",
    ]
    """The content of the Secret."""
    name: Upto253
    """Name of the Secret."""
    key: Upto253
    """Key within the Secret."""
    namespace: Upto253 | None = None
    """Its namespace, if it is not the stack's own."""


class StackVersions(ResourceModel):
    """Version pins of the components."""

    gateway_api: Pin = charts.GATEWAY_API_VERSION
    """Expected Gateway API bundle."""
    cert_manager: Pin = charts.CERT_MANAGER.version
    """cert-manager chart."""
    envoy_gateway: Pin = charts.ENVOY_GATEWAY.version
    """Envoy Gateway chart; v1.8 or newer for InferencePool backends."""
    ai_gateway: Pin = charts.AI_GATEWAY.version
    """Envoy AI Gateway charts."""
    inference_extension: Pin = charts.INFERENCE_EXTENSION_VERSION
    """Definitions of the Gateway API Inference Extension, part of the release."""
    prometheus: Pin = charts.PROMETHEUS.version
    """kube-prometheus-stack chart."""
    leader_worker_set: Pin = charts.LEADER_WORKER_SET.version
    """LeaderWorkerSet chart."""
    node_feature_discovery: Pin = charts.NODE_FEATURE_DISCOVERY.version
    """Node Feature Discovery chart."""
    nvidia_dra_driver: Pin = charts.NVIDIA_DRA_DRIVER.version
    """NVIDIA DRA driver chart."""


class StackToleration(ResourceModel):
    """A node taint that the pods of the stack tolerate."""

    key: Upto253 | None = None
    """Key of the taint; absent matches every taint, and needs Exists."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists ignores the value."""
    value: Upto253 | None = None
    """Value of the taint, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Absent matches every effect."""


class StackPods(ResourceModel):
    """Placement of the pods of all components and of the gateway's proxies."""

    tolerations: Annotated[tuple[StackToleration, ...], Field(max_length=16)] = ()
    """Taints that the pods tolerate, in addition to those of GPU nodes."""
    priority_class_name: Upto253 = ""
    """Priority class of the pods; empty keeps the defaults of the charts."""
    affinity: dict[str, Any] | None = None
    """Affinity of the pods that may run on any node, as in a pod."""


class Listener(ResourceModel):
    """One open port of the gateway."""

    name: Name63
    """Name of the listener."""
    port: Annotated[Whole, Field(ge=1, le=65535)]
    """Port."""
    protocol: Literal["HTTP", "TCP"]
    """Its protocol."""


class StackGateway(ResourceModel):
    """The inference gateway of the cluster."""

    class_name: Name63 = "envoy"
    """GatewayClass."""
    longest_generation_seconds: Annotated[Whole, Field(ge=60, le=86400)] = 3600
    """How long a stream continues after a route change or while its proxy terminates."""
    listeners: (
        Annotated[
            tuple[Listener, ...], Field(max_length=8), MapKeys(("name",), "listener")
        ]
        | None
    ) = None
    """Absent means one HTTP listener `http` on port 80."""


class ServingStackSpec(ResourceModel):
    """The components to install, and the credentials for the cluster."""

    secrets: Annotated[tuple[StackSecret, ...], Field(min_length=1, max_length=8)]
    """Credentials for the cluster; one of them a Kubeconfig."""
    nvidia_driver_root: Annotated[str, Field(max_length=512)] = "/"
    """Host path of the NVIDIA driver."""
    compute_domains: bool = False
    """Whether the NVIDIA DRA driver serves ComputeDomains."""
    versions: StackVersions | None = None
    """Pins; absent means all defaults."""
    values: dict[str, dict[str, Any]] | None = None
    """Chart values by component that replace those of Modelplane."""
    pods: StackPods | None = None
    """Placement of the pods; absent means the defaults of the charts."""
    gateway: StackGateway | None = None
    """The inference gateway; absent means all defaults."""


class StackComponentStatus(ResourceModel):
    """One Helm release of the stack."""

    name: str
    """The component, such as `envoy-gateway`."""
    release: str = ""
    """Name of its Helm release."""
    namespace: str = ""
    """Namespace of the release."""
    version: str = ""
    """Chart version in the current plan."""
    revision: int = 0
    """Last revision that Helm wrote; 0 if the release is not installed."""
    stage: str = ""
    """The stage that installs it, such as `S2b`."""
    lag: str = ""
    """Deviation from the plan; empty if there is none."""


class StackStageStatus(ResourceModel):
    """An incomplete stage of the installation."""

    stage: str
    """Its number, such as `S2b`."""
    title: str = ""
    """Title of the stage."""
    since: str = ""
    """Start of its first open step: RFC 3339, UTC."""
    late: bool = False
    """Whether it takes longer than usual."""
    message: str = ""
    """Current work and reason for waiting."""


class ServingStackStatus(ResourceStatus):
    """The state of the stack, and its gateway."""

    source: str = ""
    """The source of its InferenceCluster."""
    gateway: GatewayAddress | None = None
    """External address."""
    components: tuple[StackComponentStatus, ...] = ()
    """Its releases, in the order of installation."""
    stages: tuple[StackStageStatus, ...] = ()
    """The incomplete stages."""


class ServingStack(Manifest):
    """The serving software of one cluster."""

    api_version: str = f"{INFRASTRUCTURE_GROUP}/{VERSION}"
    """Group and version."""
    kind: Literal["ServingStack"] = "ServingStack"
    """Always ServingStack."""
    spec: ServingStackSpec
    """The desired state."""
    status: ServingStackStatus | None = None
    """The state that the control plane reports."""
