"""The parts of real charts that the product reads."""

from collections.abc import Mapping
from dataclasses import dataclass

from activities.cluster_objects import kinds as product_kinds
from activities.cluster_objects.cluster_api import GroupVersionKind
from activities.render.gateway.objects import METALLB_WEBHOOK, SERVICE
from activities.render.stack.values import AI_GATEWAY_CONTROLLER
from api_types.pins import charts
from tests.simulation import kinds
from tests.simulation.cluster import ApiServer
from tests.simulation.fields import Json

_GPU_CLASS = "gpu.nvidia.com"
DEVICE_CLASS: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": _GPU_CLASS},
}
"""What the DRA driver of a cluster creates, whose stack others installed."""


@dataclass(frozen=True)
class SimulatedChart:
    """A chart: workloads by kind, further objects, and kinds in `crds/` and in its templates."""

    deployments: tuple[str, ...] = ()
    daemon_sets: tuple[str, ...] = ()
    services: tuple[tuple[str, str], ...] = ()
    cluster_objects: tuple[tuple[GroupVersionKind, str], ...] = ()
    crds: tuple[GroupVersionKind, ...] = ()
    templated: tuple[GroupVersionKind, ...] = ()


_ROLE = GroupVersionKind("rbac.authorization.k8s.io/v1", "ClusterRole")
CHARTS: Mapping[str, SimulatedChart] = {
    charts.CERT_MANAGER.chart: SimulatedChart(
        ("cert-manager",),
        cluster_objects=((_ROLE, "cert-manager"),),
        templated=(GroupVersionKind("cert-manager.io/v1", "Certificate"),),
    ),
    charts.ENVOY_GATEWAY.chart: SimulatedChart(
        ("envoy-gateway",), cluster_objects=((_ROLE, "envoy-gateway"),), crds=kinds.ENVOY
    ),
    charts.AI_GATEWAY_CRDS.chart: SimulatedChart(
        templated=(GroupVersionKind("aigateway.envoyproxy.io/v1alpha1", "AIGatewayRoute"),)
    ),
    charts.AI_GATEWAY.chart: SimulatedChart(
        (AI_GATEWAY_CONTROLLER,), cluster_objects=((_ROLE, AI_GATEWAY_CONTROLLER),)
    ),
    charts.PROMETHEUS.chart: SimulatedChart(
        ("prometheus-operator",), cluster_objects=((_ROLE, "prometheus"),), crds=kinds.MONITORS
    ),
    charts.LEADER_WORKER_SET.chart: SimulatedChart(
        ("lws-controller-manager",), cluster_objects=((_ROLE, "lws"),), crds=kinds.LWS
    ),
    charts.NODE_FEATURE_DISCOVERY.chart: SimulatedChart(
        ("nfd-master",),
        ("nfd-worker",),
        crds=(GroupVersionKind("nfd.k8s-sigs.io/v1alpha1", "NodeFeature"),),
    ),
    charts.NVIDIA_DRA_DRIVER.chart: SimulatedChart(
        daemon_sets=("dra-driver-kubelet-plugin",),
        cluster_objects=((GroupVersionKind("resource.k8s.io/v1", "DeviceClass"), _GPU_CLASS),),
    ),
    charts.TRAEFIK.chart: SimulatedChart(
        ("traefik",),
        services=((SERVICE, "LoadBalancer"),),
        cluster_objects=((_ROLE, "traefik"),),
        crds=kinds.TRAEFIK,
    ),
    charts.METALLB.chart: SimulatedChart(
        ("metallb-controller",),
        services=((METALLB_WEBHOOK, "ClusterIP"),),
        cluster_objects=((_ROLE, "metallb"),),
        templated=kinds.METALLB,
    ),
    charts.CLUSTER_AUTOSCALER.chart: SimulatedChart(
        ("cluster-autoscaler",), cluster_objects=((_ROLE, "cluster-autoscaler"),)
    ),
    charts.AWS_DRANET.chart: SimulatedChart(daemon_sets=("aws-dranet",)),
}


def rendered(name: str, namespace: str) -> list[Json]:
    """Return the objects of a chart without its `crds/`."""
    chart = CHARTS[name]
    objects = [kinds.definition_of(kind) for kind in chart.templated]
    objects += [_object(kind, each) for kind, each in chart.cluster_objects]
    for each in chart.deployments:
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": {"app": each}},
            "template": _template(each),
        }
        objects.append(_object(product_kinds.DEPLOYMENT, each, namespace, spec=spec))
    for each in chart.daemon_sets:
        spec = {"selector": {"matchLabels": {"app": each}}, "template": _template(each)}
        objects.append(_object(product_kinds.DAEMON_SET, each, namespace, spec=spec))
    for each, kind in chart.services:
        spec = {
            "type": kind,
            "selector": {"app": chart.deployments[0]},
            "ports": [{"port": 443, "targetPort": 8443}],
        }
        objects.append(_object(product_kinds.SERVICE, each, namespace, spec=spec))
    return objects


def definitions(name: str) -> list[Json]:
    """Return the definitions in `crds/` of a chart."""
    found = [kinds.definition_of(kind) for kind in CHARTS[name].crds]
    marks = {
        "gateway.networking.k8s.io/bundle-version": charts.GATEWAY_API_VERSION,
        "gateway.networking.k8s.io/channel": "experimental",
    }
    gateway = [each for each in found if each["spec"]["group"] == "gateway.networking.k8s.io"]
    for each in gateway:
        each["metadata"]["annotations"] = dict(marks)
    return found


def installed(server: ApiServer, name: str) -> None:
    """Let the controllers of a chart run."""
    if name == charts.LEADER_WORKER_SET.chart:
        server.behaviour.lws_runs = True
    if name in (charts.ENVOY_GATEWAY.chart, charts.TRAEFIK.chart):
        server.behaviour.gateway_runs = True
        server.network.gateway_started()


def removed(server: ApiServer, name: str) -> None:
    """Let the controllers of a chart end."""
    if name == charts.LEADER_WORKER_SET.chart:
        server.behaviour.lws_runs = False
    if name in (charts.ENVOY_GATEWAY.chart, charts.TRAEFIK.chart):
        server.behaviour.gateway_runs = False


def _object(kind: GroupVersionKind, name: str, namespace: str = "", **content: object) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}


def _template(name: str) -> Json:
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": f"registry.example/{name}"}]},
    }
