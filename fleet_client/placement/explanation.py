"""Why each replica of a deployment is on its cluster.

The replicas are compared with a decision that the scheduler would make now.
"""

from fleet_client.errors import WriteConflict
from fleet_client.placement.live_fleet import LiveFleet
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, conditions
from scheduler import (
    ClusterView,
    DeploymentView,
    ExplainedDecision,
    LedgerEntry,
    Placement,
    ScheduleRequest,
    decide_and_explain,
    decision_tree,
    engine_trees,
    reasons,
)

_NO_ACTION = "-"


def explanation(live: LiveFleet, target: Target, now: int, after: str = "") -> Tree:
    """Explain one deployment.

    Return the tree of its decision, with `replicas`, `notes` and the deployment's own
    `conditions`. The tree contains one page of clusters: those whose names follow
    `after`. Raise `WriteConflict` if the deployment is being deleted or has no accepted
    spec.
    """
    owner = (target.namespace, target.name)
    manifest = live.deployments.get(owner)
    if manifest is None:
        raise WriteConflict(
            f"{target.title} is not scheduled: it is being deleted, or was never accepted",
            next_step=f"`modelplane describe {target.command}` shows its status",
        )
    view = live.view(manifest)
    (explained,) = decide_and_explain(
        live.fleet,
        [ScheduleRequest(f"explain/{view.namespace}/{view.name}", view)],
        now,
    )
    return {
        **decision_tree(explained, after),
        "replicas": _replicas(live, view, explained),
        "notes": [
            {"reason": note.reason, "replica": note.replica_name, "detail": note.detail}
            for note in explained.decision.notes
        ],
        "conditions": conditions(manifest),
    }


def _replicas(
    live: LiveFleet, view: DeploymentView, explained: ExplainedDecision
) -> list[Tree]:
    entries = live.fleet.owned(view.namespace, view.name)
    decision = explained.decision
    rows = [
        _placed(live, view, explained, placement, entries.get(placement.uid))
        for placement in decision.placements
    ]
    evicted = {
        eviction.uid: f"{eviction.reason}: {eviction.detail}"
        for eviction in decision.evictions
    }
    decided = {placement.uid for placement in decision.placements}
    for entry in sorted(
        entries.values(), key=lambda entry: (entry.cluster, entry.index, entry.uid)
    ):
        if entry.uid in evicted:
            rows.append(_row(entry.name, entry, entry, "Evict", evicted[entry.uid]))
        elif entry.uid not in decided:
            rows.append(
                _row(
                    entry.name,
                    entry,
                    entry,
                    _NO_ACTION,
                    "is being deleted; holds its nodes until its objects are gone",
                )
            )
    return rows


def _row(
    name: str,
    place: Placement | LedgerEntry,
    entry: LedgerEntry | None,
    action: str,
    why: str,
) -> Tree:
    return {
        "replica": name,
        "cluster": place.cluster,
        "index": place.index,
        "state": entry.state if entry else "",
        "ready": bool(entry and entry.ready),
        "action": action,
        "engines": list(engine_trees(place.engines)),
        "why": why,
    }


def _placed(
    live: LiveFleet,
    view: DeploymentView,
    explained: ExplainedDecision,
    placement: Placement,
    entry: LedgerEntry | None,
) -> Tree:
    decision = explained.decision
    cluster = live.fleet.cluster(placement.cluster)
    own = sum(other.cluster == placement.cluster for other in decision.placements)
    why = explained.placements.get(placement.uid)
    parts = [_ACTIONS[placement.action]]
    if why:
        parts.append(why.text)
    parts += [
        f"{note.reason}: {note.detail}"
        for note in decision.notes
        if note.replica_name == placement.replica_name
    ]
    parts += _fits(view, cluster, placement)
    profile = view.policy.profile or live.fleet.options.profile
    parts.append(
        f"{own} of {len(decision.placements)} replicas of this deployment are "
        f"here (profile {profile})"
    )
    return _row(
        placement.replica_name, placement, entry, placement.action, "; ".join(parts)
    )


_ACTIONS = {
    reasons.KEEP: "already placed here",
    reasons.UPDATE: "stays here with the new template",
    reasons.REPLACE: "is created again under the same name once the old one is deleted",
    reasons.CREATE: "would be placed here now",
}


def _fits(
    view: DeploymentView, cluster: ClusterView | None, placement: Placement
) -> list[str]:
    if cluster is None:
        return ["the cluster is unknown"]
    matched = {
        key: value
        for key, value in view.match_labels.items()
        if cluster.labels.get(key) == value
    }
    parts = []
    if matched:
        pairs = [f"{key}={value}" for key, value in sorted(matched.items())]
        parts.append(f"cluster matches {', '.join(pairs)}")
    classes = {pool.name: pool.class_name for pool in cluster.pools}
    for engine in placement.engines:
        claims: dict[str, None] = {}
        for member in engine.members:
            for request in member.requests:
                device = request.resource_name or request.device_class or "slot"
                claims[f"{request.name} {request.count} x {device}"] = None
        granted = f"allocates {', '.join(claims)}" if claims else "claims nothing"
        class_name = classes.get(engine.pool) or "class unknown"
        parts.append(
            f"engine {engine.engine}: pool {engine.pool} ({class_name}) {granted}"
        )
    return parts
