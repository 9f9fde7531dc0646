"""Recorded objects of API servers, reduced to the relevant fields and a few more."""

from copy import deepcopy
from typing import Any

from activities.cluster_objects.kinds import LWS_NAME_LABEL
from api_types import labels

Item = tuple[str, dict[str, Any]]
DRIVER = "gpu.nvidia.com"
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
_READY = [
    {"type": "MemoryPressure", "status": "False"},
    {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
]


def node(
    name: str, pool: str = "h100", conditions: Any = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {labels.POOL: pool}}
    return {
        "metadata": metadata,
        "spec": {"taints": [GPU_TAINT], **spec},
        "status": {"conditions": conditions or _READY},
    }


def resource_slice(host: str, devices: int, generation: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{host}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": host,
            "pool": {"name": host, "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}"} for i in range(devices)],
        },
    }


def claim(
    name: str, host: str, count: int, pod: str, namespace: str = "ml", **metadata: Any
) -> dict[str, Any]:
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": host, "device": f"gpu-{i}"}
        for i in range(count)
    ]
    return {
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"devices": {"requests": [{"name": "gpu"}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": "u"}],
        },
    }


def pod(name: str, since: str = "", **pod_labels: str) -> dict[str, Any]:
    scheduled = {
        "type": "PodScheduled",
        "status": "False" if since else "True",
        "lastTransitionTime": since or "2026-01-01T00:00:00Z",
    }
    waits = (
        {"reason": "Unschedulable", "message": "0/6 nodes are available"}
        if since
        else {}
    )
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ml",
        "labels": dict(pod_labels),
        "annotations": {"pod-group-name": "pg-gang"},
    }
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Pending", "conditions": [{**scheduled, **waits}]},
    }


KUBE: list[Item] = [
    ("Node", node("n1")),
    ("Node", node("n2")),
    ("Node", node("cordoned", unschedulable=True)),
    ("Node", node("sick", conditions=[{"type": "Ready", "status": "Unknown"}])),
    (
        "Node",
        node(
            "reserved",
            taints=[GPU_TAINT, {"key": "team", "value": "x", "effect": "NoExecute"}],
        ),
    ),
    ("Node", node("shared", taints=[{"key": "soft", "effect": "PreferNoSchedule"}])),
    ("Node", node("s1", pool="spare")),
    (
        "Node",
        {
            "metadata": {"name": "system", "labels": {}},
            "spec": {},
            "status": {"conditions": _READY},
        },
    ),
    *(
        ("ResourceSlice", resource_slice(host, 8))
        for host in ("n1", "n2", "cordoned", "shared")
    ),
    ("ResourceClaim", claim("chat-gpu", "n1", 2, "chat-0")),
    ("ResourceClaim", claim("orphan", "shared", 4, "batch-0", "batch")),
    (
        "ResourceClaim",
        {
            "metadata": {"name": "unallocated", "namespace": "batch"},
            "spec": {},
            "status": {},
        },
    ),
    ("Pod", pod("chat-0", **{labels.SERVING: "chat-11111111"})),
    (
        "Pod",
        pod("gang-0", **{labels.SERVING: "gang-22222222", LWS_NAME_LABEL: "gang-main"}),
    ),
    ("Pod", pod("gang-0-1", "2026-01-01T12:00:00Z", **{LWS_NAME_LABEL: "gang-main"})),
    ("Pod", pod("gang-0-2", "2026-01-01T12:05:00Z", **{LWS_NAME_LABEL: "gang-main"})),
    (
        "Pod",
        pod("foreign-set-0", "2026-01-01T11:00:00Z", **{LWS_NAME_LABEL: "foreign"}),
    ),
]


def cluster_queue(
    name: str, nominal: int, reserved: str, *, active: str = "True", **spec: Any
) -> dict[str, Any]:
    limits: dict[str, Any] = {
        key: spec.pop(key) for key in ("borrowingLimit", "lendingLimit") if key in spec
    }
    resources = [
        {"name": "cpu", "nominalQuota": "100"},
        {"name": "nvidia.com/gpu", "nominalQuota": str(nominal), **limits},
    ]
    return {
        "metadata": {"name": name},
        "spec": {
            "cohortName": "all",
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "nvidia.com/gpu"],
                    "flavors": [{"name": "h100-flavor", "resources": resources}],
                }
            ],
            **spec,
        },
        "status": {
            "conditions": [{"type": "Active", "status": active, "reason": "Ready"}],
            "pendingWorkloads": 2,
            "flavorsReservation": [
                {
                    "name": "h100-flavor",
                    "resources": [
                        {"name": "cpu", "total": "7"},
                        {"name": "nvidia.com/gpu", "total": reserved},
                    ],
                }
            ],
            "flavorsUsage": [
                {
                    "name": "h100-flavor",
                    "resources": [
                        {"name": "nvidia.com/gpu", "total": "4", "borrowed": "0"}
                    ],
                }
            ],
        },
    }


def with_reserved(item: dict[str, Any], total: str) -> dict[str, Any]:
    changed = deepcopy(item)
    if "flavorsReservation" in changed.get("status", {}):
        changed["status"]["flavorsReservation"][0]["resources"][1]["total"] = total
    return changed


def workload(
    name: str,
    owners: tuple[tuple[str, str], ...],
    *conditions: tuple[str, str, str, str],
    minute: int = 10,
) -> dict[str, Any]:
    """Return a Workload of Kueue. Conditions are (type, status, reason, message)."""
    fields = ("type", "status", "reason", "message")
    written = [
        {
            **dict(zip(fields, each, strict=True)),
            "lastTransitionTime": f"2026-01-01T12:{minute:02}:00Z",
            "observedGeneration": 1,
        }
        for each in conditions
    ]
    references = [
        {"apiVersion": "v1", "kind": kind, "name": owner, "uid": f"uid-{owner}"}
        for kind, owner in owners
    ]
    return {
        "metadata": {"name": name, "namespace": "ml", "ownerReferences": references},
        "spec": {
            "queueName": "modelplane-ml",
            "podSets": [
                {"name": "main", "count": 1, "template": {"spec": {"containers": []}}}
            ],
        },
        "status": {"conditions": written},
    }


KUEUE: list[Item] = [
    (
        "ResourceFlavor",
        {
            "metadata": {"name": "h100-flavor"},
            "spec": {"nodeLabels": {labels.POOL: "h100"}},
        },
    ),
    ("ClusterQueue", cluster_queue("red", 16, "12", borrowingLimit="3")),
    ("ClusterQueue", cluster_queue("blue", 8, "0", lendingLimit="5")),
    ("ClusterQueue", cluster_queue("stopped", 8, "8", stopPolicy="HoldAndDrain")),
    (
        "LocalQueue",
        {
            "metadata": {"name": "modelplane-red", "namespace": "red"},
            "spec": {"clusterQueue": "red"},
        },
    ),
    (
        "LocalQueue",
        {
            "metadata": {"name": "modelplane-blue", "namespace": "blue"},
            "spec": {"clusterQueue": "blue"},
        },
    ),
    (
        "Workload",
        workload(
            "pod-gang-0-1",
            (("Pod", "gang-0-1"),),
            ("QuotaReserved", "False", "Pending", "no quota for nvidia.com/gpu"),
        ),
    ),
]


def queue(
    name: str, allocated: Any = 0, requested: Any = 0, parent: str = "", **gpu: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "displayName": name,
            "parentQueue": parent,
            "priority": 100,
            "resources": {"gpu": {"overQuotaWeight": 1, **gpu}},
        },
        "status": {
            "allocated": {"cpu": "4", "nvidia.com/gpu": allocated},
            "requested": {"nvidia.com/gpu": requested},
        },
    }


KAI: list[Item] = [
    ("Queue", queue("company", "17500m", "30", quota=-1, limit=20)),
    ("Queue", queue("modelplane-red", "9500m", "12", "company", quota=8, limit=16)),
    (
        "Queue",
        queue(
            "modelplane-strict", 7, 7, "company", quota=8, limit=-1, overQuotaWeight=0
        ),
    ),
    ("Queue", queue("free", 0, 0, "free", quota=-1, limit=-1)),
    (
        "PodGroup",
        {
            "metadata": {"name": "pg-gang", "namespace": "ml"},
            "spec": {"minMember": 3, "queue": "modelplane-red"},
            "status": {
                "schedulingConditions": [
                    {
                        "type": "UnschedulableOnNodePool",
                        "status": "True",
                        "nodePool": "default",
                        "transitionID": "10",
                        "reason": "Unschedulable",
                        "message": "in the old form",
                        "reasons": [
                            {
                                "reason": "OverLimit",
                                "message": "the queue has no quota left",
                                "details": {
                                    "queueDetails": {
                                        "name": "modelplane-red",
                                        "queueResourceLimits": {"nvidia.com/gpu": "16"},
                                    }
                                },
                            }
                        ],
                        "lastTransitionTime": "2026-01-01T12:00:00Z",
                    },
                    {
                        "type": "UnschedulableOnNodePool",
                        "status": "True",
                        "nodePool": "other",
                        "transitionID": "9",
                        "reasons": [
                            {"reason": "NoNodes", "message": "none of that kind"}
                        ],
                        "lastTransitionTime": "2026-01-01T12:00:00Z",
                    },
                ]
            },
        },
    ),
]
