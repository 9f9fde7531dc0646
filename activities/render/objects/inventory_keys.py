"""The inventory keys: the stable identity of each object of a replica or cache.

A key does not change when another version renames the object or changes its kind.
Renderers assign each object its key, and an apply and a teardown find objects by it.
Keys of engines, monitors and copies consist of a prefix and a name.
"""

MODEL_ROUTE = "model-route"
HOST_ROUTE = "model-route-by-host"
MODEL_REWRITE = "model-rewrite"
INFERENCE_POOL = "inference-pool"
MODEL_SERVICE = "model-service"
# The Deployment of the endpoint picker. The keys of its other objects start with this
# one.
PICKER = "epp"
MONITOR_PREFIX = "monitor-"
ENGINE_PREFIX = "model-serving-"
BUDGET_PREFIX = "disruption-budget-"
POD_GROUP_PREFIX = "gang-"
CLAIM_TEMPLATE_PREFIX = "resource-claim-"
COMPUTE_DOMAIN_PREFIX = "compute-domain-"
PULL_SECRET_PREFIX = "pull-secret-"  # noqa: S105 -- of a key
COPY_PREFIXES = ("secret-", "configmap-", PULL_SECRET_PREFIX)

CACHE_JOB = "cache-hydrate"
CACHE_CREDENTIAL = "cache-auth"
CACHE_VOLUME = "cache-claim"
