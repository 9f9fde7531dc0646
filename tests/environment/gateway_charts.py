"""Small charts that imitate Traefik and MetalLB for the control cluster's gateway."""

import json
from typing import Any

from api_types.pins import charts as pins
from tests.environment.charts import PackedChart, chart

Json = dict[str, Any]

NOWHERE = {"tests/no-such-node": "true"}
"""No node has this label, so pods that select it stay Pending."""


def traefik_chart(
    version: str = pins.TRAEFIK.version, *, node_selector: Json | None = None
) -> PackedChart:
    """Pack a chart with a Deployment and a load balancer Service.

    Its ConfigMap contains the chart's values.
    """
    given = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "traefik-values"},
        "data": {"providers": "P", "gateway": "G"},
    }
    text = json.dumps(given).replace('"P"', "{{ .Values.providers | toJson | quote }}")
    text = text.replace(
        '"G"',
        '{{ printf "%v %v" .Values.gateway.enabled .Values.gatewayClass.enabled | quote }}',
    )
    service = _service("traefik", "traefik", kind="LoadBalancer")
    return chart(
        "traefik",
        version,
        templates={
            "deployment.yaml": json.dumps(_deployment("traefik", node_selector)),
            "service.yaml": json.dumps(service).replace(
                '"traefik"', "{{ .Values.service.nameOverride | quote }}", 1
            ),
            "values.yaml": text,
        },
        values={
            "gateway": {"enabled": True},
            "gatewayClass": {"enabled": True},
            "service": {"nameOverride": "other"},
        },
    )


def metallb_chart() -> PackedChart:
    """Pack a chart with a controller, a webhook's Service, and the address kinds."""
    kinds = [
        _crd("IPAddressPool", "ipaddresspools"),
        _crd("L2Advertisement", "l2advertisements"),
    ]
    return chart(
        "metallb",
        pins.METALLB.version,
        templates={
            "controller.yaml": json.dumps(_deployment("metallb-controller", None)),
            "webhook.yaml": json.dumps(
                _service("metallb-webhook-service", "metallb-controller")
            ),
            "kinds.yaml": "\n---\n".join(map(json.dumps, kinds)),
        },
    )


def _deployment(name: str, node_selector: Json | None) -> Json:
    labels = {"app.kubernetes.io/instance": "{{ .Release.Name }}", "app": name}
    pods = {
        "containers": [{"name": "main", "image": f"registry.example/{name}:1"}],
        "nodeSelector": node_selector or {},
    }
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": labels}, "spec": pods},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": spec,
    }


def _service(name: str, app: str, kind: str = "ClusterIP") -> Json:
    spec = {"type": kind, "selector": {"app": app}, "ports": [{"port": 80}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": spec,
    }


def _crd(kind: str, plural: str) -> Json:
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.metallb.io"},
        "spec": {
            "group": "metallb.io",
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "listKind": f"{kind}List",
            },
            "versions": [
                {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
            ],
        },
    }
