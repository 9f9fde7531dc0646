"""Every label, annotation and field manager that this project reads or writes.

Keys are public API: users select by them, and the control plane finds its objects on clusters by them.
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

# On clusters. By the first two, platform teams mark where a cluster is.
REGION = f"{GROUP}/region"
ZONE = f"{GROUP}/zone"
# All pools of the cluster share a network with those of other clusters of the same value.
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
# On workloads: a hash over the part of the spec that their pods are made from, and the version of the renderer that made them.
PODS_SOURCE = f"{GROUP}/pods-source"
RENDERER = f"{GROUP}/renderer"
CREATED_FOR = f"{GROUP}/created-for"
# An annotation on a namespace of a cluster, set by its administrators: models may run there although we did not create it.
ALLOW_WORKLOADS = f"{GROUP}/allow-workloads"
# On namespaces that we create. Nothing that is rendered needs more than `baseline` allows, but for what an InferenceClass grants;
# `restricted` is only recorded, because images of engines run as root.
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"
POD_SECURITY = {
    POD_SECURITY_ENFORCE: "baseline",
    "pod-security.kubernetes.io/audit": "restricted",
}
# Kubernetes' own label of an EndpointSlice: the name of its Service.
SERVICE_NAME = "kubernetes.io/service-name"
# Prefix of an annotation on a shared copy; its name is the workload name of a replica that needs the copy.
USER_PREFIX = f"user.{GROUP}/"

# On pods.
SERVING = f"{GROUP}/serving"
WORKLOAD = f"{GROUP}/workload"
LWS_ROLE = f"{GROUP}/lws-role"
EPP_CONFIG_CHECKSUM = f"{GROUP}/epp-config-checksum"
# A keyed hash over copied Secrets and ConfigMaps, on pods that shall restart when one changes.
PROPAGATED_HASH = f"{GROUP}/propagated-hash"
# Of a copy of a Secret or ConfigMap: the version of its source when it was written. Of one that belongs to a cache also the source, as
# `<kind>/<name>`; the owner of any other copy says that.
SOURCE_VERSION = f"{GROUP}/source-version"
SOURCE = f"{GROUP}/source"

# On objects at clouds: tags at AWS, whose fourth key is `CLUSTER`, and labels at Google Cloud, whose keys have neither `/` nor `.`.
CLOUD_OWNER = f"{GROUP}/owner"
CLOUD_OBJECT = f"{GROUP}/object"
POD_IDENTITY = f"{GROUP}/pod-identity"
"""Of pods at EKS: the association from which they have their role."""
FIXED_SIZE = f"{GROUP}/fixed-size"
"""Of a node group that has so many nodes, where its bounds do not say it: EKS takes no maximum of 0."""
INSTALLATION = f"{GROUP}/installation"
GCP_OWNER = "modelplane-owner"
GCP_CLUSTER = "modelplane-cluster"
GCP_OBJECT = "modelplane-object"

# Annotations that users set.
STACK = f"{GROUP}/stack"
# On the Gateway of a control cluster whose gateway others install: `enabled` says that routes may name Middlewares of Traefik.
MIDDLEWARES = f"{GROUP}/middlewares"
ROUTING = f"{GROUP}/routing"
SCHEDULER_TYPE = f"{GROUP}/scheduler-type"
CAPACITY_ADAPTER = f"{GROUP}/capacity-adapter"
MESH_PROVIDER = f"{GROUP}/mesh-provider"
TASK_QUEUE = f"{GROUP}/task-queue"
REFRESH = f"{GROUP}/refresh"
PROPAGATE = f"{GROUP}/propagate"
PICKER_FLAGS = f"{GROUP}/epp-extra-flags"
# Of a cluster at a cloud that is being deleted: nothing is asked of the cluster itself, or nothing is deleted at all.
SKIP_IN_CLUSTER_TEARDOWN = f"{GROUP}/skip-in-cluster-teardown"
ABANDON = f"{GROUP}/abandon"
TAKEN_WHILE_DELETING = (SKIP_IN_CLUSTER_TEARDOWN, ABANDON)
PRICE_PER_NODE_HOUR = f"{GROUP}/price-per-node-hour"

# On objects of users: who owns which fields, for server-side apply. The front writes it, and shows it as `metadata.managedFields`.
MANAGED_FIELDS = f"{GROUP}/managed-fields"
# What `kubectl apply` without `--server-side` sent last.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# On pods, and not for users: webhooks, node agents and container runtimes take containers, volumes, devices, networks or credentials from
# them, also what only the `podPolicy` of an InferenceClass grants. The others of a mesh, and those of Prometheus, are harmless.
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
    # A pod of a gang is in the group that the control plane, or KAI itself, makes for it.
    "pod-group-name",
    # CRI-O: shared memory, devices, user namespaces, cgroups, seccomp profiles, processors.
    "io.kubernetes.cri-o.",
    "*.cri-o.io/",
    "*.crio.io/",
    # Hooks and handlers of OCI runtimes: files are written on the node.
    "io.containers.",
    "run.oci.",
    # Virtual machines and sandboxes: kernels, mounts, memory.
    "io.katacontainers.",
    "dev.gvisor.",
    # Devices and mounts that plug-ins of the runtime add: CDI and NRI.
    "*.cdi.k8s.io/",
    "*.nri.io/",
    "*.nri.containerd.io/",
    "*.noderesource.dev/",
    "*.seccomp.security.alpha.kubernetes.io/",
)


def is_refused_annotation(key: str, refused: Iterable[str]) -> bool:
    """Whether one of the entries stands for a key.

    `example.com/` stands for all keys of that domain, `*.example.com/` also for those of its subdomains and for keys that are such a domain
    alone, and `com.example.` for all keys that begin so.
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

# A header of what a service responds with: the ModelReplica or ModelEndpoint that the gateway had sent the request to.
RESPONDER_HEADER = "x-modelplane-endpoint"
