"""Limits that admission, workflows and the scheduler check, and their messages."""

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
"""Data-parallel ranks of one pod: the maximum number of ports of an InferencePool."""

ENGINE_PORT = 8000
"""The port on which engine pods accept requests; each further rank takes the next port.
"""

PORT_MAX = 65535
"""The highest TCP port."""

EVENTS_PORT = 5557
"""The default port on which vLLM and SGLang publish events about their KV cache."""

ADAPTERS_MAX = 16
"""LoRA adapters of one engine."""

MODEL_NAMES_MAX = 8
"""Public model names of one LoRA adapter."""

ADAPTER_CACHES_MAX = 32
"""ModelCaches of all adapters of one replica.

The replica is registered at each of them.
"""

DEVICE_CONSTRAINTS_MAX = 8
"""Device constraints of one engine. A ResourceClaim may have 32."""

SPREADS_MAX = 8
"""Topology spreads of one ModelDeployment.

Each is evaluated for every placed replica.
"""

EKS_SUBNETS_MIN = 2
"""The number of zones that the EKS control plane needs."""

EKS_SUBNETS_MAX = 6
"""The maximum number of zones in which one EKS cluster has subnets."""

UPGRADES_AT_ONCE_MAX = 1000
"""Clusters that upgrade their stacks at the same time."""

AFFINITY_TERMS_MAX = 16
"""Terms of one affinity or anti-affinity list.

Each is compared with the labels of all deployments.
"""

SELECTORS_BYTES_MAX = 32 * 1024
"""The size of all device selectors of one ModelDeployment.

The ledger entry of each of its replicas contains them.
"""

SCHEDULING_BYTES_MAX = 16 * 1024
"""The size as JSON of all other scheduling input of one ModelDeployment.

The scheduler carries the input of all deployments in 2 MiB.
"""

SELECTORS_COST_MAX = 200_000
"""CEL cost units of all device selectors of one ModelDeployment.

Kubernetes' estimate of the maximum cost counts. The limit is ten times the limit of one
selector. A comparison of an attribute or of a quantity costs 4 to 7 units, and a
deployment has a handful of them. An evaluation of 200,000 units takes 0.05 s, and every
selector is evaluated for each device of the fleet.
"""

DENIED_NETWORKS_MAX = 64
"""Networks where endpoints may not be.

The report to each service and endpoint contains them.
"""

CHART_VALUES_MAX = 16 * 1024
"""Bytes of the values of all charts that users set, as JSON.

Each InferenceCluster carries them, and messages to activities contain them.
"""

NODE_RESOURCES_MAX = 8
"""Extended resources of the nodes of one pool that a watch reports.

With more of them it reports none.
"""

POOLS_WITH_RESOURCES_MAX = 64
"""Pools of one cluster whose extended resources a watch reports."""

DEVICE_CLASSES_MAX = 100
"""DeviceClasses of one cluster that are reported. With more of them none is."""

STORAGE_CLASSES_MAX = 100
"""StorageClasses of one cluster that a watch follows.

With more of them it follows none.
"""

SELECTORS_REFUSED_MAX = 16
"""The number of reported selectors that do not compile.

Later selectors are not compiled.
"""

CLASS_BYTES_MAX = 32 * 1024
"""The size of an InferenceClass spec as JSON.

An InferenceCluster carries and reports the spec for each of its eight pools.
"""

POLICY_BYTES_MAX = 64 * 1024
"""The size of the fleet policy as JSON. The scheduler carries it in its state."""

FLEET_OBJECTS_MAX = 20_000
"""The maximum number of classes, of clusters and of deployments.

The scheduler carries its records of them in two payloads.
"""

REPLICAS_ON_CLUSTER_MAX = 10_000
"""Replicas with objects on a cluster that a watch reports.

Each replica has a node, and Kubernetes supports 5,000 nodes per cluster.
"""

OBSERVED_MAX = 500
"""The maximum length of a list that a watch reports.

It applies to the objects of one replica or cache, and to the pools, queues and tenants
of one cluster.

It is ten times the expected number.
"""

CAPACITY_BYTES_MAX = 640 * 1024
"""The packed size of the capacity report of one cluster.

The scheduler carries the reports of all clusters in 2 MiB. A report of 8,000 pending
workloads, each with a different reason, takes 570 KiB.
"""

UNKNOWN_REPLICAS_MAX = 500
"""Reported replicas that the scheduler does not know.

The scheduler carries their names until it has received their accounts.
"""

_NAMED_MAX = 3

# Backends of one HTTPRoute rule, by the schema of the Gateway API.
ROUTE_BACKENDS_MAX = 16

# The maximum number of retries of a request. More retries would keep clients waiting,
# and would multiply the requests while all endpoints are busy.
RETRIES_MAX = 5
RETRY_BACKOFF_MILLISECONDS_MAX = 10_000
# Too many requests, bad gateway, unavailable, gateway timeout: the responses that a
# gateway or a provider sends instead of an engine's response.
RETRY_CODES = (429, 502, 503, 504)

# The bounds of the timeout of a ModelService. No model needs less than a second, and no
# client waits longer than a day.
TIMEOUT_MILLISECONDS = (1_000, 24 * 3_600_000)
# The Gateway API's bound: four numbers of five digits with their units.
DURATION_MAX = 28

# Entries of a ModelService. Each routable entry gets one backend, in order, until the
# backends of the rule run out.
SERVICE_ENTRIES_MAX = 100


def cost_problem(
    costs: Sequence[tuple[str, int]], cost_max: int = SELECTORS_COST_MAX
) -> str:
    """Return the message that selectors cost too much together, or "".

    Args:
        costs: the place and the cost of each selector.
        cost_max: the limit of their sum, in CEL cost units.

    """
    total = sum(cost for _, cost in costs)
    if total <= cost_max:
        return ""
    return (
        f"the selectors of all engines together may cost {total} units or more, "
        f"{cost_max} are allowed; simplify {dearest(costs)}"
    )


def dearest(costs: Iterable[tuple[str, int]]) -> str:
    """Return a list of the selectors that cost most, for a message."""
    highest = sorted(costs, key=lambda each: -each[1])[:_NAMED_MAX]
    return ", ".join(f"{place} ({cost} units)" for place, cost in highest)


def not_checked() -> str:
    """Return the message that further selectors were not compiled."""
    return (
        f"{SELECTORS_REFUSED_MAX} selectors do not compile; fix these first, "
        "the selectors after them were not checked"
    )
