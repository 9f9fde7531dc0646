"""The objects of a stack that no chart contains, in groups that are applied together."""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from activities.render.objects.edge import SESSION_HEADER, STEERING_HEADERS
from activities.render.objects.envoy_gateway import CONTROLLER, ENVOY_PROXY
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    labelled_item,
)
from activities.render.stack.components import DRA_DRIVER
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE
from api_types.pins import apiversions
from api_types.resources.serving_stack import (
    Listener,
    ServingStackSpec,
    StackGateway,
    StackPods,
)

CLIENT_TRAFFIC_POLICY = (apiversions.ENVOY, "ClientTrafficPolicy")
BACKEND_TRAFFIC_POLICY = (apiversions.ENVOY, "BackendTrafficPolicy")
_REQUESTS_MAX = 1000
"""The number of open requests to a replica that one proxy accepts.

The gateway holds a stream to the picker for each request. The AI gateway adds the
cluster of the picker after all policies are applied, so its limit remains Envoy's
default of 1,024, and a request above it would get 500. A request above this limit gets
503, which a ModelService can retry at another replica.
"""
_CONNECTIONS_MAX = 8 * _REQUESTS_MAX
"""Idle connections to pods count too, so there may be more of them than requests."""
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
DRA_NAMESPACE = DRA_DRIVER.pin.namespace
QUOTA = "allow-critical-pods"
INFERENCE_CRDS = (
    "inferencepools.inference.networking.k8s.io",
    "inferenceobjectives.inference.networking.x-k8s.io",
    "inferencemodelrewrites.inference.networking.x-k8s.io",
)
INFERENCE_POOL_CRD = INFERENCE_CRDS[0]

NAMESPACES = "namespaces"
QUOTA_GROUP = "quota"
CRDS = "inference-crds"
PROXY = "gateway-proxy"
CLASS = "gateway-class"
GATEWAY = "gateway"
GROUPS = (NAMESPACES, QUOTA_GROUP, CRDS, PROXY, CLASS, GATEWAY)

_COMPONENT = "serving-stack"
_PACKAGE = __name__.rpartition(".")[0]
_DEFAULT_LISTENERS = (Listener(name="http", port=80, protocol="HTTP"),)


def group(
    name: str, spec: ServingStackSpec, owner: RenderOwner
) -> list[RenderedObject]:
    """Return the objects of one group, in order, with their owner's marks.

    Raises KeyError for an unknown group.
    """
    return [
        _item(owner, f"{name}-{at}", manifest)
        for at, manifest in enumerate(_GROUPS[name](spec))
    ]


def references(name: str, spec: ServingStackSpec) -> list[Json]:
    """Return the objects of one group, in order, without marks.

    Definitions have no schema. Raises KeyError for an unknown group.
    """
    if name == CRDS:
        return [_object(*CRD, each) for each in INFERENCE_CRDS]
    return _GROUPS[name](spec)


def _item(owner: RenderOwner, key: str, manifest: Json) -> RenderedObject:
    # Kubernetes rejects a definition in one of its own groups without the annotation
    # that names its approval.
    return labelled_item(
        owner,
        key,
        _COMPONENT,
        manifest,
        extra_annotations=manifest["metadata"].get("annotations"),
    )


def class_name(spec: ServingStackSpec) -> str:
    """Return the name of a stack's GatewayClass."""
    return (spec.gateway or StackGateway()).class_name


def _object(
    api_version: str, kind: str, name: str, namespace: str = "", **content: Any
) -> Json:
    metadata = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _namespaces(_: ServingStackSpec) -> list[Json]:
    # The namespace of the driver exists before its quota, and the quota before its
    # pods.
    return [
        _object(apiversions.CORE, "Namespace", name)
        for name in (SYSTEM_NAMESPACE, DRA_NAMESPACE)
    ]


def _quota(_: ServingStackSpec) -> list[Json]:
    """Return the quota without which GKE does not admit pods of these priorities.

    On other clusters it has no effect.
    """
    critical = ["system-node-critical", "system-cluster-critical"]
    scopes = [{"scopeName": "PriorityClass", "operator": "In", "values": critical}]
    spec = {"hard": {"pods": "1000"}, "scopeSelector": {"matchExpressions": scopes}}
    return [_object(apiversions.CORE, "ResourceQuota", QUOTA, DRA_NAMESPACE, spec=spec)]


def _definitions(_: ServingStackSpec) -> list[Json]:
    folder = files(_PACKAGE).joinpath("crds")
    return [
        json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))
        for name in INFERENCE_CRDS
    ]


def _proxy(spec: ServingStackSpec) -> list[Json]:
    """Return the settings of the proxies, and the policies for their requests.

    Adding or removing a replica changes the listener. Streams on the old listener are
    cut when its drain ends.
    """
    # The load balancers of some clouds reject `Local`, the default.
    kubernetes: Json = {"envoyService": {"externalTrafficPolicy": "Cluster"}}
    if pod := _proxy_pod(spec.pods or StackPods()):
        kubernetes["envoyDeployment"] = {"pod": pod}
    longest = (spec.gateway or StackGateway()).longest_generation_seconds
    proxy = {
        "provider": {"type": "Kubernetes", "kubernetes": kubernetes},
        "shutdown": {"drainTimeout": f"{longest}s"},
    }
    group = apiversions.GATEWAY.partition("/")[0]
    target = {"group": group, "kind": "Gateway", "name": GATEWAY_NAME}
    clients = {
        "targetRefs": [target],
        "headers": {
            "earlyRequestHeaders": {"remove": [*STEERING_HEADERS, SESSION_HEADER]}
        },
    }
    limits = {
        "maxParallelRequests": _REQUESTS_MAX,
        "maxPendingRequests": _REQUESTS_MAX,
        "maxConnections": _CONNECTIONS_MAX,
    }
    backends = {"targetRefs": [target], "circuitBreaker": limits}
    return [
        _object(*ENVOY_PROXY, GATEWAY_NAME, SYSTEM_NAMESPACE, spec=proxy),
        _object(*CLIENT_TRAFFIC_POLICY, GATEWAY_NAME, SYSTEM_NAMESPACE, spec=clients),
        _object(*BACKEND_TRAFFIC_POLICY, GATEWAY_NAME, SYSTEM_NAMESPACE, spec=backends),
    ]


def _proxy_pod(pods: StackPods) -> Json:
    tolerations = [each.model_dump(exclude_none=True) for each in pods.tolerations]
    wanted = {
        "tolerations": tolerations,
        "affinity": pods.affinity,
        "priorityClassName": pods.priority_class_name,
    }
    return {key: value for key, value in wanted.items() if value}


def _gateway_class(spec: ServingStackSpec) -> list[Json]:
    version, kind = ENVOY_PROXY
    parameters = {
        "group": version.partition("/")[0],
        "kind": kind,
        "name": GATEWAY_NAME,
        "namespace": SYSTEM_NAMESPACE,
    }
    content = {"controllerName": CONTROLLER, "parametersRef": parameters}
    return [
        _object(apiversions.GATEWAY, "GatewayClass", class_name(spec), spec=content)
    ]


def _gateway(spec: ServingStackSpec) -> list[Json]:
    listeners = [
        {
            "name": each.name,
            "port": each.port,
            "protocol": each.protocol,
            "allowedRoutes": {"namespaces": {"from": "All"}},
        }
        for each in (spec.gateway or StackGateway()).listeners or _DEFAULT_LISTENERS
    ]
    content = {"gatewayClassName": class_name(spec), "listeners": listeners}
    return [
        _object(
            apiversions.GATEWAY, "Gateway", GATEWAY_NAME, SYSTEM_NAMESPACE, spec=content
        )
    ]


_GROUPS: dict[str, Callable[[ServingStackSpec], list[Json]]] = {
    NAMESPACES: _namespaces,
    QUOTA_GROUP: _quota,
    CRDS: _definitions,
    PROXY: _proxy,
    CLASS: _gateway_class,
    GATEWAY: _gateway,
}
