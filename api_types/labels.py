"""Every label, annotation and field manager that this project reads or writes.

The keys are public API: users select objects by them, and the control plane uses them
to find its own objects on clusters.
"""

from collections.abc import Iterable

GROUP = "modelplane.ai"
INFRASTRUCTURE_GROUP = "infrastructure.modelplane.ai"
RESERVED_PREFIX = f"{GROUP}/"

FIELD_MANAGER = "modelplane"
SYSTEM_NAMESPACE = "modelplane-system"

# On ModelReplica and ModelEndpoint.
DEPLOYMENT = f"{GROUP}/deployment"
CLUSTER = f"{GROUP}/cluster"
REPLICA_INDEX = f"{GROUP}/replica-index"

# On clusters. Platform teams set the first two to the location of a cluster.
REGION = f"{GROUP}/region"
ZONE = f"{GROUP}/zone"
# Clusters with the same value share a network among all their pools.
NETWORK_DOMAIN = f"{GROUP}/network-domain"

# On nodes.
POOL = f"{GROUP}/pool"
GPU = f"{GROUP}/gpu"

# On every object that the control plane applies to a cluster.
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY_VALUE = "modelplane"
PART_OF_VALUE = "modelplane"
REPLICA = f"{GROUP}/replica"
CACHE = f"{GROUP}/cache"
ENGINE = f"{GROUP}/engine"
MODEL_CACHE = f"{GROUP}/modelcache"
OWNER_KIND = f"{GROUP}/owner-kind"
OWNER_NAMESPACE = f"{GROUP}/owner-namespace"
OWNER_NAME = f"{GROUP}/owner-name"
OWNER_UID = f"{GROUP}/owner-uid"
GENERATION = f"{GROUP}/generation"
RENDER_HASH = f"{GROUP}/render-hash"
TEMPLATE_HASH = f"{GROUP}/template-hash"
# On workloads: a hash of the spec fields that the pods are rendered from, and the
# version of the renderer.
PODS_SOURCE = f"{GROUP}/pods-source"
RENDERER = f"{GROUP}/renderer"
CREATED_FOR = f"{GROUP}/created-for"
# An annotation that administrators of a cluster set on a namespace: it permits models
# in a namespace that the control plane did not create.
ALLOW_WORKLOADS = f"{GROUP}/allow-workloads"
# On namespaces that the control plane creates. Rendered pods need no more than
# `baseline` allows, except for the fields that an InferenceClass permits. `restricted`
# is only audited, because engine images run as root.
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"
POD_SECURITY = {
    POD_SECURITY_ENFORCE: "baseline",
    "pod-security.kubernetes.io/audit": "restricted",
}
# Kubernetes' label on an EndpointSlice: the name of its Service.
SERVICE_NAME = "kubernetes.io/service-name"
# The prefix of an annotation on a shared copy. The rest of the key is the workload name
# of a replica that needs the copy.
APPLY_SET = f"applyset.{GROUP}/member"
"""Annotation of an object that `apply --applyset` wrote: the set, and a digest."""
USER_PREFIX = f"user.{GROUP}/"

# On pods.
SERVING = f"{GROUP}/serving"
WORKLOAD = f"{GROUP}/workload"
LWS_ROLE = f"{GROUP}/lws-role"
EPP_CONFIG_CHECKSUM = f"{GROUP}/epp-config-checksum"
# A keyed hash of the copied Secrets and ConfigMaps, on pods that restart when one of
# the copies changes.
PROPAGATED_HASH = f"{GROUP}/propagated-hash"
# On a copy of a Secret or ConfigMap: the version of its source when the copy was
# written. A cache's copy also has an annotation with its source, as `<kind>/<name>`.
# The owner labels identify the source of every other copy.
SOURCE_VERSION = f"{GROUP}/source-version"
SOURCE = f"{GROUP}/source"

# On cloud objects. AWS uses tags; the fourth key is `CLUSTER`. Google Cloud uses
# labels, whose keys may contain neither `/` nor `.`.
CLOUD_OWNER = f"{GROUP}/owner"
CLOUD_OBJECT = f"{GROUP}/object"
CLOUD_ZONES = f"{GROUP}/zones"
"""On a VPC: the zones that were chosen for its cluster, separated by spaces."""
CLOUD_ZONES_WITHOUT_MACHINES = f"{GROUP}/zones-without-machines"
"""The tag of a node group with the zones that had no machines for it."""
CLOUD_ZONES_REFUSED_BY = f"{GROUP}/zones-refused-by-"
"""On a VPC, followed by `eks` or `efs`: the zones that this service rejected."""
POD_IDENTITY = f"{GROUP}/pod-identity"
"""On pods at EKS: the association from which they get their role."""
FIXED_SIZE = f"{GROUP}/fixed-size"
"""On a node group of fixed size.

EKS accepts no maximum of 0, so the bounds of the group cannot express the size.
"""
INSTALLATION = f"{GROUP}/installation"
GCP_OWNER = "modelplane-owner"
GCP_CLUSTER = "modelplane-cluster"
GCP_OBJECT = "modelplane-object"

# Annotations that users set.
STACK = f"{GROUP}/stack"
# On the Gateway of a control cluster whose gateway the platform team installed itself:
# `enabled` means that routes may refer to Traefik Middlewares.
MIDDLEWARES = f"{GROUP}/middlewares"
ROUTING = f"{GROUP}/routing"
SCHEDULER_TYPE = f"{GROUP}/scheduler-type"
CAPACITY_ADAPTER = f"{GROUP}/capacity-adapter"
MESH_PROVIDER = f"{GROUP}/mesh-provider"
TASK_QUEUE = f"{GROUP}/task-queue"
REFRESH = f"{GROUP}/refresh"
PROPAGATE = f"{GROUP}/propagate"
PICKER_FLAGS = f"{GROUP}/epp-extra-flags"
# On a ModelDeployment: `Warn` turns refusals that are based on the flags and variables
# of its engines into warnings.
ENGINE_CHECKS = f"{GROUP}/engine-checks"
ENGINE_CHECKS_WARN = "Warn"
# On a cloud cluster that is being deleted: the first skips all calls to the cluster
# itself, the second leaves all cloud objects in place.
SKIP_IN_CLUSTER_TEARDOWN = f"{GROUP}/skip-in-cluster-teardown"
ABANDON = f"{GROUP}/abandon"
TAKEN_WHILE_DELETING = (SKIP_IN_CLUSTER_TEARDOWN, ABANDON)
PRICE_PER_NODE_HOUR = f"{GROUP}/price-per-node-hour"

# On users' objects: the owner of each field, for server-side apply. The front writes
# this annotation and shows it as `metadata.managedFields`.
MANAGED_FIELDS = f"{GROUP}/managed-fields"
# The last manifest that `kubectl apply` sent without `--server-side`.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# On pods, and forbidden to users: webhooks, node agents and container runtimes read
# containers, volumes, devices, networks or credentials from them, including settings
# that only the `podPolicy` of an InferenceClass permits. Other annotations of service
# meshes, and those for Prometheus, are harmless.
REFUSED_ANNOTATIONS = (
    "sidecar.istio.io/userVolume",
    "sidecar.istio.io/userVolumeMount",
    "sidecar.istio.io/proxyImage",
    "inject.istio.io/templates",
    "proxy.istio.io/overrides",
    "config.linkerd.io/init-image",
    "config.linkerd.io/proxy-image",
    "config.linkerd.io/debug-image",
    "container.apparmor.security.beta.kubernetes.io/",
    "iam.amazonaws.com/",
    "k8s.v1.cni.cncf.io/",
    "v1.multus-cni.io/",
    # A gang's pod belongs to the group that the control plane or KAI creates for it.
    "pod-group-name",
    # CRI-O: shared memory, devices, user namespaces, cgroups, seccomp profiles, CPUs.
    "io.kubernetes.cri-o.",
    "*.cri-o.io/",
    "*.crio.io/",
    # Hooks and handlers of OCI runtimes, which write files on the node.
    "io.containers.",
    "run.oci.",
    # Virtual machines and sandboxes: kernels, mounts, memory.
    "io.katacontainers.",
    "dev.gvisor.",
    # Devices and mounts that CDI and NRI plug-ins of the runtime add.
    "*.cdi.k8s.io/",
    "*.nri.io/",
    "*.nri.containerd.io/",
    "*.noderesource.dev/",
    "*.seccomp.security.alpha.kubernetes.io/",
)


def is_refused_annotation(key: str, refused: Iterable[str]) -> bool:
    """Return whether one of the entries matches a key.

    `example.com/` matches all keys of that domain. `*.example.com/` also matches keys
    of its subdomains, and keys that consist of such a domain alone. `com.example.`
    matches all keys with that prefix.
    """
    return any(_stands_for(entry, key) for entry in refused)


def _stands_for(entry: str, key: str) -> bool:
    if entry.startswith("*."):
        domain = key.partition("/")[0]
        return f".{domain}".endswith(entry[1:-1])
    return key == entry or (entry.endswith(("/", ".")) and key.startswith(entry))


# An annotation that `rollout restart` sets on pod templates.
RESTARTED_AT = f"{GROUP}/restarted-at"

# The key of the taint that `drain` adds.
MAINTENANCE = f"{GROUP}/maintenance"

# The gateway on every inference cluster.
GATEWAY_NAME = "inference-gateway"
# The gateway on the control cluster, which all services share.
CONTROL_GATEWAY_NAME = "modelplane"

# A response header of a service: the ModelReplica or ModelEndpoint to which the gateway
# sent the request.
RESPONDER_HEADER = "x-modelplane-endpoint"
