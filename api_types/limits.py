"""Limits that several packages check, and how they refuse: admission, workflows and the scheduler."""

from collections.abc import Iterable, Sequence

REPLICAS_MAX = 1000
"""Replicas of one ModelDeployment."""

ENGINES_MAX = 8
"""Engines of one replica."""

MEMBERS_MAX = 2
"""Members of one engine: one Standalone, or a Leader and a Worker."""

REQUESTS_MAX = 16
"""Device requests of one member."""

RANKS_MAX = 8
"""Data-parallel ranks of one pod: an InferencePool has at most so many ports."""

ENGINE_PORT = 8000
"""Where the pods of an engine take requests; each further rank takes the next port."""

EVENTS_PORT = 5557
"""Where vLLM and SGLang publish what is in their KV cache unless they are told otherwise."""

ADAPTERS_MAX = 16
"""LoRA adapters of one engine."""

MODEL_NAMES_MAX = 8
"""Public model names of one LoRA adapter."""

ADAPTER_CACHES_MAX = 32
"""ModelCaches of all adapters of one replica: it is registered at each of them."""

DEVICE_CONSTRAINTS_MAX = 8
"""Device constraints of one engine; a claim may have 32."""

SPREADS_MAX = 8
"""Topology spreads of one ModelDeployment: each is counted again for every replica that is placed."""

EKS_SUBNETS_MIN = 2
"""Zones that the control plane of EKS needs."""

EKS_SUBNETS_MAX = 6
"""Zones in which one cluster on EKS has subnets."""

UPGRADES_AT_ONCE_MAX = 1000
"""Clusters that upgrade their stacks at the same time."""

AFFINITY_TERMS_MAX = 16
"""Terms of one list of affinity or anti-affinity: each is compared with the labels of all deployments."""

SELECTORS_BYTES_MAX = 32 * 1024
"""All device selectors of one ModelDeployment: the ledger entry of each of its replicas has them."""

SCHEDULING_BYTES_MAX = 16 * 1024
"""What else of one ModelDeployment decides where it is placed, as JSON: the scheduler carries that of all deployments in 2 MiB."""

SELECTORS_COST_MAX = 200_000
"""CEL cost units of all device selectors of one ModelDeployment, by Kubernetes' estimate of the most that they can cost.

Ten times what one selector may cost. A comparison of an attribute or of a quantity costs 4 to 7, and a deployment has a handful of them. An
evaluation of 200,000 units takes 0.05 s here, and each device of the fleet is one evaluation of every selector.
"""

DENIED_NETWORKS_MAX = 64
"""Networks where endpoints may not be: the report to each service and endpoint has them."""

STORAGE_CLASSES_MAX = 100
"""StorageClasses of one cluster that are followed: with more of them, none is."""

SELECTORS_REFUSED_MAX = 16
"""So many selectors that do not compile are reported; those behind them are not compiled."""

CLASS_BYTES_MAX = 32 * 1024
"""The spec of one InferenceClass as JSON: an InferenceCluster carries and reports it for each of its eight pools."""

POLICY_BYTES_MAX = 64 * 1024
"""The fleet policy as JSON: the scheduler carries it beside everything else."""

FLEET_OBJECTS_MAX = 20_000
"""Classes, clusters and deployments, of each: what the scheduler remembers of them is carried in two payloads."""

REPLICAS_ON_CLUSTER_MAX = 10_000
"""Replicas of which a watch reports that they have objects on its cluster: each has a node, and a cluster of Kubernetes has 5,000."""

OBSERVED_MAX = 500
"""Objects of one replica or cache, and pools, queues and tenants of one cluster, that a watch reports: ten times what there are of any."""

CAPACITY_BYTES_MAX = 640 * 1024
"""The capacity that one cluster reports, packed: the scheduler carries that of all clusters in 2 MiB. That 8,000 workloads wait, each for
another reason, takes 570 KiB."""

UNKNOWN_REPLICAS_MAX = 500
"""Replicas that a cluster reports, that the scheduler does not know, and that it asks for their accounts: it carries their names."""

_NAMED_MAX = 3

# Backends of one rule of an HTTPRoute, by the schema of the Gateway API.
ROUTE_BACKENDS_MAX = 16

# How often a request is sent again. More attempts keep clients waiting, and multiply requests where all endpoints are busy.
RETRIES_MAX = 5
RETRY_BACKOFF_MILLISECONDS_MAX = 10_000
# Too many requests, bad gateway, unavailable, gateway timeout: what gateways and providers answer in place of an engine.
RETRY_CODES = (429, 502, 503, 504)

# Of a request to a ModelService. A model that answers within less than a second is none, and after a day no client waits.
TIMEOUT_MILLISECONDS = (1_000, 24 * 3_600_000)
# As the Gateway API bounds them: four numbers of five digits with their units.
DURATION_MAX = 28

# Entries of a ModelService. Of those that can be routed each gets one backend, as far as they go.
SERVICE_ENTRIES_MAX = 100


def cost_problem(costs: Sequence[tuple[str, int]], cost_max: int = SELECTORS_COST_MAX) -> str:
    """Say that selectors, given by place and cost, cost too much together; "" if they do not."""
    total = sum(cost for _, cost in costs)
    if total <= cost_max:
        return ""
    return f"the selectors of all engines together may cost {total} units or more, {cost_max} are allowed; simplify {dearest(costs)}"


def dearest(costs: Iterable[tuple[str, int]]) -> str:
    """Name the selectors that cost most."""
    highest = sorted(costs, key=lambda each: -each[1])[:_NAMED_MAX]
    return ", ".join(f"{place} ({cost} units)" for place, cost in highest)


def not_checked() -> str:
    """Say why further selectors were not compiled."""
    return f"{SELECTORS_REFUSED_MAX} selectors do not compile; fix these first, those after them were not checked"
