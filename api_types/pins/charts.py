"""Every Helm chart that the control plane installs, with its version.

The keys of `CHANGEABLE` are fields of `ServingStack.spec.versions`, and the versions
here are their defaults. Two more fields are no charts: `inferenceExtension` and
`gatewayApi`.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class ChartPin:
    """One Helm release: its name, chart, repository, version and namespace."""

    release: str
    chart: str
    repository: str
    version: str
    namespace: str


_ENVOY = "oci://docker.io/envoyproxy"
_AI_GATEWAY_VERSION = "v0.7.0"

CERT_MANAGER = ChartPin(
    "mp-cert-manager",
    "cert-manager",
    "https://charts.jetstack.io",
    "v1.17.1",
    "cert-manager",
)
ENVOY_GATEWAY = ChartPin(
    "mp-gateway-helm", "gateway-helm", _ENVOY, "v1.8.1", "envoy-gateway-system"
)
AI_GATEWAY_CRDS = ChartPin(
    "mp-ai-gateway-crds-helm",
    "ai-gateway-crds-helm",
    _ENVOY,
    _AI_GATEWAY_VERSION,
    "envoy-ai-gateway-system",
)
AI_GATEWAY = ChartPin(
    "mp-ai-gateway-helm",
    "ai-gateway-helm",
    _ENVOY,
    _AI_GATEWAY_VERSION,
    "envoy-ai-gateway-system",
)
PROMETHEUS = ChartPin(
    "mp-kube-prometheus-stack",
    "kube-prometheus-stack",
    "https://prometheus-community.github.io/helm-charts",
    "72.6.2",
    "monitoring",
)
LEADER_WORKER_SET = ChartPin(
    "mp-lws", "lws", "oci://registry.k8s.io/lws/charts", "v0.8.0", "lws-system"
)
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

TRAEFIK = ChartPin(
    "mp-traefik",
    "traefik",
    "https://traefik.github.io/charts",
    "41.0.2",
    "traefik-system",
)
METALLB = ChartPin(
    "mp-metallb",
    "metallb",
    "https://metallb.github.io/metallb",
    "0.14.9",
    "metallb-system",
)

# On clusters that the control plane creates on EKS.
CLUSTER_AUTOSCALER = ChartPin(
    "cluster-autoscaler",
    "cluster-autoscaler",
    "https://kubernetes.github.io/autoscaler",
    "9.57.0",
    "kube-system",
)
AWS_DRANET = ChartPin(
    "aws-dranet",
    "aws-dranet",
    "https://aws.github.io/eks-charts",
    "1.0.0",
    "kube-system",
)

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

# The pins that users can change, by their names in `ServingStack.spec.versions` and in
# the setting `stack.versions`.
CHANGEABLE = {
    "certManager": CERT_MANAGER,
    "envoyGateway": ENVOY_GATEWAY,
    "aiGateway": AI_GATEWAY,
    "prometheus": PROMETHEUS,
    "leaderWorkerSet": LEADER_WORKER_SET,
    "nodeFeatureDiscovery": NODE_FEATURE_DISCOVERY,
    "nvidiaDraDriver": NVIDIA_DRA_DRIVER,
}
# The minimum version of Envoy Gateway's chart: older releases cannot route to an
# InferencePool.
ENVOY_GATEWAY_FLOOR = (1, 8)
# Minor releases of Envoy Gateway, with the releases of the AI gateway that were tested
# with them.
ENVOY_PAIRS = frozenset({((1, 8), (0, 7))})

# The version of the Gateway API Inference Extension, whose definitions are applied
# directly. They are part of this release, so no other version can be chosen.
INFERENCE_EXTENSION_VERSION = "v1.5.0"

# The bundle that Envoy Gateway installs. It is only compared with the version on a
# cluster, so another version can be expected, but not chosen.
GATEWAY_API_VERSION = "v1.5.1"

# The keys of all versions in the setting `stack.versions`, with their defaults.
VERSIONS = {
    **{name: pin.version for name, pin in CHANGEABLE.items()},
    "inferenceExtension": INFERENCE_EXTENSION_VERSION,
    "gatewayApi": GATEWAY_API_VERSION,
}
# The keys of the setting `stack.values`.
VALUES = (*CHANGEABLE, "aiGatewayCrds")

# In older versions a service can receive the backends of another service, so admission
# warns.
TRAEFIK_CHART_FLOOR = TRAEFIK.version
_CHART_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)")


def has_envoy_features(chart_version: str) -> bool:
    """Return whether a version of Envoy Gateway's chart is at least the minimum.

    An unreadable version counts as a newer one.
    """
    found = _CHART_VERSION.match(chart_version)
    if not found:
        return True
    return tuple(map(int, found.groups()))[:2] >= ENVOY_GATEWAY_FLOOR


def isolates_backends(chart_version: str) -> bool:
    """Return whether a Traefik chart version lets two services route to one endpoint.

    An unreadable version counts as a newer one.
    """
    found = _CHART_VERSION.match(chart_version)
    floor = _CHART_VERSION.match(TRAEFIK_CHART_FLOOR)
    if not (found and floor):
        return True
    return tuple(map(int, found.groups())) >= tuple(map(int, floor.groups()))


def is_older(version: str, other: str) -> bool:
    """Return whether a chart version precedes another one.

    A pre-release precedes its release. An unreadable version precedes nothing.
    """
    here, there = _CHART_VERSION.match(version), _CHART_VERSION.match(other)
    if not (here and there):
        return False
    numbers, others = tuple(map(int, here.groups())), tuple(map(int, there.groups()))
    if numbers != others:
        return numbers < others
    suffix, other_suffix = version[here.end() :], other[there.end() :]
    return suffix.startswith("-") and not other_suffix.startswith("-")
