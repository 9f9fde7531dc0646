"""Every name that this project generates for an object, and the prefixes and namespaces by which it knows its own.

A generated name shows a readable part and ends in eight hex digits over its identity. The parts of the digest are length-prefixed, so that
`a-b` + `c` and `a` + `b-c` never collide; the namespace is always among them, because tenants share clusters.
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
# LeaderWorkerSet puts its name, a group number and a hash into one label; Kueue needs more room still.
_LEADER_WORKER_SET_MAX = 39
# Room for the longest suffix of what belongs to it.
_CACHE_CLAIM_MAX = 57
# Room for `-ipv4`.
_ENDPOINT_SERVICE_MAX = 57

CLOUD_CREDENTIAL_KEY = "credentials"
"""Under it a Secret has the credential for a cloud at which clusters are created."""
_CLOUDS = ("gke", "eks", "aks", "nebius", "vultr")

# Names of tenants' objects never start like these: what does belongs to the platform.
CACHE_CLAIM_PREFIX = "modelcache-"
# How the name of the Secret with the credential of a cache ends.
CACHE_CREDENTIAL = "auth"
COPY_PREFIX = "mpx-"
# Nor end like this.
_PICKER_SUFFIX = "-epp"
_METRICS_SUFFIX = "-metrics"
METRICS_TOKEN_SUFFIX = f"{_PICKER_SUFFIX}{_METRICS_SUFFIX}"
# The one label by which the Deployment and the Service of an endpoint picker select its pods, with the picker's name.
PICKER_LABEL = "app"
_PICKER = re.compile(rf".*-[0-9a-f]{{{_DIGEST_LENGTH}}}{_PICKER_SUFFIX}")


def is_reserved_namespace(namespace: str) -> bool:
    """Whether a namespace belongs to the platform, in the control plane and on clusters: no object of a tenant is there."""
    return namespace == SYSTEM_NAMESPACE or namespace.startswith("kube-") or namespace in STACK_NAMESPACES


def slug(text: str) -> str:
    """Turn any text into a DNS-1035 label of any length; never empty."""
    label = _DASHES.sub("-", _OUTSIDE.sub("-", text.lower())).strip("-")
    if not label:
        return "x"
    return label if label[0].isalpha() else f"m-{label}"


def digest(*parts: str) -> str:
    """Give eight hex digits over the parts, each with its length in bytes in front."""
    joined = "".join(f"{len(part.encode())}:{part}" for part in parts)
    return hashlib.sha256(joined.encode()).hexdigest()[:_DIGEST_LENGTH]


def hashed_name(visible: str, parts: tuple[str, ...], limit: int, suffix: str = "") -> str:
    """Give `slug(visible)` cut to fit, a dash, the digest of the parts, and the suffix."""
    room = limit - _DIGEST_LENGTH - 1 - len(suffix)
    return f"{slug(visible)[:room].rstrip('-')}-{digest(*parts)}{suffix}"


def replica_name(namespace: str, deployment: str, cluster: str, index: int, counter: int = 0) -> str:
    """Name a ModelReplica after its identity alone; `counter` distinguishes names that once collided."""
    parts = ("modelreplica", namespace, deployment, cluster, str(index))
    return hashed_name(deployment, (*parts, str(counter)) if counter else parts, _WORKLOAD_MAX)


def may_be_replica_of(replica: str, deployment: str) -> bool:
    """Whether a ModelReplica may be one of a deployment of its namespace, as far as its name tells."""
    visible, _, _ = replica.rpartition("-")
    return slug(deployment).startswith(visible)


def workload_name(namespace: str, replica: str) -> str:
    """Name what a replica owns on its cluster: the base name `W`."""
    return hashed_name(replica, ("replica", namespace, replica), _WORKLOAD_MAX)


def engine_name(namespace: str, replica: str, engine: str, *, gang: bool = False) -> str:
    """Name the Deployment of an engine, or its LeaderWorkerSet when it is a gang."""
    limit = _LEADER_WORKER_SET_MAX if gang else _LABEL_MAX
    return hashed_name(f"{replica}-{engine}", ("engine", namespace, replica, engine), limit)


def picker_name(workload: str) -> str:
    """Name the endpoint picker of a replica and all that belongs to it."""
    return f"{workload}{_PICKER_SUFFIX}"


def may_be_picker(name: str) -> bool:
    """Whether an endpoint picker may have a name, as far as the name tells."""
    return _PICKER.fullmatch(name) is not None


def metrics_token_name(picker: str) -> str:
    """Name the Secret with the token by which Prometheus scrapes an endpoint picker."""
    return f"{picker}{_METRICS_SUFFIX}"


def monitor_name(workload: str, part: str) -> str:
    """Name the PodMonitor of a part of a replica, such as its engines or its endpoint picker."""
    return f"{workload}-{part}"


def inference_pool_name(workload: str) -> str:
    """Name the InferencePool of a replica."""
    return f"{workload}-pool"


def claim_template_name(namespace: str, replica: str, engine: str, role: str, spec_digest: str) -> str:
    """Name a ResourceClaimTemplate after its content too: its spec can never be changed in place."""
    role = role.lower()
    return hashed_name(f"{replica}-{engine}-{role}", ("claim", namespace, replica, engine, role, spec_digest), _LABEL_MAX)


def cache_claim_name(namespace: str, cache: str, artifact_key: str) -> str:
    """Name the volume claim of one artifact of a ModelCache."""
    return hashed_name(f"{CACHE_CLAIM_PREFIX}{namespace}-{cache}", ("cache", namespace, cache, artifact_key), _CACHE_CLAIM_MAX)


def cache_job_name(claim: str) -> str:
    """Name the Job that fills a volume claim."""
    return f"{claim}-hyd"


def cache_copy_name(claim: str, purpose: str) -> str:
    """Name a Secret that is on a cluster while a volume claim is filled."""
    return f"{claim}-{purpose}"


def cache_credential_name(claim: str) -> str:
    """Name the Secret with the credential with which a volume claim is filled."""
    return cache_copy_name(claim, CACHE_CREDENTIAL)


def copy_name(namespace: str, kind: str, name: str, keys: tuple[str, ...]) -> str:
    """Name the copy of a tenant's Secret or ConfigMap, or of some of its keys, on a cluster."""
    return hashed_name(f"{COPY_PREFIX}{name}", ("propagated", namespace, kind, name, *keys), _LABEL_MAX)


def connection_handle(cluster: str) -> str:
    """Name the connection of a cluster, as its status shows it."""
    return hashed_name(f"{cluster}-cluster-kubeconfig", ("connection", "", cluster), _LABEL_MAX)


def endpoint_service_name(namespace: str, endpoint: str) -> str:
    """Name the Service of an endpoint on the control cluster."""
    return hashed_name(f"me-{endpoint}", ("endpoint", namespace, endpoint), _ENDPOINT_SERVICE_MAX)


def endpoint_slice_name(service: str, address_type: str) -> str:
    """Name the EndpointSlice of such a Service: the type of its addresses can never be changed in place."""
    return f"{service}-{address_type.lower()}"


def service_route_name(namespace: str, service: str) -> str:
    """Name the HTTPRoute of a ModelService on the control cluster, and the Middleware that the route names."""
    return hashed_name(f"ms-{service}", ("service", namespace, service), _LABEL_MAX)


def tenant_queue(namespace: str) -> str:
    """Name the admission queue of a tenant: a KAI Queue, or a LocalQueue of Kueue."""
    return label_value(f"modelplane-{namespace}")


def label_value(name: str) -> str:
    """Give a name as a label value: itself if it fits, else cut with a digest (the whole name is then in an annotation)."""
    return name if len(name) <= _LABEL_MAX else hashed_name(name, ("label", name), _LABEL_MAX)


def workflow_id(kind: str, namespace: str, name: str) -> str:
    """Give the id of the workflow that owns an object: `<kind>/<namespace>/<name>`, without a namespace if there is none."""
    return f"{kind.lower()}/{namespace}/{name}" if namespace else f"{kind.lower()}/{name}"


def endpoint_directory_id(namespace: str) -> str:
    """Give the id of the workflow that knows the endpoints of a namespace."""
    return workflow_id("EndpointDirectory", "", namespace)


def namespace_of_directory(workflow: str) -> str:
    """Give the namespace whose EndpointDirectory has this id; empty if it is another workflow."""
    kind, _, namespace = workflow.partition("/")
    return namespace if kind == "endpointdirectory" and "/" not in namespace else ""


def cloud_cluster_id(cluster: str, uid: str) -> str:
    """Give the id of the workflow that owns what an InferenceCluster has at its cloud. The uid keeps clusters of one name apart."""
    return f"cloud/{cluster}/{uid}"


def cluster_of_cloud(workflow: str) -> tuple[str, str]:
    """Give name and uid of the InferenceCluster whose CloudCluster has this id; both are empty if it is another workflow."""
    kind, *parts = workflow.split("/")
    return (parts[0], parts[1]) if kind == "cloud" and len(parts) == len(("name", "uid")) and all(parts) else ("", "")


def redelivery_id(receiver: str) -> str:
    """Return the workflow id of the Redelivery to a receiver, which is named by its own workflow id."""
    return f"{_REDELIVERY}{receiver}"


def receiver_of_redelivery(workflow: str) -> str:
    """Return the workflow id of the receiver of a Redelivery. It is empty for another kind of workflow."""
    return workflow.removeprefix(_REDELIVERY) if workflow.startswith(_REDELIVERY) else ""


def cloud_secret(cloud: str, kind: str, name: str) -> str:
    """Name the Secret with a credential for a cloud, as a cluster names it by the kind of its configuration and a name (ruling G18)."""
    scope = "-ns" if kind == "ProviderConfig" else ""
    return f"{cloud.lower()}{scope}-{name}"


def creates_clusters(secret: str, key: str) -> bool:
    """Whether a key of a Secret in `modelplane-system` is a credential by which clusters are created; `cloud_secret` names such Secrets."""
    return key == CLOUD_CREDENTIAL_KEY and secret.startswith(tuple(f"{cloud}-" for cloud in _CLOUDS))


FLEET_SCHEDULER_ID = "fleetscheduler/default"
_REDELIVERY = "redelivery/"

STACK_UPGRADES_ID = "stackupgrades/default"
