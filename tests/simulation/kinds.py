"""The kinds that simulated clusters serve, and the charts and definitions that add
further kinds.
"""

from collections.abc import Iterable, Mapping

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ApiResource, GroupVersionKind
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
    "BackendTrafficPolicy": "backendtrafficpolicies",
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
        GroupVersionKind("v1", name)
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
    *(
        GroupVersionKind("apps/v1", name)
        for name in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
    ),
    *(
        GroupVersionKind("rbac.authorization.k8s.io/v1", name)
        for name in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ),
    *(
        GroupVersionKind("resource.k8s.io/v1", name)
        for name in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    ),
    GroupVersionKind("policy/v1", "PodDisruptionBudget"),
    GroupVersionKind("discovery.k8s.io/v1", "EndpointSlice"),
    GroupVersionKind("networking.k8s.io/v1", "ServiceCIDR"),
    GroupVersionKind("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    kinds.JOB,
    kinds.STORAGE_CLASS,
    kinds.CRD,
)
# Kinds of definitions that are applied, or that charts bring.
GATEWAY = (kinds.GATEWAY, kinds.GATEWAY_CLASS, kinds.HTTP_ROUTE)
ENVOY = (
    *GATEWAY,
    GroupVersionKind("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy"),
    GroupVersionKind("gateway.envoyproxy.io/v1alpha1", "ClientTrafficPolicy"),
    GroupVersionKind("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy"),
)
LWS = (kinds.LEADER_WORKER_SET,)
MONITORS = (GroupVersionKind(apiversions.POD_MONITOR, "PodMonitor"),)
INFERENCE = (
    kinds.INFERENCE_POOL,
    GroupVersionKind(apiversions.MODEL_REWRITES[1], "InferenceModelRewrite"),
)
TRAEFIK = (kinds.MIDDLEWARE,)
METALLB = (
    GroupVersionKind(apiversions.METALLB, "IPAddressPool"),
    GroupVersionKind(apiversions.METALLB, "L2Advertisement"),
)
STACK = (*ENVOY, *LWS, *MONITORS, *INFERENCE)


def resources(served: Iterable[GroupVersionKind]) -> dict[GroupVersionKind, ApiResource]:
    """Return how each kind is addressed."""
    return {
        kind: ApiResource(kind, plural(kind.kind), kind.kind not in _CLUSTER_SCOPED, _VERBS)
        for kind in served
    }


def plural(kind: str) -> str:
    """Return the plural of a kind."""
    return _PLURALS.get(kind) or f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"


def defined_by(definition: Json) -> list[GroupVersionKind]:
    """Return the kinds that a definition serves."""
    spec = definition["spec"]
    return [
        GroupVersionKind(f"{spec['group']}/{each['name']}", spec["names"]["kind"])
        for each in spec["versions"]
        if each.get("served", True)
    ]


def definition_of(kind: GroupVersionKind) -> Json:
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


def by_definition(
    served: Mapping[GroupVersionKind, ApiResource], definition: Json
) -> list[GroupVersionKind]:
    """Return the kinds among those served that a definition has."""
    spec = definition["spec"]
    return [
        kind for kind in served if (kind.group, kind.kind) == (spec["group"], spec["names"]["kind"])
    ]
