"""What a cluster has already: the parts of others that a stack uses or leaves alone.

A part that others installed is used as it is, and Modelplane installs none of its own:
two controllers of one API would change each other's objects. It is found by a
definition or DeviceClass that neither this control plane nor its releases applied.
"""

from collections.abc import Mapping
from typing import NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import list_served
from activities.observe.digest import was_applied
from activities.render.objects.envoy_gateway import CONTROLLER
from activities.render.stack import components, objects
from activities.stack.ownership import object_conflict
from activities.stack.releases import release_of
from api_types import labels
from api_types.messages.stack import PreflightStack, StackPlan
from api_types.pins import apiversions, charts
from api_types.resources.serving_stack import ServingStackSpec

_NAMED_MAX = 5
# Other users choose these names.
_NAME_MAX = 253
_RETRY = "remove it and run `modelplane retry` to install this component instead"
_PLUGIN_RESOURCE = "nvidia.com/gpu"
_EXISTING = "Existing"
_RELEASES = frozenset(pin.release for pin in charts.STACK)

# The definition that shows that a component is installed.
_DEFINITIONS = {
    components.CERT_MANAGER.key: "certificates.cert-manager.io",
    components.LEADER_WORKER_SET.key: "leaderworkersets.leaderworkerset.x-k8s.io",
    components.PROMETHEUS.key: "podmonitors.monitoring.coreos.com",
    components.NODE_FEATURE_DISCOVERY.key: "nodefeatures.nfd.k8s-sigs.io",
}
_LIMITS = {
    components.PROMETHEUS.key: "its Prometheus must select the PodMonitors of models",
    components.DRA_DRIVER.key: "it must publish the devices of the classes",
}
# Software that a stack does not touch, by a kind that it serves.
_NEIGHBOURS = {
    GroupVersionKind("nvidia.com/v1", "ClusterPolicy"): "the NVIDIA GPU operator",
    GroupVersionKind("networking.istio.io/v1", "VirtualService"): "Istio",
    GroupVersionKind("keda.sh/v1alpha1", "ScaledObject"): "KEDA",
    GroupVersionKind("kuadrant.io/v1", "AuthPolicy"): "Kuadrant",
    GroupVersionKind(apiversions.KAI_POD_GROUP, "PodGroup"): (
        f"KAI (queues of models need the annotation {labels.SCHEDULER_TYPE}: kai)"
    ),
}
_KUEUE = f"Kueue (queues of models need the annotation {labels.SCHEDULER_TYPE}: kueue)"


class Existing(NamedTuple):
    """The findings.

    Attributes:
        adopted: components that others installed, with a text for users.
        left: what else others have, which the stack does not touch.
        problems: what others have and the stack cannot run beside.

    """

    adopted: dict[str, str]
    left: list[str]
    problems: list[str]


async def find_existing(
    cluster: ClusterApi, order: PreflightStack, plan: StackPlan
) -> Existing:
    """Find what others installed on a cluster. Components of the stack are not found."""
    # Others may have installed their parts since the cluster was connected.
    served = await cluster.resources(refresh=True)
    adopted = dict[str, str]()
    for key, release in plan.releases.items():
        if release.name in order.installed:
            continue
        if found := await _adopted(cluster, served, order, key):
            adopted[key] = found
    left = [name for kind, name in _NEIGHBOURS.items() if kind in served]
    if kinds.resolve((f"{apiversions.KUEUE_GROUP}/", "ClusterQueue"), served):
        left.append(_KUEUE)
    classes, problems = await _classes(cluster, order, plan)
    return Existing(adopted, [*left, *classes], problems)


async def _adopted(
    cluster: ClusterApi,
    served: Mapping[GroupVersionKind, ApiResource],
    order: PreflightStack,
    key: str,
) -> str:
    """Return a text if others installed a component, or an empty string."""
    if name := _DEFINITIONS.get(key):
        target: ObjectId | None = ObjectId(kinds.CRD, "", name)
    elif key == components.DRA_DRIVER.key:
        kind = kinds.resolve((f"{apiversions.DRA_GROUP}/", "DeviceClass"), served)
        target = ObjectId(kind, "", components.GPU_DRIVER) if kind else None
    else:
        return ""
    found = await cluster.get(target) if target else None
    if found and is_foreign(found):
        limit = f", but {_LIMITS[key]}" if key in _LIMITS else ""
        return (
            f"{key} is used as others installed it ({_owner(found)}){limit}; {_RETRY}"
        )
    if key == components.DRA_DRIVER.key and order.source == _EXISTING:
        return await _device_plugin(cluster)
    return ""


async def _device_plugin(cluster: ClusterApi) -> str:
    """Return a text if a device plugin already offers the GPUs of the nodes."""
    nodes = await cluster.list(Selection(kinds.NODE))
    offering = [
        str(node["metadata"]["name"])[:_NAME_MAX]
        for node in nodes.items
        if str(
            (node.get("status") or {}).get("allocatable", {}).get(_PLUGIN_RESOURCE, 0)
        )
        != "0"
    ]
    if not offering:
        return ""
    return (
        f"{components.DRA_DRIVER.key} is not installed: a device plugin of others offers "
        f"{_PLUGIN_RESOURCE} on {_named(offering)}, and both would assign the same GPUs. "
        "Use classes with claim: DevicePlugin, or disable the plugin and run "
        "`modelplane retry`"
    )


async def _classes(
    cluster: ClusterApi, order: PreflightStack, plan: StackPlan
) -> tuple[list[str], list[str]]:
    """Return the GatewayClasses of others, and those of another Envoy Gateway.

    Two Envoy Gateways with one controller name would both act on every class.
    """
    spec = ServingStackSpec.model_validate(plan.spec)
    name, uid = order.connection.cluster, order.cluster_uid
    left, problems = list[str](), list[str]()
    for item in await list_served(cluster, Selection(kinds.GATEWAY_CLASS)):
        own = str(item["metadata"]["name"])[:_NAME_MAX]
        if own == objects.class_name(spec) or not object_conflict(item, name, uid):
            continue
        controller = str((item.get("spec") or {}).get("controllerName"))[:_NAME_MAX]
        if controller == CONTROLLER:
            problems.append(
                f"GatewayClass {own} belongs to another Envoy Gateway of the cluster, "
                "and both would act on the classes of the other"
            )
        else:
            left.append(f"GatewayClass {own} ({controller})")
    more = len(left) - _NAMED_MAX
    return (
        left[:_NAMED_MAX] + ([f"{more} more GatewayClasses"] if more > 0 else []),
        problems[:_NAMED_MAX],
    )


def is_foreign(item: Json) -> bool:
    """Return whether neither this control plane nor its releases applied an object."""
    return not was_applied(item) and release_of(item)[1] not in _RELEASES


def _owner(item: Json) -> str:
    namespace, name = release_of(item)
    shown = f"{item['kind']} {item['metadata']['name']}"
    return f"{shown} of release {namespace}/{name}" if name else shown


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    named = ", ".join(sorted(names)[:_NAMED_MAX])
    return f"{named} and {more} more nodes" if more > 0 else named
