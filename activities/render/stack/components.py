"""The releases of a stack, one row each, in the order of an upgrade."""

from dataclasses import dataclass

from api_types.pins import charts
from api_types.pins.charts import ChartPin


@dataclass(frozen=True)
class Component:
    """One release.

    `settings_key` is its name in the settings `stack.versions` and `stack.values`, and
    `version_field` the Python name of its field in `ServingStack.spec.versions`.
    """

    key: str
    pin: ChartPin
    settings_key: str
    version_field: str


CERT_MANAGER = Component(
    "cert-manager", charts.CERT_MANAGER, "certManager", "cert_manager"
)
ENVOY_GATEWAY = Component(
    "envoy-gateway", charts.ENVOY_GATEWAY, "envoyGateway", "envoy_gateway"
)
# Both charts of the AI gateway have one version.
AI_GATEWAY_CRDS = Component(
    "ai-gateway-crds", charts.AI_GATEWAY_CRDS, "aiGatewayCrds", "ai_gateway"
)
AI_GATEWAY = Component("ai-gateway", charts.AI_GATEWAY, "aiGateway", "ai_gateway")
PROMETHEUS = Component("prometheus", charts.PROMETHEUS, "prometheus", "prometheus")
LEADER_WORKER_SET = Component(
    "leader-worker-set",
    charts.LEADER_WORKER_SET,
    "leaderWorkerSet",
    "leader_worker_set",
)
NODE_FEATURE_DISCOVERY = Component(
    "node-feature-discovery",
    charts.NODE_FEATURE_DISCOVERY,
    "nodeFeatureDiscovery",
    "node_feature_discovery",
)
DRA_DRIVER = Component(
    "dra-driver", charts.NVIDIA_DRA_DRIVER, "nvidiaDraDriver", "nvidia_dra_driver"
)

COMPONENTS = (
    AI_GATEWAY_CRDS,
    ENVOY_GATEWAY,
    AI_GATEWAY,
    CERT_MANAGER,
    LEADER_WORKER_SET,
    PROMETHEUS,
    NODE_FEATURE_DISCOVERY,
    DRA_DRIVER,
)
BY_KEY = {component.key: component for component in COMPONENTS}

GPU_DRIVER = "gpu.nvidia.com"
"""The name of NVIDIA's driver, and of the DeviceClass that its chart creates."""

# Neither is ready without the other, so they are installed and awaited together.
PAIR = (ENVOY_GATEWAY.key, AI_GATEWAY.key)
