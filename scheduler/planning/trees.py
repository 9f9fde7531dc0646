"""The JSON of decisions in plans and explanations (`-o json`). It is a contract: fields are added, never changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.decide import ExplainedDecision
from scheduler.hardware.template import placed_nodes
from scheduler.model.decision import EnginePlacement


def decision_tree(explained: ExplainedDecision) -> dict[str, Any]:
    """Give the JSON of one decision; nothing is left out, however empty."""
    decision = explained.decision
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
            for name, detail in explained.clusters.items()
        },
    }


def engine_trees(engines: Iterable[EnginePlacement]) -> Iterable[dict[str, Any]]:
    """Give name, pool and nodes of each engine; one that spans pools has a row for each."""
    for engine in engines:
        for pool, nodes in placed_nodes(engine) or ((engine.pool, 0),):
            yield {"name": engine.engine, "pool": pool, "nodes": nodes}
