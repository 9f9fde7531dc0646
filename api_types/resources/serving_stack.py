"""ServingStack: the serving software of one cluster, written by the control plane and shown to users."""

from typing import Annotated, Literal

from pydantic import Field

from api_types.labels import INFRASTRUCTURE_GROUP
from api_types.pins import charts
from api_types.resources.parts.base_types import VERSION, Manifest, MapKeys, Name63, ResourceModel, Whole
from api_types.resources.status import GatewayAddress, ResourceStatus

Pin = Annotated[str, Field(min_length=1, max_length=32)]
Upto253 = Annotated[str, Field(max_length=253)]


class StackSecret(ResourceModel):
    """One credential for the cluster: a Kubeconfig, or an identity to use with it."""

    type: Literal["Kubeconfig", "GoogleApplicationCredentials", "AWSWebIdentityCredentials", "NebiusServiceAccountCredentials"]
    """What the Secret contains."""
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
    prometheus: Pin = charts.PROMETHEUS.version
    """kube-prometheus-stack chart."""
    leader_worker_set: Pin = charts.LEADER_WORKER_SET.version
    """LeaderWorkerSet chart."""
    node_feature_discovery: Pin = charts.NODE_FEATURE_DISCOVERY.version
    """Node Feature Discovery chart."""
    nvidia_dra_driver: Pin = charts.NVIDIA_DRA_DRIVER.version
    """NVIDIA DRA driver chart."""


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
    """How long a stream goes on after a change of routes, or while its proxy ends."""
    listeners: Annotated[tuple[Listener, ...], Field(max_length=8), MapKeys(("name",), "listener")] | None = None
    """Absent means one HTTP listener `http` on port 80."""


class ServingStackSpec(ResourceModel):
    """What to install, and the credentials for the cluster."""

    secrets: Annotated[tuple[StackSecret, ...], Field(min_length=1, max_length=8)]
    """Credentials for the cluster; one of them a Kubeconfig."""
    nvidia_driver_root: Annotated[str, Field(max_length=512)] = "/"
    """Host path of the NVIDIA driver."""
    versions: StackVersions | None = None
    """Pins; absent means all defaults."""
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
    """Chart version of the plan that is carried out."""
    revision: int = 0
    """Helm's revision as last written; 0 while it is not installed."""
    stage: str = ""
    """The stage that installs it, such as `S2b`."""
    lag: str = ""
    """What keeps it from being as planned; empty if nothing does."""


class StackStageStatus(ResourceModel):
    """A stage of the installation that is not complete."""

    stage: str
    """Its number, such as `S2b`."""
    title: str = ""
    """What it is about."""
    since: str = ""
    """Since when it has open steps: RFC 3339, UTC."""
    late: bool = False
    """Whether it takes longer than usual."""
    message: str = ""
    """What it does and waits for."""


class ServingStackStatus(ResourceStatus):
    """How far the stack is, and where its gateway is."""

    source: str = ""
    """The source of its InferenceCluster."""
    gateway: GatewayAddress | None = None
    """External address."""
    components: tuple[StackComponentStatus, ...] = ()
    """Its releases, in the order in which they are installed."""
    stages: tuple[StackStageStatus, ...] = ()
    """The stages that are not complete."""


class ServingStack(Manifest):
    """The serving software of one cluster."""

    api_version: str = f"{INFRASTRUCTURE_GROUP}/{VERSION}"
    """Group and version."""
    kind: Literal["ServingStack"] = "ServingStack"
    """Always ServingStack."""
    spec: ServingStackSpec
    """What to install."""
    status: ServingStackStatus | None = None
    """What the control plane reports."""
