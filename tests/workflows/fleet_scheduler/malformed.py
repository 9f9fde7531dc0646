"""Malformed payloads derived from valid ones.

Each node removed, null, of every other type, or an excessive number.
"""

import copy
from collections.abc import Iterator
from typing import Any

from api_types.labels import NETWORK_DOMAIN, REGION
from api_types.messages.delivery import Delivery
from api_types.messages.entities import CancelRequested
from api_types.messages.scheduling import (
    Bound,
    Forget,
    KnownReplica,
    PlacementRequest,
    Released,
    ReportClass,
    ReportCluster,
    Revoked,
    SetPolicy,
)
from api_types.messages.signals import FleetSchedulerSignals, signals_of
from scheduler.model.inputs import LedgerEntry
from scheduler.model.policy import (
    AffinityTerm,
    PlacementPolicy,
    RolloutPolicy,
    SpreadConstraint,
)
from scheduler.model.wire import to_wire
from tests.scheduler.builders import cluster as a_cluster
from tests.scheduler.builders import decided, deployment, engine, fleet
from tests.workflows.fleet_scheduler.requests import place

REMOVED = object()
LONG = "a/b\n" * 200
WRONG: tuple[Any, ...] = (
    REMOVED,
    None,
    True,
    -1,
    10**30,
    2**62,
    float("nan"),
    "",
    LONG,
    [],
    {},
    [None],
    {"x": None},
    {"$packed": "x"},
)

MANIFEST: dict[str, Any] = {
    "metadata": {
        "name": "eu",
        "uid": "u",
        "generation": 2,
        "labels": {REGION: "eu", NETWORK_DOMAIN: "campus"},
        "annotations": {},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
        "nodePools": [
            {
                "name": "h100",
                "className": "h100",
                "nodeCount": 4,
                "maxNodeCount": 8,
                "fabric": {"type": "InfiniBand", "infiniband": {"fabric": "f"}},
            }
        ],
    },
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Available", "message": ""}
        ],
        "gateway": {"address": "10.0.0.1"},
        "cache": {"storageClassName": "fast"},
        "gpuPools": [
            {
                "name": "h100",
                "nodes": 4,
                "priceMilli": 1000,
                "classMissing": False,
                "observed": {
                    "schedulable": 3,
                    "total": 4,
                    "foreign": 0,
                    "queueFree": 2,
                    "admitted": 1,
                    "observedAt": 5,
                },
                "devices": [
                    {
                        "name": "gpu",
                        "claim": "DRA",
                        "driver": "gpu.nvidia.com",
                        "deviceClassName": "gpu.nvidia.com",
                        "count": 8,
                        "attributes": {
                            "productName": {"string": "H100"},
                            "cc": {"version": "9.0.0"},
                            "mig": {"bool": True},
                            "n": {"int": 1},
                        },
                        "capacity": {"memory": {"value": "80Gi"}},
                    }
                ],
            }
        ],
        "capacity": {
            "observedAt": 5,
            "pools": [
                {
                    "name": "h100",
                    "nodesSchedulable": 3,
                    "nodesTotal": 4,
                    "foreignNodes": 0,
                }
            ],
            "queues": [
                {
                    "name": "q",
                    "tenants": ["modelplane-ml"],
                    "pools": ["h100"],
                    "free": 8,
                }
            ],
            "admission": [
                {"workload": "w", "state": "Pending", "reason": "full", "since": 5}
            ],
        },
    },
}
WITHOUT_ADAPTER = {
    **MANIFEST,
    "status": {
        key: value for key, value in MANIFEST["status"].items() if key != "capacity"
    },
}

POLICY = {
    "profile": "weighted",
    "weights": {"spread": 2},
    "accounting": "node",
    "classAccounting": {"h100": "device-safe"},
    "priorityClasses": {"high": 10},
    "quotas": [
        {
            "namespace": "other",
            "maxNodes": 1,
            "matchLabels": {"a": "b"},
            "className": "h100",
            "deviceSelector": "true",
            "priorityFloor": 1,
        }
    ],
    "reservationTtlSeconds": 60,
    "admissionTimeoutSeconds": 60,
    "queueOrder": "StrictOrder",
    "holdForSeconds": 60,
    "rolloutMaxUnavailable": "25%",
}


def a_place() -> PlacementRequest:
    view = deployment(
        engine(),
        name="qwen",
        policy=PlacementPolicy(
            rollout=RolloutPolicy(
                max_unavailable="25%", max_surge=1, partition=1, paused=True
            ),
            priority_class="high",
            min_available=1,
            topology_spread=(SpreadConstraint(REGION),),
            affinity=(AffinityTerm({"a": "b"}, REGION, ("ml",), 1),),
            anti_affinity=(AffinityTerm({"a": "b"}),),
        ),
        labels={"app": "qwen"},
    )
    return place(view, kept=[KnownReplica(uid="k", template="t", ready=True)], epoch=1)


def an_entry() -> LedgerEntry:
    world = fleet(a_cluster("eu", 4))
    (placement,) = decided(world, deployment(engine(), name="bound")).placements
    return LedgerEntry(
        placement.uid,
        "ml",
        "bound",
        placement.cluster,
        placement.index,
        placement.replica_name,
        placement.engines,
        labels=(("a", "b"),),
        avoids=((REGION, ("ml",), (("a", "b"),)),),
        reuse=(("h100", 1),),
        nominated_for=("ml", "x"),
        origin=("u", "r"),
    )


def valid_payloads() -> list[tuple[str, dict[str, Any]]]:
    """Return valid payloads for each signal of the scheduler, with every field that it reads.

    Some signals have two.
    """
    entry = an_entry()
    found: list[tuple[str, Any]] = [
        (FleetSchedulerSignals.PLACE.name, a_place()),
        (FleetSchedulerSignals.BOUND.name, Bound(entries={entry.uid: to_wire(entry)})),
        (FleetSchedulerSignals.RELEASED.name, Released(uid="u", name="n")),
        (FleetSchedulerSignals.REVOKED.name, Revoked(uid="u")),
        (
            FleetSchedulerSignals.REPORT_CLUSTER.name,
            ReportCluster(name="eu", uid="u", sequence=3, epoch=1, manifest=MANIFEST),
        ),
        (
            FleetSchedulerSignals.REPORT_CLUSTER.name,
            ReportCluster(
                name="eu", uid="u", sequence=3, epoch=1, manifest=WITHOUT_ADAPTER
            ),
        ),
        (
            FleetSchedulerSignals.REPORT_CLASS.name,
            ReportClass(name="h100", generation=1, spec={"devices": []}),
        ),
        (
            FleetSchedulerSignals.FORGET.name,
            Forget(
                kind="ModelDeployment", name="x", namespace="ml", uid="u", gone=True
            ),
        ),
        (
            FleetSchedulerSignals.FORGET.name,
            Forget(kind="InferenceCluster", name="eu", uid="u"),
        ),
        (FleetSchedulerSignals.SET_POLICY.name, SetPolicy(by="me", policy=POLICY)),
        (
            FleetSchedulerSignals.CANCEL_REQUESTED.name,
            CancelRequested(reason="an order"),
        ),
        (
            FleetSchedulerSignals.DELIVERY.name,
            Delivery(
                receiver="modeldeployment/ml/x", run="r", refusal=1, problem="full"
            ),
        ),
    ]
    assert {name for name, _ in found} == set(signals_of(FleetSchedulerSignals))
    return [(name, message.wire()) for name, message in found]


def nodes(
    tree: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all nodes of a JSON tree, the root first."""
    yield path
    children: Any = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, child in children:
        yield from nodes(child, (*path, key))


def altered(tree: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return the tree with another value at a path."""
    if not path:
        return None if value is REMOVED else value
    made = copy.deepcopy(tree)
    parent = made
    for key in path[:-1]:
        parent = parent[key]
    if value is REMOVED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return made


def malformed(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield every alteration of a payload, with its description."""
    for path in nodes(tree):
        for value in WRONG:
            shown = "removed" if value is REMOVED else repr(value)[:20]
            yield (
                f"{'.'.join(map(str, path)) or 'all'} = {shown}",
                altered(tree, path, value),
            )
