"""Which kinds we apply and watch on a cluster.

What is applied there is what a teardown sweeps and what a watch follows: one list, taken from the order of teardown in `render`, so that a
new kind of object cannot be applied and then forgotten. Kinds and versions that a cluster does not serve are left out.
"""

from collections.abc import Iterable, Mapping

from activities.cluster_objects.cluster_api import Kind, Resource
from activities.render.objects import contract
from activities.render.objects.teardown import CACHE_STEPS, SWEPT_KINDS
from api_types.pins import apiversions

POD = Kind(apiversions.CORE, "Pod")
NODE = Kind(apiversions.CORE, "Node")
NAMESPACE = Kind(apiversions.CORE, "Namespace")
SECRET = Kind(apiversions.CORE, "Secret")
SERVICE = Kind(apiversions.CORE, "Service")
VOLUME_CLAIM = Kind(apiversions.CORE, "PersistentVolumeClaim")
JOB = Kind(apiversions.BATCH, "Job")
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass")
DEPLOYMENT = Kind(apiversions.APPS, "Deployment")
LEADER_WORKER_SET = Kind(apiversions.LEADER_WORKER_SET, "LeaderWorkerSet")
ENDPOINT_SLICE = Kind(apiversions.DISCOVERY, "EndpointSlice")
GATEWAY = Kind(apiversions.GATEWAY, "Gateway")
HTTP_ROUTE = Kind(apiversions.GATEWAY, "HTTPRoute")
# Of Traefik on the control cluster.
MIDDLEWARE = Kind(apiversions.TRAEFIK, "Middleware")
INFERENCE_POOL = Kind(apiversions.INFERENCE, "InferencePool")
RESOURCE_SLICE = "ResourceSlice"
SERVICE_CIDR = Kind("networking.k8s.io/v1", "ServiceCIDR")
# Of a serving stack.
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
GATEWAY_CLASS = Kind(apiversions.GATEWAY, "GatewayClass")
DAEMON_SET = Kind(apiversions.APPS, "DaemonSet")
STATEFUL_SET = Kind(apiversions.APPS, "StatefulSet")
EVENT = Kind(apiversions.CORE, "Event")
_WATCHED: tuple[tuple[str, str], ...] = (POD, NODE, ENDPOINT_SLICE, GATEWAY)
# The versions of a group that we read, the best first.
_VERSIONS = {apiversions.DRA_GROUP: apiversions.DRA_VERSIONS, apiversions.KUEUE_GROUP: apiversions.KUEUE_VERSIONS}

LWS_NAME_LABEL = contract.LWS_NAME_LABEL
# Written by the LeaderWorkerSet controller on every pod of a set too.
LWS_GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
# Written by the Job controller on every pod of a Job.
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"


def resolve(pair: tuple[str, str], served: Mapping[Kind, Resource]) -> Kind | None:
    """Give the served kind for an (apiVersion, kind) pair; an apiVersion ending in `/` means the best served version of that group."""
    api_version, kind = pair
    if not api_version.endswith("/"):
        found = Kind(api_version, kind)
        return found if found in served else None
    versions = (Kind(f"{api_version}{version}", kind) for version in _VERSIONS[api_version.removesuffix("/")])
    return next((found for found in versions if found in served), None)


def resolve_all(pairs: Iterable[tuple[str, str]], served: Mapping[Kind, Resource]) -> list[Kind]:
    """Give the served kinds among the pairs, in their order."""
    return [found for pair in pairs if (found := resolve(pair, served))]


def replica_kinds(served: Mapping[Kind, Resource]) -> list[Kind]:
    """Give every served kind that a replica may have on a cluster."""
    return resolve_all(SWEPT_KINDS, served)


def cache_kinds(served: Mapping[Kind, Resource]) -> list[Kind]:
    """Give every served kind that a cache may have on a cluster."""
    return resolve_all([kind for step in CACHE_STEPS for kind in step.kinds], served)


def dra_version(served: Mapping[Kind, Resource]) -> str:
    """Give the best served version of the device API; empty if there is none."""
    found = resolve((f"{apiversions.DRA_GROUP}/", "ResourceClaimTemplate"), served)
    return found.api_version.rpartition("/")[2] if found else ""


def watched_kinds(served: Mapping[Kind, Resource]) -> list[Kind]:
    """Give the served kinds that we watch and never write."""
    return resolve_all((*_WATCHED, (f"{apiversions.DRA_GROUP}/", RESOURCE_SLICE)), served)
