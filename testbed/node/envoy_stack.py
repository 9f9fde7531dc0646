"""The objects of Envoy Gateway and of the stand-in for the AI gateway.

The product installs both with Helm. The testbed renders the chart of Envoy Gateway with
the product's values and applies the objects, so that a start does not wait for Helm's
hooks. One value differs: the webhook that labels proxies with their zone is left out,
because the API server does not reach pods.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.documents import load_all
from testbed.waiting import StartFailed

NAMESPACE = "envoy-gateway-system"
ENVOY_GROUP = "gateway.envoyproxy.io"
CONTROLLER = f"{ENVOY_GROUP}/gatewayclass-controller"
CERTIFICATES = f"/api/v1/namespaces/{NAMESPACE}/secrets/envoy-gateway"
"""The path of the Secret that the chart's Job creates."""
EXTENSION_NAMESPACE = "envoy-ai-gateway-system"
EXTENSION = "ai-gateway-controller"
EXTENSION_PORT = 1063
_RELEASE = "mp-gateway-helm"
_EXTENSION_IMAGE = "docker.io/envoyproxy/ai-gateway-controller:stand-in"

Document = dict[str, Any]


@dataclass(frozen=True)
class ControlEnvoy:
    """The product's part on the control cluster, which has no AI gateway."""

    values: Mapping[str, Any]
    """The values of Envoy Gateway's chart."""
    objects: Sequence[Document]
    """The objects of its Gateway, and the Gateway as the last one."""


@dataclass(frozen=True)
class EnvoyStack:
    """The product's part: the values of the charts, and the objects of its Gateway."""

    values: Mapping[str, Any]
    """The values of Envoy Gateway's chart."""
    message_bytes: int
    """The largest message that the AI gateway receives, a value of its chart."""
    objects: Sequence[Document]
    control: ControlEnvoy


def documents(stack: EnvoyStack, helm: Path, chart: Path) -> list[Document]:
    """Return the objects of Envoy Gateway, the stand-in, and the product's Gateway.

    Raise StartFailed if Helm refuses the values.
    """
    # A role of the AI gateway's chart. Without it Envoy Gateway reads no pool, and
    # reconciles nothing.
    reader = "testbed-inference-pools"
    account = {
        "kind": "ServiceAccount",
        "name": "envoy-gateway",
        "namespace": NAMESPACE,
    }
    rbac = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": ["inference.networking.k8s.io"],
        "resources": ["inferencepools"],
        "verbs": ["get", "list", "watch"],
    }
    return [
        _namespace(NAMESPACE),
        _namespace(EXTENSION_NAMESPACE),
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": reader},
            "rules": [rule],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": reader},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": reader},
            "subjects": [account],
        },
        *_extension(stack.message_bytes),
        *_rendered(stack.values, helm, chart),
        *stack.objects,
    ]


def control_documents(control: ControlEnvoy, helm: Path, chart: Path) -> list[Document]:
    """Return the objects of Envoy Gateway and of the Gateway for the control cluster.

    Raise StartFailed if Helm refuses the values.
    """
    return [
        _namespace(NAMESPACE),
        *_rendered(control.values, helm, chart),
        *control.objects,
    ]


def _namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _extension(message_bytes: int) -> list[Document]:
    labels = {"app": EXTENSION}
    metadata = {"name": EXTENSION, "namespace": EXTENSION_NAMESPACE}
    probe = {"grpc": {"port": EXTENSION_PORT}, "periodSeconds": 1}
    container = {
        "name": "controller",
        "image": _EXTENSION_IMAGE,
        "args": [f"--maxRecvMsgSize={message_bytes}"],
        "ports": [{"name": "grpc", "containerPort": EXTENSION_PORT}],
        "readinessProbe": probe,
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container]},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "selector": labels,
                "ports": [{"name": "grpc", "port": EXTENSION_PORT}],
            },
        },
    ]


def _rendered(values: Mapping[str, Any], helm: Path, chart: Path) -> list[Document]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "values.json"
        file.write_text(json.dumps(values))
        command = [str(helm), "template", _RELEASE, str(chart), "--values", str(file)]
        command += ["--namespace", NAMESPACE, "--set", "topologyInjector.enabled=false"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise StartFailed(
            f"the chart of Envoy Gateway cannot be rendered: {answer.stderr}"
        )
    # A policy guards upgrades of definitions. Nothing is upgraded in a testbed.
    return [
        each
        for each in load_all(answer.stdout)
        if not each["kind"].startswith("ValidatingAdmissionPolicy")
    ]
