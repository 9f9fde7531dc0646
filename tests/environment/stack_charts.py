"""Small charts with the names and the habits of those of a serving stack: what each needs, where its definitions lie, what it refuses."""

import json
from pathlib import Path
from typing import Any

from api_types.pins import charts as pins
from api_types.pins.charts import ChartPin
from testbed.documents import load_all
from testbed.programs.install import Installer
from tests.environment.charts import PackedChart, chart

Json = dict[str, Any]

READABLE = "envoy.stand-in/pools-readable"
"""On a node where Envoy Gateway may run: its stand-in sets it once InferencePools can be read, for without them it gets not ready."""
POOL_ROLE = "stand-in-reads-pools"
"""The ClusterRole of the AI gateway's chart by which Envoy Gateway may read InferencePools."""
_CHANNEL = "gateway.networking.k8s.io/channel"


def stack_charts() -> list[PackedChart]:
    """Pack every chart of the stack in its pinned version."""
    return [
        cert_manager(pins.CERT_MANAGER.version),
        envoy_gateway(pins.ENVOY_GATEWAY.version),
        chart(
            pins.AI_GATEWAY_CRDS.chart,
            pins.AI_GATEWAY_CRDS.version,
            templates={"crds.yaml": _text(_crd("aigateway.envoyproxy.io", "AIGatewayRoute"))},
        ),
        _ai_gateway(pins.AI_GATEWAY),
        _prometheus(pins.PROMETHEUS),
        leader_worker_set(pins.LEADER_WORKER_SET.version),
        _feature_discovery(pins.NODE_FEATURE_DISCOVERY),
        _dra_driver(pins.NVIDIA_DRA_DRIVER),
    ]


def leader_worker_set(version: str, *, field: str = "", image: str = "lws") -> PackedChart:
    """Pack the LeaderWorkerSet chart, whose definition is in `crds/`; with a `field`, the definition has one more."""
    folder = Installer().definitions("lws") / "config" / "crd" / "bases"
    (crd,) = _documents(folder / "leaderworkerset.x-k8s.io_leaderworkersets.json")
    if field:
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][field] = {"type": "string"}
    return chart(
        "lws",
        version,
        crds={"lws.yaml": _text(crd)},
        templates={"controller.yaml": _text(_deployment("lws-controller-manager", image=image))},
    )


def gateway_definitions(channel: str = "experimental") -> list[Json]:
    """Give the definitions of the Gateway API, said to be of a channel; the chart of Envoy Gateway has them."""
    folder = Installer().definitions("gateway-api") / "config" / "crd" / "standard"
    api = [crd for path in sorted(folder.glob("*.json")) for crd in _documents(path)]
    for crd in api:
        crd["metadata"]["annotations"][_CHANNEL] = channel
    return api


def envoy_gateway(version: str, *, channel: str = "experimental", image: str = "") -> PackedChart:
    """Pack the chart of Envoy Gateway, whose subchart has the definitions of the Gateway API, said to be of a channel."""
    api = gateway_definitions(channel)
    crds = {
        "gateway-api.yaml": _text(*api),
        "envoy.yaml": _text(
            _crd("gateway.envoyproxy.io", "EnvoyProxy", "v1alpha1", plural="envoyproxies"),
            _crd(
                "gateway.envoyproxy.io",
                "ClientTrafficPolicy",
                "v1alpha1",
                plural="clienttrafficpolicies",
            ),
        ),
    }
    controller = _deployment("envoy-gateway", node_selector={READABLE: "true"}, image=image)
    values = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "envoy-gateway-config"}, "data": {"values": "VALUES"}}
    return chart(
        pins.ENVOY_GATEWAY.chart,
        version,
        subcharts=[chart("crds", "0.0.0", crds=crds)],
        templates={
            "controller.yaml": _text(controller),
            "config.yaml": _text(values).replace('"VALUES"', "{{ .Values.config | toJson | quote }}"),
        },
    )


def cert_manager(version: str, *, also: str = "", fails: str = "") -> PackedChart:
    """Pack the chart of cert-manager, whose definitions are templates; with a kind `also`, it has one more.

    With a text in `fails` it does not render, and says so.
    """
    crds = _text(*(_crd("cert-manager.io", kind) for kind in filter(None, ("Certificate", also))))
    return chart(
        pins.CERT_MANAGER.chart,
        version,
        templates={
            "crds.yaml": f"{{{{ if .Values.crds.enabled }}}}\n{crds}\n{{{{ end }}}}",
            "controller.yaml": _text(_deployment("cert-manager")),
            **({"fails.yaml": f'{{{{ fail "{fails}" }}}}'} if fails else {}),
        },
        values={"crds": {"enabled": False}},
    )


def _ai_gateway(pin: ChartPin) -> PackedChart:
    rules = [{"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": ["get", "list", "watch"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": POOL_ROLE}, "rules": rules}
    return chart(
        pin.chart, pin.version, templates={"controller.yaml": _text(_deployment("ai-gateway-controller")), "role.yaml": _text(role)}
    )


def _prometheus(pin: ChartPin) -> PackedChart:
    crds = {"monitors.yaml": _text(_crd("monitoring.coreos.com", "PodMonitor"))}
    return chart(
        pin.chart,
        pin.version,
        subcharts=[chart("crds", "0.0.0", crds=crds)],
        templates={"operator.yaml": _text(_deployment("prometheus-operator"))},
    )


def _feature_discovery(pin: ChartPin) -> PackedChart:
    worker = _text(_daemon_set("nfd-worker")).replace('"TOLERATIONS"', "{{ .Values.worker.tolerations | toJson }}")
    return chart(
        pin.chart,
        pin.version,
        crds={"features.yaml": _text(_crd("nfd.k8s-sigs.io", "NodeFeature", "v1alpha1"))},
        templates={"worker.yaml": worker, "master.yaml": _text(_deployment("nfd-master"))},
    )


def _dra_driver(pin: ChartPin) -> PackedChart:
    plugin = _text(_daemon_set("dra-kubelet-plugin", {"modelplane.ai/pool": "gpus"}))
    plugin = plugin.replace('"TOLERATIONS"', '[{"key": "nvidia.com/gpu", "operator": "Exists"}]')
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]},
    }
    refusal = '{{ if not .Values.gpuResourcesEnabledOverride }}{{ fail "gpuResourcesEnabledOverride must be set" }}{{ end }}\n'
    return chart(pin.chart, pin.version, templates={"plugin.yaml": refusal + plugin, "class.yaml": _text(device_class)})


def _documents(path: Path) -> list[Json]:
    """Read a file of definitions: a JSON list of documents."""
    found = load_all(path.read_text())
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found


def _text(*documents: Json) -> str:
    return "\n---\n".join(json.dumps(document) for document in documents)


def _crd(group: str, kind: str, version: str = "v1", *, plural: str = "") -> Json:
    plural = plural or f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def _pods(name: str, node_selector: Json | None = None, image: str = "") -> Json:
    labels = {"app.kubernetes.io/instance": "{{ .Release.Name }}", "app": name}
    spec = {
        "containers": [{"name": "main", "image": f"registry.example/{image or name}:1"}],
        "nodeSelector": node_selector or {},
        # The end of a namespace waits for half the grace period of its pods before it looks again.
        "terminationGracePeriodSeconds": 1,
    }
    return {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels}, "spec": spec}}


def _deployment(name: str, *, node_selector: Json | None = None, image: str = "") -> Json:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": _pods(name, node_selector, image)}


def _daemon_set(name: str, node_selector: Json | None = None) -> Json:
    spec = _pods(name, node_selector)
    spec["template"]["spec"]["tolerations"] = "TOLERATIONS"
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": spec}
