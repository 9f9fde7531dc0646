"""The values of each release (spec 2.1 to 2.3), and the releases of a whole stack."""

from typing import Any

from activities.render.stack import components
from activities.render.stack.components import COMPONENTS, Component
from api_types.messages.stack import HelmRelease
from api_types.pins import apiversions, charts
from api_types.resources.serving_stack import ServingStackSpec, StackVersions

Values = dict[str, Any]

AI_GATEWAY_CONTROLLER = "ai-gateway-controller"
"""Deployment and Service of the AI gateway, which its chart names so under every release name."""
_EXTENSION_PORT = 1063
_EXTENSION_MESSAGE_MIB = 64
"""Envoy Gateway sends the whole configuration in one message.

About 150 replicas exceed the default of 4 MiB.
"""
_PROXY_METRICS = 19001
_DEFAULT_ROOT = "/"
GPU_TAINT = "nvidia.com/gpu"


def releases(spec: ServingStackSpec) -> dict[str, HelmRelease]:
    """Give every release of a stack, by component, in the order of an upgrade."""
    return {component.key: _release(component, spec) for component in COMPONENTS}


def _release(component: Component, spec: ServingStackSpec) -> HelmRelease:
    pin = component.pin
    versions = spec.versions or StackVersions()
    version = getattr(versions, component.version_field) if component.version_field else pin.version
    return HelmRelease(
        name=pin.release,
        namespace=pin.namespace,
        chart=pin.chart,
        repository=pin.repository,
        version=version,
        values=values_of(component, spec),
    )


def values_of(component: Component, spec: ServingStackSpec) -> Values:
    """Give the values of one release; empty where the defaults of its chart serve."""
    match component.key:
        case components.CERT_MANAGER.key:
            return {"crds": {"enabled": True, "keep": False}}
        case components.ENVOY_GATEWAY.key:
            return {"config": {"envoyGateway": _envoy_gateway()}}
        case components.AI_GATEWAY.key:
            # Text, because Helm writes large numbers as `6.7108864e+07`.
            return {"controller": {"maxRecvMsgSize": str(_EXTENSION_MESSAGE_MIB << 20)}}
        case components.PROMETHEUS.key:
            return _prometheus()
        case components.NODE_FEATURE_DISCOVERY.key:
            return {"worker": {"tolerations": [{"key": GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}]}}
        case components.DRA_DRIVER.key:
            return _dra_driver(spec.nvidia_driver_root)
        case _:
            return {}


def _envoy_gateway() -> Values:
    host = f"{AI_GATEWAY_CONTROLLER}.{charts.AI_GATEWAY.namespace}.svc.cluster.local"
    return {
        "extensionApis": {"enableBackend": True},
        "extensionManager": {
            "hooks": {
                "xdsTranslator": {
                    "translation": {kind: {"includeAll": True} for kind in ("listener", "route", "cluster", "secret")},
                    "post": ["Translation", "Cluster", "Route"],
                }
            },
            "service": {"fqdn": {"hostname": host, "port": _EXTENSION_PORT}},
            "maxMessageSize": f"{_EXTENSION_MESSAGE_MIB}Mi",
            "backendResources": [{"group": apiversions.INFERENCE_GROUP, "kind": "InferencePool", "version": "v1"}],
        },
    }


def _prometheus() -> Values:
    return {
        "fullnameOverride": "prometheus",
        "grafana": {"enabled": False},
        "alertmanager": {"enabled": False},
        "prometheus": {
            "prometheusSpec": {
                # Monitors of every namespace are followed, also those that carry no label of the release.
                "podMonitorSelectorNilUsesHelmValues": False,
                "podMonitorNamespaceSelector": {},
                "additionalScrapeConfigs": [_proxy_job()],
            }
        },
    }


def _proxy_job() -> Values:
    """Scrape the gateway's proxies, for the requests that they have in hand."""
    return {
        "job_name": "envoy-gateway-proxy",
        "metrics_path": "/stats/prometheus",
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [charts.ENVOY_GATEWAY.namespace]}}],
        "relabel_configs": [
            {"source_labels": ["__meta_kubernetes_pod_label_app_kubernetes_io_component"], "regex": "proxy", "action": "keep"},
            # Whatever port of the pod was found: that of its metrics is none that it declares.
            {
                "source_labels": ["__address__"],
                "regex": r"(.+?)(?::\d+)?",
                "target_label": "__address__",
                "replacement": f"$1:{_PROXY_METRICS}",
            },
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        ],
    }


def _dra_driver(root: str) -> Values:
    # Without the override the chart does not render: the driver's GPU part must be wanted by name.
    values: Values = {"gpuResourcesEnabledOverride": True, "resources": {"computeDomains": {"enabled": False}}}
    return values if root == _DEFAULT_ROOT else {**values, "nvidiaDriverRoot": root}
