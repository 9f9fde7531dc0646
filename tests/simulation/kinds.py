"""The kinds that simulated clusters serve, and which charts and definitions bring the others."""

from collections.abc import Iterable, Mapping

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Kind, Resource
from api_types.pins import apiversions
from tests.simulation.fields import Json

_VERBS = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})
_PLURALS = {
    "Gateway": "gateways",
    "GatewayClass": "gatewayclasses",
    "StorageClass": "storageclasses",
    "DeviceClass": "deviceclasses",
    "ServiceCIDR": "servicecidrs",
    "EnvoyProxy": "envoyproxies",
    "ClientTrafficPolicy": "clienttrafficpolicies",
}
_CLUSTER_SCOPED = frozenset(
    {
        "Namespace",
        "Node",
        "PersistentVolume",
        "ClusterRole",
        "ClusterRoleBinding",
        "StorageClass",
        "CustomResourceDefinition",
        "GatewayClass",
        "DeviceClass",
        "ResourceSlice",
        "ServiceCIDR",
    }
)
CORE = (
    *(
        Kind("v1", name)
        for name in (
            "Namespace",
            "Node",
            "Pod",
            "Secret",
            "ConfigMap",
            "Service",
            "ServiceAccount",
            "PersistentVolumeClaim",
            "PersistentVolume",
            "Event",
            "ResourceQuota",
        )
    ),
    *(Kind("apps/v1", name) for name in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")),
    *(
        Kind("rbac.authorization.k8s.io/v1", name)
        for name in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ),
    *(
        Kind("resource.k8s.io/v1", name)
        for name in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    ),
    Kind("policy/v1", "PodDisruptionBudget"),
    Kind("discovery.k8s.io/v1", "EndpointSlice"),
    Kind("networking.k8s.io/v1", "ServiceCIDR"),
    Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    kinds.JOB,
    kinds.STORAGE_CLASS,
    kinds.CRD,
)
# Kinds of definitions that are applied, or that charts bring.
GATEWAY = (kinds.GATEWAY, kinds.GATEWAY_CLASS, kinds.HTTP_ROUTE)
ENVOY = (
    *GATEWAY,
    Kind("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy"),
    Kind("gateway.envoyproxy.io/v1alpha1", "ClientTrafficPolicy"),
)
LWS = (kinds.LEADER_WORKER_SET,)
MONITORS = (Kind(apiversions.POD_MONITOR, "PodMonitor"),)
INFERENCE = (kinds.INFERENCE_POOL, Kind(apiversions.MODEL_REWRITES[1], "InferenceModelRewrite"))
TRAEFIK = (kinds.MIDDLEWARE,)
METALLB = (Kind(apiversions.METALLB, "IPAddressPool"), Kind(apiversions.METALLB, "L2Advertisement"))
STACK = (*ENVOY, *LWS, *MONITORS, *INFERENCE)


def resources(served: Iterable[Kind]) -> dict[Kind, Resource]:
    """Return how each kind is addressed."""
    return {
        kind: Resource(kind, plural(kind.kind), kind.kind not in _CLUSTER_SCOPED, _VERBS)
        for kind in served
    }


def plural(kind: str) -> str:
    """Return the plural of a kind."""
    return _PLURALS.get(kind) or f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"


def defined_by(definition: Json) -> list[Kind]:
    """Return the kinds that a definition serves."""
    spec = definition["spec"]
    return [
        Kind(f"{spec['group']}/{each['name']}", spec["names"]["kind"])
        for each in spec["versions"]
        if each.get("served", True)
    ]


def definition_of(kind: Kind) -> Json:
    """Return the definition of a kind, as a chart has it."""
    name = f"{plural(kind.kind)}.{kind.group}"
    version = {"name": kind.api_version.rpartition("/")[2], "served": True, "storage": True}
    scope = "Cluster" if kind.kind in _CLUSTER_SCOPED else "Namespaced"
    spec = {
        "group": kind.group,
        "scope": scope,
        "names": {"kind": kind.kind, "plural": plural(kind.kind)},
        "versions": [version],
    }
    return {
        "apiVersion": kinds.CRD.api_version,
        "kind": kinds.CRD.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def by_definition(served: Mapping[Kind, Resource], definition: Json) -> list[Kind]:
    """Return the kinds among those served that a definition has."""
    spec = definition["spec"]
    return [
        kind for kind in served if (kind.group, kind.kind) == (spec["group"], spec["names"]["kind"])
    ]
