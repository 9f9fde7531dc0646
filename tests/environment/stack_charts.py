"""Small charts that imitate the dependencies and rejections of a stack's real charts."""

import json
from typing import Any

from api_types.pins import charts as pins
from api_types.pins.charts import ChartPin
from testbed.cluster.webhooks import custom_resources
from testbed.programs.install import Installer
from tests.environment.charts import PackedChart, chart

Json = dict[str, Any]

READABLE = "envoy.stand-in/pools-readable"
"""The stand-in sets this label on nodes once InferencePools are readable.

Envoy Gateway may run only on such nodes, because without InferencePools it does not
become ready.
"""
POOL_ROLE = "stand-in-reads-pools"
"""The ClusterRole, from the AI gateway's chart, that lets Envoy Gateway read
InferencePools.
"""
_CHANNEL = "gateway.networking.k8s.io/channel"
_ANYTHING: Json = {"x-kubernetes-preserve-unknown-fields": True}


def stack_charts() -> list[PackedChart]:
    """Pack every chart of the stack in its pinned version."""
    return [
        cert_manager(pins.CERT_MANAGER.version),
        envoy_gateway(pins.ENVOY_GATEWAY.version),
        chart(
            pins.AI_GATEWAY_CRDS.chart,
            pins.AI_GATEWAY_CRDS.version,
            templates={
                "crds.yaml": _text(crd("aigateway.envoyproxy.io", "AIGatewayRoute"))
            },
        ),
        _ai_gateway(pins.AI_GATEWAY),
        _prometheus(pins.PROMETHEUS),
        leader_worker_set(pins.LEADER_WORKER_SET.version),
        _feature_discovery(pins.NODE_FEATURE_DISCOVERY),
        _dra_driver(pins.NVIDIA_DRA_DRIVER),
    ]


def leader_worker_set(
    version: str, *, field: str = "", image: str = "lws"
) -> PackedChart:
    """Pack the LeaderWorkerSet chart, with its definition in `crds/`.

    `field` adds a field to the definition's spec.
    """
    (crd,) = _definitions("lws")
    if field:
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
            "properties"
        ][field] = {"type": "string"}
    return chart(
        "lws",
        version,
        crds={"lws.yaml": _text(crd)},
        templates={
            "controller.yaml": _text(_deployment("lws-controller-manager", image=image))
        },
    )


def gateway_definitions(channel: str = "experimental") -> list[Json]:
    """Return the definitions of the Gateway API that Envoy Gateway's chart contains.

    `channel` is the value of their channel annotation.
    """
    api = _definitions("gateway-api")
    for crd in api:
        crd["metadata"]["annotations"][_CHANNEL] = channel
    return api


def envoy_gateway(
    version: str,
    *,
    channel: str = "experimental",
    image: str = "",
    awaits_pools: bool = True,
) -> PackedChart:
    """Pack the Envoy Gateway chart.

    Its subchart contains the Gateway API definitions. With `awaits_pools` its pod starts
    only where InferencePools can be read.
    """
    api = gateway_definitions(channel)
    crds = {
        "gateway-api.yaml": _text(*api),
        "envoy.yaml": _text(
            crd(
                "gateway.envoyproxy.io", "EnvoyProxy", "v1alpha1", plural="envoyproxies"
            ),
            *(
                crd(
                    "gateway.envoyproxy.io",
                    f"{side}TrafficPolicy",
                    "v1alpha1",
                    plural=f"{side.lower()}trafficpolicies",
                )
                for side in ("Client", "Backend")
            ),
        ),
    }
    controller = _deployment(
        "envoy-gateway",
        node_selector={READABLE: "true"} if awaits_pools else None,
        image=image,
    )
    values = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "envoy-gateway-config"},
        "data": {"values": "VALUES"},
    }
    return chart(
        pins.ENVOY_GATEWAY.chart,
        version,
        subcharts=[chart("crds", "0.0.0", crds=crds)],
        templates={
            "controller.yaml": _text(controller),
            "config.yaml": _text(values).replace(
                '"VALUES"', "{{ .Values.config | toJson | quote }}"
            ),
        },
    )


def cert_manager(version: str, *, also: str = "", fails: str = "") -> PackedChart:
    """Pack the cert-manager chart.

    Its definitions are templates.

    `also` adds the definition of one more kind. With `fails`, rendering fails with this
    message.
    """
    crds = _text(
        *(crd("cert-manager.io", kind) for kind in filter(None, ("Certificate", also)))
    )
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
    rules = [
        {
            "apiGroups": ["inference.networking.k8s.io"],
            "resources": ["inferencepools"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": POOL_ROLE},
        "rules": rules,
    }
    return chart(
        pin.chart,
        pin.version,
        templates={
            "controller.yaml": _text(_deployment("ai-gateway-controller")),
            "role.yaml": _text(role),
        },
    )


def _prometheus(pin: ChartPin) -> PackedChart:
    crds = {"monitors.yaml": _text(crd("monitoring.coreos.com", "PodMonitor"))}
    return chart(
        pin.chart,
        pin.version,
        subcharts=[chart("crds", "0.0.0", crds=crds)],
        templates={"operator.yaml": _text(_deployment("prometheus-operator"))},
    )


def _feature_discovery(pin: ChartPin) -> PackedChart:
    worker = _text(_daemon_set("nfd-worker")).replace(
        '"TOLERATIONS"', "{{ .Values.worker.tolerations | toJson }}"
    )
    return chart(
        pin.chart,
        pin.version,
        crds={
            "features.yaml": _text(crd("nfd.k8s-sigs.io", "NodeFeature", "v1alpha1"))
        },
        templates={
            "worker.yaml": worker,
            "master.yaml": _text(_deployment("nfd-master")),
        },
    )


def _dra_driver(pin: ChartPin) -> PackedChart:
    plugin = _text(_daemon_set("dra-kubelet-plugin", {"modelplane.ai/pool": "gpus"}))
    plugin = plugin.replace(
        '"TOLERATIONS"', '[{"key": "nvidia.com/gpu", "operator": "Exists"}]'
    )
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {
            "selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]
        },
    }
    refusal = (
        "{{ if not .Values.gpuResourcesEnabledOverride }}"
        '{{ fail "gpuResourcesEnabledOverride must be set" }}{{ end }}\n'
    )
    return chart(
        pin.chart,
        pin.version,
        templates={"plugin.yaml": refusal + plugin, "class.yaml": _text(device_class)},
    )


def _definitions(name: str) -> list[Json]:
    """Return the definitions of a project, with the fields of their specs but not of those.

    Each test creates and deletes them, and an API server compiles every rule of a
    definition for each of its states. `test_real_charts.py` has whole definitions.
    """
    found = custom_resources(Installer().definitions(name))
    for definition in found:
        for version in definition["spec"]["versions"]:
            whole = version["schema"]["openAPIV3Schema"]["properties"]
            fields = whole.get("spec", {}).get("properties", {})
            version["schema"]["openAPIV3Schema"] = {
                **_ANYTHING,
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": dict.fromkeys(fields, _ANYTHING),
                    }
                },
            }
    return found


def _text(*documents: Json) -> str:
    return "\n---\n".join(json.dumps(document) for document in documents)


def crd(group: str, kind: str, version: str = "v1", *, plural: str = "") -> Json:
    plural = plural or f"{kind.lower()}s"
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": schema}
            ],
        },
    }


def _pods(name: str, node_selector: Json | None = None, image: str = "") -> Json:
    labels = {"app.kubernetes.io/instance": "{{ .Release.Name }}", "app": name}
    spec = {
        "containers": [
            {"name": "main", "image": f"registry.example/{image or name}:1"}
        ],
        "nodeSelector": node_selector or {},
        # Before the namespace controller checks a deleted namespace again, it waits for
        # half the grace period of its pods.
        "terminationGracePeriodSeconds": 1,
    }
    return {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }


def _deployment(
    name: str, *, node_selector: Json | None = None, image: str = ""
) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": _pods(name, node_selector, image),
    }


def _daemon_set(name: str, node_selector: Json | None = None) -> Json:
    spec = _pods(name, node_selector)
    spec["template"]["spec"]["tolerations"] = "TOLERATIONS"
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": spec,
    }
