"""The generated names of objects, and the names reserved for the platform.

A generated name starts with a readable part and ends in eight hex digits of a digest of
its identity. The parts of the digest are length-prefixed, so that `a-b` + `c` and `a` +
`b-c` never collide. The namespace is always one of the parts, because tenants share
clusters.
"""

import hashlib
import re

from api_types.labels import SYSTEM_NAMESPACE
from api_types.pins.charts import STACK_NAMESPACES

_OUTSIDE = re.compile(r"[^a-z0-9-]+")
_DASHES = re.compile(r"-{2,}")
_DIGEST_LENGTH = 8
_LABEL_MAX = 63
_WORKLOAD_MAX = 54
# LeaderWorkerSet puts its name, a group number and a hash into one label. Kueue needs
# even shorter names.
_LEADER_WORKER_SET_MAX = 39
# Room for the longest suffix of the names that are derived from a claim's.
_CACHE_CLAIM_MAX = 57
# Room for `-ipv4`.
_ENDPOINT_SERVICE_MAX = 57

ENDPOINT_DOMAIN = "endpoint.modelplane.internal"
"""The domain of the host names of endpoints."""
CLOUD_CREDENTIAL_KEY = "credentials"
"""The key in a Secret that holds the credential for creating clusters at a cloud."""
_CLOUDS = ("gke", "eks", "aks", "nebius", "vultr")

# Tenants' objects never have names with these prefixes, which belong to the platform.
CACHE_CLAIM_PREFIX = "modelcache-"
# The suffix of the Secret with the credential of a cache.
CACHE_CREDENTIAL = "auth"
_CACHE_JOB_SUFFIX = "-hyd"
COPY_PREFIX = "mpx-"
# Tenants' objects never have names with these suffixes either.
_PICKER_SUFFIX = "-epp"
_METRICS_SUFFIX = "-metrics"
METRICS_TOKEN_SUFFIX = f"{_PICKER_SUFFIX}{_METRICS_SUFFIX}"
# The Deployment and the Service of an endpoint picker select its pods by this label
# alone. Its value is the name of the picker.
PICKER_LABEL = "app"
_PICKER = re.compile(rf".*-[0-9a-f]{{{_DIGEST_LENGTH}}}{_PICKER_SUFFIX}")


def is_reserved_namespace(namespace: str) -> bool:
    """Return whether a namespace belongs to the platform.

    Such a namespace has no tenants' objects, in the control plane and on clusters.
    """
    return (
        namespace == SYSTEM_NAMESPACE
        or namespace.startswith("kube-")
        or namespace in STACK_NAMESPACES
    )


def slug(text: str) -> str:
    """Turn any text into a DNS-1035 label of any length; never empty."""
    label = _DASHES.sub("-", _OUTSIDE.sub("-", text.lower())).strip("-")
    if not label:
        return "x"
    return label if label[0].isalpha() else f"m-{label}"


def digest(*parts: str) -> str:
    """Return eight hex digits over the parts, each prefixed by its length in bytes."""
    joined = "".join(f"{len(part.encode())}:{part}" for part in parts)
    return hashlib.sha256(joined.encode()).hexdigest()[:_DIGEST_LENGTH]


def hashed_name(
    visible: str, parts: tuple[str, ...], limit: int, suffix: str = ""
) -> str:
    """Return `slug(visible)` cut to fit, a dash, the digest of `parts`, and `suffix`."""
    room = limit - _DIGEST_LENGTH - 1 - len(suffix)
    return f"{slug(visible)[:room].rstrip('-')}-{digest(*parts)}{suffix}"


def replica_name(
    namespace: str, deployment: str, cluster: str, index: int, counter: int = 0
) -> str:
    """Return the name of a ModelReplica, derived from its identity alone.

    `counter` distinguishes names that once collided.
    """
    parts = ("modelreplica", namespace, deployment, cluster, str(index))
    return hashed_name(
        deployment, (*parts, str(counter)) if counter else parts, _WORKLOAD_MAX
    )


def may_be_replica_of(replica: str, deployment: str) -> bool:
    """Return whether a ModelReplica may belong to a deployment, judged by its name."""
    visible, _, _ = replica.rpartition("-")
    return slug(deployment).startswith(visible)


def workload_name(namespace: str, replica: str) -> str:
    """Return the base name of all objects that a replica owns on its cluster."""
    return hashed_name(replica, ("replica", namespace, replica), _WORKLOAD_MAX)


def engine_name(
    namespace: str, replica: str, engine: str, *, gang: bool = False
) -> str:
    """Return the name of an engine's Deployment, or of its LeaderWorkerSet for a gang."""
    limit = _LEADER_WORKER_SET_MAX if gang else _LABEL_MAX
    return hashed_name(
        f"{replica}-{engine}", ("engine", namespace, replica, engine), limit
    )


def host_route_name(workload: str) -> str:
    """Return the name of a replica's route by host; its route by path has the workload's."""
    return f"{workload}-by-host"


def picker_name(workload: str) -> str:
    """Return the name of the endpoint picker of a replica and of all its objects."""
    return f"{workload}{_PICKER_SUFFIX}"


def picker_service_name(picker: str) -> str:
    """Return the name of the Service through which gateways find an endpoint picker."""
    return f"{picker}-grpc"


def may_be_picker(name: str) -> bool:
    """Return whether an endpoint picker may have this name."""
    return _PICKER.fullmatch(name) is not None


def metrics_token_name(picker: str) -> str:
    """Return the name of the token Secret with which Prometheus scrapes a picker."""
    return f"{picker}{_METRICS_SUFFIX}"


def monitor_name(workload: str, part: str) -> str:
    """Return the name of the PodMonitor for the engines or the picker of a replica."""
    return f"{workload}-{part}"


def inference_pool_name(workload: str) -> str:
    return f"{workload}-pool"


def claim_template_name(
    namespace: str, replica: str, engine: str, role: str, spec_digest: str
) -> str:
    """Return the name of a ResourceClaimTemplate.

    The name depends on the content too, because a spec cannot be changed in place.
    """
    role = role.lower()
    return hashed_name(
        f"{replica}-{engine}-{role}",
        ("claim", namespace, replica, engine, role, spec_digest),
        _LABEL_MAX,
    )


def cache_claim_name(namespace: str, cache: str, artifact_key: str) -> str:
    """Return the name of the volume claim for one artifact of a ModelCache."""
    return hashed_name(
        f"{CACHE_CLAIM_PREFIX}{namespace}-{cache}",
        ("cache", namespace, cache, artifact_key),
        _CACHE_CLAIM_MAX,
    )


def cache_job_name(claim: str) -> str:
    """Return the name of the Job that fills a volume claim."""
    return f"{claim}{_CACHE_JOB_SUFFIX}"


def cache_claim_of(name: str) -> str:
    """Return the volume claim of a Job that fills one; a claim is its own."""
    return name.removesuffix(_CACHE_JOB_SUFFIX)


def cache_copy_name(claim: str, purpose: str) -> str:
    """Return the name of a Secret that exists on a cluster while a claim is filled."""
    return f"{claim}-{purpose}"


def cache_credential_name(claim: str) -> str:
    """Return the name of the Secret with the credential for filling a volume claim."""
    return cache_copy_name(claim, CACHE_CREDENTIAL)


def copy_name(namespace: str, kind: str, name: str, keys: tuple[str, ...]) -> str:
    """Return the name of the copy of a tenant's Secret or ConfigMap on a cluster.

    `keys` are the copied keys, if not all are copied.
    """
    return hashed_name(
        f"{COPY_PREFIX}{name}", ("propagated", namespace, kind, name, *keys), _LABEL_MAX
    )


def connection_handle(cluster: str) -> str:
    """Return the name of a cluster's connection, as its status shows it."""
    return hashed_name(
        f"{cluster}-cluster-kubeconfig", ("connection", "", cluster), _LABEL_MAX
    )


def endpoint_service_name(namespace: str, endpoint: str) -> str:
    """Return the name of an endpoint's Service on the control cluster."""
    return hashed_name(
        f"me-{endpoint}", ("endpoint", namespace, endpoint), _ENDPOINT_SERVICE_MAX
    )


def endpoint_slice_name(service: str, address_type: str) -> str:
    """Return the name of an EndpointSlice of such a Service.

    The name depends on the address type, which cannot be changed in place.
    """
    return f"{service}-{address_type.lower()}"


def endpoint_host(namespace: str, endpoint: str) -> str:
    """Return the host name by which a gateway of a cluster knows a replica.

    The gateway of the control cluster sends it as the host of a request, so one path
    fits every endpoint of a service. No name server knows it.
    """
    return f"{endpoint}.{namespace}.{ENDPOINT_DOMAIN}"


def service_route_name(namespace: str, service: str) -> str:
    """Return the name of a ModelService's HTTPRoute and of the objects of its policy.

    All are on the control cluster.
    """
    return hashed_name(f"ms-{service}", ("service", namespace, service), _LABEL_MAX)


def tenant_queue(namespace: str) -> str:
    """Return the name of a tenant's admission queue: a KAI Queue or a Kueue LocalQueue."""
    return label_value(f"modelplane-{namespace}")


def label_value(name: str) -> str:
    """Return a name as a label value: itself if it fits, else shortened with a digest.

    An annotation then has the full name.
    """
    return (
        name
        if len(name) <= _LABEL_MAX
        else hashed_name(name, ("label", name), _LABEL_MAX)
    )


def workflow_id(kind: str, namespace: str, name: str) -> str:
    """Return the id of the workflow that owns an object.

    It is `<kind>/<namespace>/<name>`, or `<kind>/<name>` for a cluster-scoped object.
    """
    return (
        f"{kind.lower()}/{namespace}/{name}" if namespace else f"{kind.lower()}/{name}"
    )


def endpoint_directory_id(namespace: str) -> str:
    """Return the id of the EndpointDirectory of a namespace."""
    return workflow_id("EndpointDirectory", "", namespace)


def namespace_of_directory(workflow: str) -> str:
    """Return the namespace of the EndpointDirectory with this id, or ""."""
    kind, _, namespace = workflow.partition("/")
    return namespace if kind == "endpointdirectory" and "/" not in namespace else ""


def cloud_cluster_id(cluster: str, uid: str) -> str:
    """Return the id of the CloudCluster workflow of an InferenceCluster.

    The uid distinguishes clusters of the same name.
    """
    return f"cloud/{cluster}/{uid}"


def cluster_of_cloud(workflow: str) -> tuple[str, str]:
    """Return the name and uid of the InferenceCluster of a CloudCluster workflow id.

    Both are empty for another kind of workflow.
    """
    kind, *parts = workflow.split("/")
    return (
        (parts[0], parts[1])
        if kind == "cloud" and len(parts) == len(("name", "uid")) and all(parts)
        else ("", "")
    )


def redelivery_id(receiver: str) -> str:
    """Return the id of the Redelivery workflow for a receiver's workflow id."""
    return f"{_REDELIVERY}{receiver}"


def receiver_of_redelivery(workflow: str) -> str:
    """Return the workflow id of a Redelivery's receiver, or "" for other workflows."""
    return (
        workflow.removeprefix(_REDELIVERY) if workflow.startswith(_REDELIVERY) else ""
    )


def cloud_secret(cloud: str, kind: str, name: str) -> str:
    """Return the name of the Secret with a cloud credential.

    A cluster refers to it by the kind of its provider configuration and a name.
    """
    scope = "-ns" if kind == "ProviderConfig" else ""
    return f"{cloud.lower()}{scope}-{name}"


def creates_clusters(secret: str, key: str) -> bool:
    """Return whether a key of a Secret is a credential that creates clusters.

    The Secret is in namespace `modelplane-system`; see `cloud_secret`.
    """
    return key == CLOUD_CREDENTIAL_KEY and secret.startswith(
        tuple(f"{cloud}-" for cloud in _CLOUDS)
    )


FLEET_SCHEDULER_ID = "fleetscheduler/default"
_REDELIVERY = "redelivery/"

STACK_UPGRADES_ID = "stackupgrades/default"
