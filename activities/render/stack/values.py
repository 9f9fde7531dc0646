"""The Helm values of each release, and the releases of a whole stack."""

from activities.render.objects.envoy_gateway import chart_values
from activities.render.stack import components
from activities.render.stack.components import COMPONENTS, Component
from activities.render.stack.pods import Values, merged, pod_values
from api_types.messages.stack import HelmRelease
from api_types.pins import apiversions, charts
from api_types.resources.serving_stack import ServingStackSpec, StackVersions

AI_GATEWAY_CONTROLLER = "ai-gateway-controller"
"""The Deployment and Service of the AI gateway.

Its chart uses this name for every release.
"""
_EXTENSION_PORT = 1063
_EXTENSION_MESSAGE_MIB = 64
"""Envoy Gateway sends the whole configuration in one message.

About 150 replicas exceed the default of 4 MiB.
"""
_PROXY_METRICS = 19001
_DEFAULT_ROOT = "/"


def releases(spec: ServingStackSpec) -> dict[str, HelmRelease]:
    """Return every release of a stack, by component, in the order of an upgrade."""
    return {component.key: _release(component, spec) for component in COMPONENTS}


def _release(component: Component, spec: ServingStackSpec) -> HelmRelease:
    pin = component.pin
    versions = spec.versions or StackVersions()
    return HelmRelease(
        name=pin.release,
        namespace=pin.namespace,
        chart=pin.chart,
        repository=pin.repository,
        version=getattr(versions, component.version_field),
        values=values_of(component, spec),
    )


def values_of(component: Component, spec: ServingStackSpec) -> Values:
    """Return the values of one release; empty where the chart's defaults suffice.

    Values of users replace those of Modelplane.
    """
    values = merged(_values_of(component, spec), pod_values(component.key, spec.pods))
    return merged(values, (spec.values or {}).get(component.settings_key, {}))


def _values_of(component: Component, spec: ServingStackSpec) -> Values:
    match component.key:
        case components.CERT_MANAGER.key:
            return {"crds": {"enabled": True, "keep": False}}
        case components.ENVOY_GATEWAY.key:
            return chart_values(_envoy_gateway())
        case components.AI_GATEWAY.key:
            # A text, because Helm writes large numbers as `6.7108864e+07`.
            return {"controller": {"maxRecvMsgSize": str(_EXTENSION_MESSAGE_MIB << 20)}}
        case components.PROMETHEUS.key:
            return _prometheus()
        case components.DRA_DRIVER.key:
            return _dra_driver(spec)
        case _:
            return {}


def _envoy_gateway() -> Values:
    host = f"{AI_GATEWAY_CONTROLLER}.{charts.AI_GATEWAY.namespace}.svc.cluster.local"
    return {
        "extensionApis": {"enableBackend": True},
        "extensionManager": {
            "hooks": {
                "xdsTranslator": {
                    "translation": {
                        kind: {"includeAll": True}
                        for kind in ("listener", "route", "cluster", "secret")
                    },
                    "post": ["Translation", "Cluster", "Route"],
                }
            },
            "service": {"fqdn": {"hostname": host, "port": _EXTENSION_PORT}},
            "maxMessageSize": f"{_EXTENSION_MESSAGE_MIB}Mi",
            "backendResources": [
                {
                    "group": apiversions.INFERENCE_GROUP,
                    "kind": "InferencePool",
                    "version": "v1",
                }
            ],
        },
    }


def _prometheus() -> Values:
    return {
        "fullnameOverride": "prometheus",
        "grafana": {"enabled": False},
        "alertmanager": {"enabled": False},
        "prometheus": {
            "prometheusSpec": {
                # Follow monitors of every namespace, including those without the label
                # of the release.
                "podMonitorSelectorNilUsesHelmValues": False,
                "podMonitorNamespaceSelector": {},
                "additionalScrapeConfigs": [_proxy_job()],
            }
        },
    }


def _proxy_job() -> Values:
    """Return the scrape job of the gateway's proxies, for their open requests."""
    return {
        "job_name": "envoy-gateway-proxy",
        "metrics_path": "/stats/prometheus",
        "kubernetes_sd_configs": [
            {"role": "pod", "namespaces": {"names": [charts.ENVOY_GATEWAY.namespace]}}
        ],
        "relabel_configs": [
            {
                "source_labels": [
                    "__meta_kubernetes_pod_label_app_kubernetes_io_component"
                ],
                "regex": "proxy",
                "action": "keep",
            },
            # Replace the discovered port, because the pod does not declare the port of
            # its metrics.
            {
                "source_labels": ["__address__"],
                "regex": r"(.+?)(?::\d+)?",
                "target_label": "__address__",
                "replacement": f"$1:{_PROXY_METRICS}",
            },
            {
                "source_labels": ["__meta_kubernetes_namespace"],
                "target_label": "namespace",
            },
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        ],
    }


def _dra_driver(spec: ServingStackSpec) -> Values:
    # The chart does not render without the override, which enables the driver's GPU
    # part.
    values: Values = {
        "gpuResourcesEnabledOverride": True,
        "resources": {"computeDomains": {"enabled": spec.compute_domains}},
    }
    root = spec.nvidia_driver_root
    return values if root == _DEFAULT_ROOT else {**values, "nvidiaDriverRoot": root}
