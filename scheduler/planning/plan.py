"""What would be decided, from manifests alone: `modelplane plan --offline`.

Deployments are decided by priority, then document order, each seeing what the ones before it were given. Rollout and drain budgets are
left aside: the plan shows where things end, not the first step towards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler.decide import build_decision, ordered, priority_of
from scheduler.explain.cluster_report import ClusterDetail, cluster_details
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.template import stamped_nodes
from scheduler.model.decision import Decision, EnginePlacement
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.policy import Drain, Rollout, SchedulerOptions
from scheduler.placement.cycle import SchedulingCycle
from scheduler.planning.offline import offline_deployment, offline_fleet, sort_documents


def plan_offline(documents: Sequence[Mapping[str, Any]], options: SchedulerOptions | None = None, now: int = 0) -> dict[str, Any]:
    """Plan every ModelDeployment among the documents onto the clusters among them.

    Documents are manifests in canonical form, with their status where there is one; existing ModelReplicas hold their nodes and their
    place. Gives the JSON tree of `plan -o json`: one decision per deployment in document order.
    """
    sorted_documents = sort_documents(documents)
    fleet = offline_fleet(sorted_documents, options)
    views = [offline_deployment(manifest, sorted_documents) for manifest in sorted_documents.deployments]
    requests = [
        ScheduleRequest(f"plan/{view.namespace}/{view.name}", end_state(view), submitted=number) for number, view in enumerate(views)
    ]
    overlay = FleetOverlay(fleet, now)
    shown: dict[str, dict[str, Any]] = {}
    for request in ordered(requests, fleet.options):
        cycle = SchedulingCycle(overlay, request, priority_of(request.deployment, fleet.options))
        cycle.run()
        shown[request.request_id] = decision_tree(build_decision(cycle), cluster_details(cycle))
        cycle.finish()
    return {"decisions": [shown[request.request_id] for request in requests]}


def explain_request(fleet: Fleet, request: ScheduleRequest, now: int, after: str = "", limit: int = 0) -> dict[str, Any]:
    """Say how a request would be decided now, with the reason of each cluster and pool; nothing is charged.

    `after` and `limit` page through the clusters by name. The tree is that of one decision of a plan.
    """
    overlay = FleetOverlay(fleet, now)
    cycle = SchedulingCycle(overlay, request, priority_of(request.deployment, fleet.options))
    cycle.run()
    return decision_tree(build_decision(cycle), cluster_details(cycle, after, limit))


def end_state(view: DeploymentView) -> DeploymentView:
    """Give a deployment without budgets, so that one decision shows where it ends."""
    policy = replace(view.policy, rollout=Rollout("AllAtOnce", partition=view.policy.rollout.partition), drain=Drain())
    return replace(view, policy=policy)


def decision_tree(decision: Decision, clusters: Mapping[str, ClusterDetail]) -> dict[str, Any]:
    """Give the JSON of one decision; nothing is left out, however empty."""
    return {
        "namespace": decision.namespace,
        "name": decision.deployment,
        "desired": decision.desired,
        "shortfall": decision.shortfall,
        "message": decision.message,
        "placements": [
            {
                "replica": placement.replica_name,
                "cluster": placement.cluster,
                "index": placement.index,
                "action": placement.action,
                "engines": list(engine_trees(placement.engines)),
            }
            for placement in decision.placements
        ],
        "evictions": [
            {"replica": eviction.replica_name, "cluster": eviction.cluster, "reason": eviction.reason}
            for eviction in (*decision.evictions, *decision.victims)
        ],
        "clusters": {
            name: {
                "reason": detail.reason,
                "detail": detail.detail,
                "pools": {pool: {"reason": seen.reason, "detail": seen.detail} for pool, seen in detail.pools.items()},
            }
            for name, detail in clusters.items()
        },
    }


def engine_trees(engines: Iterable[EnginePlacement]) -> Iterable[dict[str, Any]]:
    """Give name, pool and nodes of each engine; one that spans pools has a row for each."""
    for engine in engines:
        for pool, nodes in stamped_nodes(engine) or ((engine.pool, 0),):
            yield {"name": engine.engine, "pool": pool, "nodes": nodes}
