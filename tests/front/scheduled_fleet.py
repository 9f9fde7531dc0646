"""A fleet that the scheduler has placed, for tests of capacity and explanations.

Its objects are in a projection, and its ledger at a plane that answers from memory.
"""

from dataclasses import dataclass
from typing import Any, cast

from api_types import labels
from api_types.clock import now_ms
from fleet_client.temporal.control_plane import ControlPlane
from front.store.projection import Projection, Tree
from scheduler import (
    Placement,
    ScheduleRequest,
    apply,
    decide,
    deployment_view,
    offline_fleet,
    read_policy,
    sort_documents,
)
from tests.client.planning.fake_plane import FakePlane
from tests.front.shown_fleet import START, condition, put


@dataclass
class ScheduledFleet:
    """Deployments were decided in the order of the manifests."""

    plane: FakePlane
    projection: Projection

    @property
    def control_plane(self) -> ControlPlane:
        return cast("ControlPlane", self.plane)


def scheduled(*trees: Tree, policy: dict[str, Any] | None = None) -> ScheduledFleet:
    """Decide about all deployments, and let every placed replica serve."""
    fleet = offline_fleet(sort_documents(list(trees)), read_policy(policy or {}))
    projection = Projection()
    shown = []
    for tree in trees:
        status = tree.get("status") or {"conditions": [condition()]}
        if tree["kind"] == "ModelDeployment":
            view = deployment_view(tree)
            request = ScheduleRequest(f"{view.namespace}/{view.name}", view)
            (decision,) = decide(fleet, [request], now_ms())
            apply(fleet, decision, view)
            for placement in decision.placements:
                fleet.bind(placement.uid, now_ms())
                shown.append(_replica(tree, placement))
            why = decision.message if decision.shortfall else ""
            status = _status(len(decision.placements), why)
        metadata = {"resourceVersion": str(START), **tree["metadata"]}
        shown.append({**tree, "metadata": metadata, "status": status})
    put(projection, *shown)
    projection.complete = True
    return ScheduledFleet(FakePlane(fleet, *shown), projection)


def _status(placed: int, why: str) -> Tree:
    missing = condition("False", "InsufficientCapacity", why, "ReplicasScheduled")
    ready = condition("False", "InsufficientCapacity", why)
    return {
        "replicas": {"total": placed, "ready": placed},
        "conditions": [missing, ready] if why else [condition()],
    }


def _replica(deployment: Tree, placement: Placement) -> Tree:
    members = [
        {
            "role": member.role,
            "nodePoolName": member.pool,
            "deviceRequests": [{"name": each.name} for each in member.requests],
            "worker": {"nodes": member.worker_nodes},
        }
        for engine in placement.engines
        for member in engine.members
    ]
    return {
        "apiVersion": deployment["apiVersion"],
        "kind": "ModelReplica",
        "metadata": {
            "name": placement.replica_name,
            "namespace": deployment["metadata"]["namespace"],
            "uid": placement.uid,
            "resourceVersion": str(START),
            "labels": {labels.DEPLOYMENT: deployment["metadata"]["name"]},
        },
        "spec": {
            "clusterName": placement.cluster,
            "engines": [{"name": "main", "members": members}],
        },
        "status": {"phase": "Ready", "conditions": [condition()]},
    }
