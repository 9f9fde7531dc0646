"""The releases of a stack (spec 2.1): one row each, in the order of an upgrade (2.10)."""

from dataclasses import dataclass

from api_types.pins import charts
from api_types.pins.charts import ChartPin

# How the field of a component in `ServingStack.spec.versions` is called in Python; the pins of the AI gateway are fixed.
_FIXED = ""


@dataclass(frozen=True)
class Component:
    """One release. `version_field`: where the record of a stack pins its version; empty where nobody can choose it."""

    key: str
    pin: ChartPin
    version_field: str = _FIXED


CERT_MANAGER = Component("cert-manager", charts.CERT_MANAGER, "cert_manager")
ENVOY_GATEWAY = Component("envoy-gateway", charts.ENVOY_GATEWAY, "envoy_gateway")
AI_GATEWAY_CRDS = Component("ai-gateway-crds", charts.AI_GATEWAY_CRDS)
AI_GATEWAY = Component("ai-gateway", charts.AI_GATEWAY)
PROMETHEUS = Component("prometheus", charts.PROMETHEUS, "prometheus")
LEADER_WORKER_SET = Component("leader-worker-set", charts.LEADER_WORKER_SET, "leader_worker_set")
NODE_FEATURE_DISCOVERY = Component("node-feature-discovery", charts.NODE_FEATURE_DISCOVERY, "node_feature_discovery")
DRA_DRIVER = Component("dra-driver", charts.NVIDIA_DRA_DRIVER, "nvidia_dra_driver")

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
"""How NVIDIA's driver calls itself, and the DeviceClass that its chart makes."""

# Neither is ready without the other, so they are installed and awaited together (spec 2.5).
PAIR = (ENVOY_GATEWAY.key, AI_GATEWAY.key)
