"""The kinds that Modelplane applies and watches on a cluster.

The list comes from the order of teardown in `render`, so an applied kind cannot be
missing from the teardown and the watch. Kinds and versions that a cluster does not
serve are left out.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from activities.cluster_objects.cluster_api import ApiResource, GroupVersionKind
from activities.render.objects import contract
from activities.render.objects.teardown import CACHE_STEPS, SWEPT_KINDS
from api_types.pins import apiversions

POD = GroupVersionKind(apiversions.CORE, "Pod")
NODE = GroupVersionKind(apiversions.CORE, "Node")
NAMESPACE = GroupVersionKind(apiversions.CORE, "Namespace")
SECRET = GroupVersionKind(apiversions.CORE, "Secret")
SERVICE = GroupVersionKind(apiversions.CORE, "Service")
VOLUME_CLAIM = GroupVersionKind(apiversions.CORE, "PersistentVolumeClaim")
JOB = GroupVersionKind(apiversions.BATCH, "Job")
STORAGE_CLASS = GroupVersionKind("storage.k8s.io/v1", "StorageClass")
DEPLOYMENT = GroupVersionKind(apiversions.APPS, "Deployment")
LEADER_WORKER_SET = GroupVersionKind(apiversions.LEADER_WORKER_SET, "LeaderWorkerSet")
ENDPOINT_SLICE = GroupVersionKind(apiversions.DISCOVERY, "EndpointSlice")
GATEWAY = GroupVersionKind(apiversions.GATEWAY, "Gateway")
HTTP_ROUTE = GroupVersionKind(apiversions.GATEWAY, "HTTPRoute")
# Served by Traefik on the control cluster.
MIDDLEWARE = GroupVersionKind(apiversions.TRAEFIK, "Middleware")
# Served by Envoy Gateway on the control cluster.
BACKEND = GroupVersionKind(apiversions.ENVOY, "Backend")
BACKEND_TRAFFIC_POLICY = GroupVersionKind(apiversions.ENVOY, "BackendTrafficPolicy")
HTTP_ROUTE_FILTER = GroupVersionKind(apiversions.ENVOY, "HTTPRouteFilter")
INFERENCE_POOL = GroupVersionKind(apiversions.INFERENCE, "InferencePool")
RESOURCE_SLICE = "ResourceSlice"
SERVICE_CIDR = GroupVersionKind("networking.k8s.io/v1", "ServiceCIDR")
# Parts of a serving stack.
CRD = GroupVersionKind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
GATEWAY_CLASS = GroupVersionKind(apiversions.GATEWAY, "GatewayClass")
DAEMON_SET = GroupVersionKind(apiversions.APPS, "DaemonSet")
STATEFUL_SET = GroupVersionKind(apiversions.APPS, "StatefulSet")
EVENT = GroupVersionKind(apiversions.CORE, "Event")
_WATCHED: tuple[tuple[str, str], ...] = (POD, NODE, ENDPOINT_SLICE, GATEWAY)
# The versions of a group that Modelplane reads, best first.
_VERSIONS = {
    apiversions.DRA_GROUP: apiversions.DRA_VERSIONS,
    apiversions.KUEUE_GROUP: apiversions.KUEUE_VERSIONS,
}

LWS_NAME_LABEL = contract.LWS_NAME_LABEL
# The LeaderWorkerSet controller sets this label on every pod of a set.
LWS_GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
# The Job controller sets this label on every pod of a Job.
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"


def resolve(
    pair: tuple[str, str], served: Mapping[GroupVersionKind, ApiResource]
) -> GroupVersionKind | None:
    """Return the served kind for an (apiVersion, kind) pair, or None.

    An apiVersion that ends in `/` means the best served version of that group.
    """
    api_version, kind = pair
    if not api_version.endswith("/"):
        found = GroupVersionKind(api_version, kind)
        return found if found in served else None
    versions = (
        GroupVersionKind(f"{api_version}{version}", kind)
        for version in _VERSIONS[api_version.removesuffix("/")]
    )
    return next((found for found in versions if found in served), None)


def resolve_all(
    pairs: Iterable[tuple[str, str]], served: Mapping[GroupVersionKind, ApiResource]
) -> list[GroupVersionKind]:
    """Return the served kinds among the pairs, in their order."""
    return [found for pair in pairs if (found := resolve(pair, served))]


def replica_kinds(
    served: Mapping[GroupVersionKind, ApiResource],
) -> list[GroupVersionKind]:
    """Return every served kind that a replica may have on a cluster."""
    return resolve_all(SWEPT_KINDS, served)


def cache_kinds(
    served: Mapping[GroupVersionKind, ApiResource],
) -> list[GroupVersionKind]:
    """Return every served kind that a cache may have on a cluster."""
    return resolve_all(chain.from_iterable(step.kinds for step in CACHE_STEPS), served)


def dra_version(served: Mapping[GroupVersionKind, ApiResource]) -> str:
    """Return the best served version of the device API, or an empty string."""
    found = resolve((f"{apiversions.DRA_GROUP}/", "ResourceClaimTemplate"), served)
    return found.api_version.rpartition("/")[2] if found else ""


def watched_kinds(
    served: Mapping[GroupVersionKind, ApiResource],
) -> list[GroupVersionKind]:
    """Return the served kinds that Modelplane watches and never writes."""
    return resolve_all(
        (*_WATCHED, (f"{apiversions.DRA_GROUP}/", RESOURCE_SLICE)), served
    )
