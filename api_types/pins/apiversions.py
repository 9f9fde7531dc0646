"""The `apiVersion` of every kind that the control plane applies or watches.

They are in one place, because discovery must check a cluster for the same versions that
the rendered objects of a replica need.
"""

CORE = "v1"
APPS = "apps/v1"
BATCH = "batch/v1"
POLICY = "policy/v1"
RBAC = "rbac.authorization.k8s.io/v1"
ADMISSION = "admissionregistration.k8s.io/v1"
DISCOVERY = "discovery.k8s.io/v1"
GATEWAY_GROUP = "gateway.networking.k8s.io"
GATEWAY = f"{GATEWAY_GROUP}/v1"
ENVOY_GROUP = "gateway.envoyproxy.io"
ENVOY = f"{ENVOY_GROUP}/v1alpha1"
METALLB = "metallb.io/v1beta1"
TRAEFIK_GROUP = "traefik.io"
TRAEFIK = f"{TRAEFIK_GROUP}/v1alpha1"
INFERENCE_GROUP = "inference.networking.k8s.io"
INFERENCE = f"{INFERENCE_GROUP}/v1"
# Objectives and rewrites are still in the older group; they are moving to the router's
# group.
INFERENCE_EXPERIMENTAL_GROUP = "inference.networking.x-k8s.io"
LLM_D_GROUP = "llm-d.ai"
# Best first: if a cluster serves both, the picker reads only the objects of the
# router's group (llm-d-router v0.9, ControllerConfig).
MODEL_REWRITES = (f"{LLM_D_GROUP}/v1alpha2", f"{INFERENCE_EXPERIMENTAL_GROUP}/v1alpha2")
PICKER_CONFIG = f"{LLM_D_GROUP}/v1alpha1"
LEADER_WORKER_SET = "leaderworkerset.x-k8s.io/v1"
POD_MONITOR = "monitoring.coreos.com/v1"
KAI_POD_GROUP = "scheduling.run.ai/v2alpha2"
COMPUTE_DOMAIN = "resource.nvidia.com/v1beta1"
DESTINATION_RULE = "networking.istio.io/v1"

DRA_GROUP = "resource.k8s.io"
# Best first. In v1beta1 the fields of a request are not nested in `exactly`.
DRA_VERSIONS = ("v1", "v1beta2", "v1beta1")
DRA_VERSIONS_FLAT = frozenset({"v1beta1"})

KUEUE_GROUP = "kueue.x-k8s.io"
# Best first. v1beta2 came with Kueue 0.15; v1alpha1 has the Cohorts of releases before
# 0.12.
KUEUE_VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")

# The API versions that the serving stack installs on a cluster.
STACK = frozenset({GATEWAY, INFERENCE, LEADER_WORKER_SET, POD_MONITOR})
# The API versions whose availability rendering depends on. A cluster's facts contain
# only these.
RENDERED = STACK | {COMPUTE_DOMAIN, *MODEL_REWRITES}
