"""The objects of a stack that no chart has, in groups that are applied together (spec 2.4)."""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from activities.render.objects.manifest import Item, Json, Owner, labelled_item
from activities.render.stack.components import DRA_DRIVER
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE
from api_types.pins import apiversions
from api_types.resources.serving_stack import Listener, ServingStackSpec, StackGateway

CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
_ENVOY_VERSION = "gateway.envoyproxy.io/v1alpha1"
ENVOY_PROXY = (_ENVOY_VERSION, "EnvoyProxy")
CLIENT_TRAFFIC_POLICY = (_ENVOY_VERSION, "ClientTrafficPolicy")
STEERING_HEADERS = (
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-gateway-destination-endpoint",
)
"""Headers by which pickers and sidecars name the pod for a request. From a client they would send
requests of the cluster to any address."""
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
DRA_NAMESPACE = DRA_DRIVER.pin.namespace
QUOTA = "allow-critical-pods"
INFERENCE_CRDS = (
    "inferencepools.inference.networking.k8s.io",
    "inferencepools.inference.networking.x-k8s.io",
    "inferenceobjectives.inference.networking.x-k8s.io",
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


def group(name: str, spec: ServingStackSpec, owner: Owner) -> list[Item]:
    """Give the objects of one group, in order, with the marks of their owner. Raises KeyError for another name."""
    return [_item(owner, f"{name}-{at}", manifest) for at, manifest in enumerate(_GROUPS[name](spec))]


def _item(owner: Owner, key: str, manifest: Json) -> Item:
    # A definition of a group of Kubernetes itself is refused without the annotation that says who approved it.
    return labelled_item(owner, key, _COMPONENT, manifest, extra_annotations=manifest["metadata"].get("annotations"))


def class_name(spec: ServingStackSpec) -> str:
    """Name the GatewayClass of a stack."""
    return (spec.gateway or StackGateway()).class_name


def _object(api_version: str, kind: str, name: str, namespace: str = "", **content: Any) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _namespaces(_: ServingStackSpec) -> list[Json]:
    # That of the driver is there before its quota, and the quota before its pods.
    return [_object(apiversions.CORE, "Namespace", name) for name in (SYSTEM_NAMESPACE, DRA_NAMESPACE)]


def _quota(_: ServingStackSpec) -> list[Json]:
    """GKE admits pods of these priorities only where a quota allows them; everywhere else it limits nothing."""
    critical = ["system-node-critical", "system-cluster-critical"]
    scopes = [{"scopeName": "PriorityClass", "operator": "In", "values": critical}]
    spec = {"hard": {"pods": "1000"}, "scopeSelector": {"matchExpressions": scopes}}
    return [_object(apiversions.CORE, "ResourceQuota", QUOTA, DRA_NAMESPACE, spec=spec)]


def _definitions(_: ServingStackSpec) -> list[Json]:
    return [json.loads(files(_PACKAGE).joinpath("crds", f"{name}.json").read_text(encoding="utf-8")) for name in INFERENCE_CRDS]


def _proxy(spec: ServingStackSpec) -> list[Json]:
    """Return the settings of the proxies and the policy for the headers of requests.

    Each replica that comes or goes changes the listener. Streams on the old listener are cut when
    its drain ends.
    """
    # `Local`, the default, is refused by the load balancers of some clouds.
    service = {"envoyService": {"externalTrafficPolicy": "Cluster"}}
    longest = (spec.gateway or StackGateway()).longest_generation_seconds
    proxy = {
        "provider": {"type": "Kubernetes", "kubernetes": service},
        "shutdown": {"drainTimeout": f"{longest}s"},
    }
    group = apiversions.GATEWAY.partition("/")[0]
    target = {"group": group, "kind": "Gateway", "name": GATEWAY_NAME}
    policy = {
        "targetRefs": [target],
        "headers": {"earlyRequestHeaders": {"remove": list(STEERING_HEADERS)}},
    }
    return [
        _object(*ENVOY_PROXY, GATEWAY_NAME, SYSTEM_NAMESPACE, spec=proxy),
        _object(*CLIENT_TRAFFIC_POLICY, GATEWAY_NAME, SYSTEM_NAMESPACE, spec=policy),
    ]


def _gateway_class(spec: ServingStackSpec) -> list[Json]:
    version, kind = ENVOY_PROXY
    parameters = {"group": version.partition("/")[0], "kind": kind, "name": GATEWAY_NAME, "namespace": SYSTEM_NAMESPACE}
    content = {"controllerName": CONTROLLER, "parametersRef": parameters}
    return [_object(apiversions.GATEWAY, "GatewayClass", class_name(spec), spec=content)]


def _gateway(spec: ServingStackSpec) -> list[Json]:
    listeners = [
        {"name": each.name, "port": each.port, "protocol": each.protocol, "allowedRoutes": {"namespaces": {"from": "All"}}}
        for each in (spec.gateway or StackGateway()).listeners or _DEFAULT_LISTENERS
    ]
    content = {"gatewayClassName": class_name(spec), "listeners": listeners}
    return [_object(apiversions.GATEWAY, "Gateway", GATEWAY_NAME, SYSTEM_NAMESPACE, spec=content)]


_GROUPS: dict[str, Callable[[ServingStackSpec], list[Json]]] = {
    NAMESPACES: _namespaces,
    QUOTA_GROUP: _quota,
    CRDS: _definitions,
    PROXY: _proxy,
    CLASS: _gateway_class,
    GATEWAY: _gateway,
}
