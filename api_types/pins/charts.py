"""Every Helm chart that the control plane installs, pinned.

The keys of `STACK` are those of `ServingStack.spec.versions`, whose defaults they are. A pin without a key there cannot be changed by a
user: the AI gateway fits one Envoy Gateway only.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class ChartPin:
    """One Helm release: which chart from where, under which name, into which namespace."""

    release: str
    chart: str
    repository: str
    version: str
    namespace: str


_ENVOY = "oci://docker.io/envoyproxy"
_AI_GATEWAY_VERSION = "v0.7.0"

CERT_MANAGER = ChartPin("mp-cert-manager", "cert-manager", "https://charts.jetstack.io", "v1.17.1", "cert-manager")
ENVOY_GATEWAY = ChartPin("mp-gateway-helm", "gateway-helm", _ENVOY, "v1.8.1", "envoy-gateway-system")
AI_GATEWAY_CRDS = ChartPin("mp-ai-gateway-crds-helm", "ai-gateway-crds-helm", _ENVOY, _AI_GATEWAY_VERSION, "envoy-ai-gateway-system")
AI_GATEWAY = ChartPin("mp-ai-gateway-helm", "ai-gateway-helm", _ENVOY, _AI_GATEWAY_VERSION, "envoy-ai-gateway-system")
PROMETHEUS = ChartPin(
    "mp-kube-prometheus-stack",
    "kube-prometheus-stack",
    "https://prometheus-community.github.io/helm-charts",
    "72.6.2",
    "monitoring",
)
LEADER_WORKER_SET = ChartPin("mp-lws", "lws", "oci://registry.k8s.io/lws/charts", "v0.8.0", "lws-system")
NODE_FEATURE_DISCOVERY = ChartPin(
    "mp-node-feature-discovery",
    "node-feature-discovery",
    "oci://registry.k8s.io/nfd/charts",
    "0.18.3",
    "node-feature-discovery",
)
NVIDIA_DRA_DRIVER = ChartPin(
    "mp-dra-driver-nvidia-gpu",
    "dra-driver-nvidia-gpu",
    "oci://registry.k8s.io/dra-driver-nvidia/charts",
    "0.4.0",
    "dra-driver-nvidia-gpu",
)

TRAEFIK = ChartPin("mp-traefik", "traefik", "https://traefik.github.io/charts", "41.0.2", "traefik-system")
METALLB = ChartPin("mp-metallb", "metallb", "https://metallb.github.io/metallb", "0.14.9", "metallb-system")

# On clusters that are created on EKS.
CLUSTER_AUTOSCALER = ChartPin(
    "cluster-autoscaler", "cluster-autoscaler", "https://kubernetes.github.io/autoscaler", "9.57.0", "kube-system"
)
AWS_DRANET = ChartPin("aws-dranet", "aws-dranet", "https://aws.github.io/eks-charts", "1.0.0", "kube-system")

STACK = (
    CERT_MANAGER,
    ENVOY_GATEWAY,
    AI_GATEWAY_CRDS,
    AI_GATEWAY,
    PROMETHEUS,
    LEADER_WORKER_SET,
    NODE_FEATURE_DISCOVERY,
    NVIDIA_DRA_DRIVER,
)
STACK_NAMESPACES = frozenset(pin.namespace for pin in (*STACK, TRAEFIK, METALLB))

# The pins that can be changed, by their names in `ServingStack.spec.versions` and in the setting `stack.versions`.
CHANGEABLE = {
    "certManager": CERT_MANAGER,
    "envoyGateway": ENVOY_GATEWAY,
    "prometheus": PROMETHEUS,
    "leaderWorkerSet": LEADER_WORKER_SET,
    "nodeFeatureDiscovery": NODE_FEATURE_DISCOVERY,
    "nvidiaDraDriver": NVIDIA_DRA_DRIVER,
}
# What Envoy Gateway's chart must be at least: older releases route to no InferencePool.
ENVOY_GATEWAY_FLOOR = (1, 8)
# Minor releases of Envoy Gateway, and those of the AI gateway that were tested with them.
ENVOY_PAIRS = frozenset({((1, 8), (0, 7))})

# Of the Gateway API Inference Extension, whose definitions are applied directly.
INFERENCE_EXTENSION_VERSION = "v1.0.1"

# The bundle that Envoy Gateway brings; compared with what a cluster has, not installed by itself.
GATEWAY_API_VERSION = "v1.5.1"

# In older versions one service can receive the backends of another, so admission warns.
TRAEFIK_CHART_FLOOR = TRAEFIK.version
_CHART_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)")


def isolates_backends(chart_version: str) -> bool:
    """Whether a version of Traefik's chart lets two services route one endpoint; one that cannot be read is taken for a newer one."""
    found, floor = _CHART_VERSION.match(chart_version), _CHART_VERSION.match(TRAEFIK_CHART_FLOOR)
    return not (found and floor) or tuple(map(int, found.groups())) >= tuple(map(int, floor.groups()))


def is_older(version: str, other: str) -> bool:
    """Whether a chart version precedes another one; a pre-release precedes its release. What cannot be read precedes nothing."""
    here, there = _CHART_VERSION.match(version), _CHART_VERSION.match(other)
    if not (here and there):
        return False
    numbers, others = tuple(map(int, here.groups())), tuple(map(int, there.groups()))
    is_pre_release = version[here.end() :].startswith("-") and not other[there.end() :].startswith("-")
    return numbers < others or (numbers == others and is_pre_release)
