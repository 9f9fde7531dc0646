"""The `apiVersion` of every kind that we apply to, or watch on, a cluster.

One place, because a served version is a fact of a cluster: what must be there before a replica can run is the same list that a
cluster is asked for.
"""

CORE = "v1"
APPS = "apps/v1"
BATCH = "batch/v1"
RBAC = "rbac.authorization.k8s.io/v1"
GATEWAY = "gateway.networking.k8s.io/v1"
INFERENCE_GROUP = "inference.networking.k8s.io"
INFERENCE = f"{INFERENCE_GROUP}/v1"
# Objectives and rewrites still live in the older group, and move to that of the router.
INFERENCE_EXPERIMENTAL_GROUP = "inference.networking.x-k8s.io"
LLM_D_GROUP = "llm-d.ai"
PICKER_CONFIG = f"{LLM_D_GROUP}/v1alpha1"
LEADER_WORKER_SET = "leaderworkerset.x-k8s.io/v1"
POD_MONITOR = "monitoring.coreos.com/v1"
KAI_POD_GROUP = "scheduling.run.ai/v2alpha2"
DESTINATION_RULE = "networking.istio.io/v1"

DRA_GROUP = "resource.k8s.io"
# Best first. v1beta1 has no `exactly` around the fields of a request.
DRA_VERSIONS = ("v1", "v1beta2", "v1beta1")
DRA_VERSIONS_FLAT = frozenset({"v1beta1"})

# What the serving stack brings to a cluster.
STACK = frozenset({GATEWAY, INFERENCE, LEADER_WORKER_SET, POD_MONITOR})
