"""The keys of the inventory: the stable place of each object in a replica or a cache, whatever its name or kind is in another version.

Renderers give each object its key; an apply and a teardown find objects by them. A prefix stands before the name of an engine, of a
monitor or of what is copied.
"""

MODEL_ROUTE = "model-route"
MODEL_REWRITE = "model-rewrite"
INFERENCE_POOL = "inference-pool"
MODEL_SERVICE = "model-service"
# The Deployment of the endpoint picker; what belongs to it has keys that begin so.
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
