"""The JSON of decisions in plans and explanations (`-o json`).

The format is stable: fields are added, but never changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.decide import ExplainedDecision
from scheduler.explain.cluster_report import ClusterDetail, EngineGap
from scheduler.explain.placement_report import PlacementReason
from scheduler.hardware.device_matching import shortened
from scheduler.hardware.template import placed_nodes
from scheduler.model.decision import EnginePlacement

# Limit of the clusters of one decision per page; the rest is on further pages.
PAGE_CHARACTERS = 900_000
_NOT_EXPLAINED = PlacementReason("")


def decision_tree(explained: ExplainedDecision, after: str = "") -> dict[str, Any]:
    """Return the JSON of one decision; empty fields are included.

    `clusters` starts after the name `after` and has as many clusters as a page holds.
    If some are left, `clustersAfter` is where the next page begins.
    """
    decision = explained.decision
    clusters, last = _page(explained.clusters, after)
    return {
        "namespace": decision.namespace,
        "name": decision.deployment,
        "desired": decision.desired,
        "shortfall": decision.shortfall,
        "message": decision.message,
        "warnings": list(explained.warnings),
        "suggestions": [
            {
                "kind": found.kind,
                "text": found.text,
                "cluster": found.cluster,
                "nodes": dict(found.nodes),
                "costMilli": found.cost_milli,
            }
            for found in explained.suggestions
        ],
        "placements": [
            {
                "replica": placement.replica_name,
                "cluster": placement.cluster,
                "index": placement.index,
                "action": placement.action,
                "engines": list(engine_trees(placement.engines)),
                "reason": _reason_tree(
                    explained.placements.get(placement.uid, _NOT_EXPLAINED)
                ),
            }
            for placement in decision.placements
        ],
        "evictions": [
            {
                "replica": eviction.replica_name,
                "cluster": eviction.cluster,
                "reason": eviction.reason,
                "detail": eviction.detail,
            }
            for eviction in (*decision.evictions, *decision.victims)
        ],
        "clusters": clusters,
        "clustersAfter": last,
    }


def engine_trees(engines: Iterable[EnginePlacement]) -> Iterable[dict[str, Any]]:
    """Yield name, pool and nodes of each engine; a spanning engine has a row per pool."""
    for engine in engines:
        for pool, nodes in placed_nodes(engine) or ((engine.pool, 0),):
            yield {"name": engine.engine, "pool": pool, "nodes": nodes}


def _page(
    clusters: Mapping[str, ClusterDetail], after: str
) -> tuple[dict[str, Any], str]:
    """Return one page of cluster trees, and the last name if more pages follow."""
    found: dict[str, Any] = {}
    characters = 0
    last = ""
    for name, detail in clusters.items():
        if name <= after:
            continue
        tree = _cluster_tree(detail)
        characters += len(json.dumps(tree))
        if found and characters > PAGE_CHARACTERS:
            return found, last
        found[name] = tree
        last = name
    return found, ""


def _cluster_tree(detail: ClusterDetail) -> dict[str, Any]:
    return {
        "reason": detail.reason,
        "detail": detail.detail,
        "needs": [
            {
                "pool": need.pool,
                "nodes": need.nodes,
                "free": need.free,
                "engines": [
                    {"name": name, "nodes": nodes} for name, nodes in need.engines
                ],
            }
            for need in detail.needs
        ],
        "pools": {
            pool: {
                "reason": seen.reason,
                "detail": seen.detail,
                "selectors": [_selector_tree(gap) for gap in seen.selectors],
            }
            for pool, seen in detail.pools.items()
        },
    }


def _selector_tree(found: EngineGap) -> dict[str, Any]:
    gap = found.gap
    return {
        "engine": found.engine,
        "member": found.member,
        "request": gap.name,
        "selector": gap.selector,
        "text": shortened(gap.text),
        "device": gap.device,
        "differences": [
            {
                "name": unmet.name,
                "has": unmet.has,
                "wants": unmet.wants,
                "known": list(gap.near(unmet)),
            }
            for unmet in gap.unmet
        ],
    }


def _reason_tree(reason: PlacementReason) -> dict[str, Any]:
    return {
        "text": reason.text,
        "nextBest": reason.next_best,
        "score": reason.score,
        "value": reason.value,
        "nextBestValue": reason.other,
    }
