"""The state that decisions depend on besides clusters and replicas.

With it, a copy of the fleet in another process makes the same decisions. A plan gets
clusters and deployments from their owners and the ledger from the scheduler. Only the
scheduler has this state: waiting deployments, recent refusals and preemptions,
unfinished searches for victims, the age of taints, and clusters that may not be used
yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scheduler.fleet.fleet import Fleet
from scheduler.fleet.queue_reservations import QueueReservation
from scheduler.model.inputs import DeploymentView
from scheduler.model.wire import from_wire, to_wire


def decision_history(fleet: Fleet) -> dict[str, Any]:
    """Return the JSON tree that `restore_decision_history` reads.

    It contains the results of earlier decisions that later decisions depend on.
    """
    waiting = [
        fleet.queue_reservations[owner] for owner in sorted(fleet.queue_reservations)
    ]
    return {
        "awaited": sorted(fleet.awaited),
        "reservations": [
            [to_wire(one.deployment), one.priority, one.since] for one in waiting
        ],
        "preempted": [[*owner, at] for owner, at in sorted(fleet.preempted_at.items())],
        "refused": [[*where, at] for where, at in sorted(fleet.refused.items())],
    } | {key: value for key, value in _searches(fleet).items() if value}


def _searches(fleet: Fleet) -> dict[str, Any]:
    known = {
        "searches": fleet.unfinished_searches,
        "endedSearches": fleet.ended_searches,
    }
    return {
        key: [[*owner, number] for owner, number in sorted(of_owners.items())]
        for key, of_owners in known.items()
    }


def restore_decision_history(fleet: Fleet, tree: Mapping[str, Any]) -> None:
    """Add the history of another fleet; the tree of an older scheduler may lack fields."""
    fleet.awaited = frozenset(tree.get("awaited", ()))
    for deployment, priority, since in tree.get("reservations", ()):
        one = QueueReservation(from_wire(DeploymentView, deployment), priority, since)
        fleet.queue_reservations[one.owner] = one
    fleet.preempted_at |= {
        (namespace, name): at for namespace, name, at in tree.get("preempted", ())
    }
    fleet.unfinished_searches |= {
        (namespace, name): count for namespace, name, count in tree.get("searches", ())
    }
    fleet.ended_searches |= {
        (namespace, name): at for namespace, name, at in tree.get("endedSearches", ())
    }
    fleet.refused |= {
        (namespace, name, cluster, pool): at
        for namespace, name, cluster, pool, at in tree.get("refused", ())
    }


def decision_state(fleet: Fleet) -> dict[str, Any]:
    """Return the JSON tree that `restore_decision_state` reads."""
    views = [fleet.clusters[name].view for name in sorted(fleet.clusters)]
    taints: list[list[Any]] = []
    for view in views:
        taints += [[view.name, t.key, t.value, t.effect, t.since] for t in view.taints]
    return {
        **decision_history(fleet),
        "unaccounted": [view.name for view in views if not view.accounted],
        "taints": taints,
    }


def restore_decision_state(fleet: Fleet, tree: Mapping[str, Any]) -> None:
    """Restore the decision state of another fleet in a fleet that has its clusters.

    Fields that the tree lacks, for example from an older scheduler, are not changed.
    """
    restore_decision_history(fleet, tree)
    unaccounted = set(tree.get("unaccounted", ()))
    first_seen = {
        (cluster, key, value, effect): at
        for cluster, key, value, effect, at in tree.get("taints", ())
    }
    for view in [info.view for info in fleet.clusters.values()]:
        taints = tuple(
            replace(
                t, since=first_seen.get((view.name, t.key, t.value, t.effect), t.since)
            )
            for t in view.taints
        )
        # If the cluster were only replaced, it would keep the time at which its taints
        # were first seen here. So it is removed and added.
        fleet.remove_cluster(view.name)
        fleet.put_cluster(
            replace(view, accounted=view.name not in unaccounted, taints=taints)
        )
