"""A client that reads clusters, ledger and decision state decides like the scheduler."""

import json
from dataclasses import replace

from scheduler.fleet.fleet import Fleet
from scheduler.fleet.queue_reservations import QueueReservation
from scheduler.fleet.snapshots.decision_state import (
    decision_state,
    restore_decision_state,
)
from scheduler.fleet.snapshots.snapshot import dump, load
from scheduler.model.policy import SchedulerOptions
from tests.scheduler.builders import NOW, cluster, deployment, fleet, pool

STRICT = SchedulerOptions(queue_order="StrictOrder")


def test_a_copy_restores_the_whole_decision_state() -> None:
    known = fleet(
        cluster("a", 1, taints=["x=1:NoExecute"]),
        cluster("b", 1, accounted=False),
        options=STRICT,
    )
    known.set_queue_reservation(("ml", "m"), QueueReservation(deployment(), 10, NOW))
    known.preempted_at["ml", "low"] = NOW
    known.refused["ml", "m", "a", "p"] = NOW
    known.unfinished_searches["ml", "big"] = 2
    known.ended_searches["ml", "big"] = NOW
    known.awaited = frozenset({"c"})
    copy = fleet(
        cluster("a", 1, taints=["x=1:NoExecute"]),
        cluster("b", 1),
        options=STRICT,
        now=NOW + 60_000,
    )
    restore_decision_state(copy, json.loads(json.dumps(decision_state(known))))
    assert decision_state(copy) == decision_state(known)
    assert [
        info.view.taints[0].since for info in copy.clusters.values() if info.view.taints
    ] == [NOW]


def test_missing_fields_and_unknown_clusters_change_nothing() -> None:
    copy = fleet(cluster("new", 1, taints=["x:NoSchedule"]))
    before = decision_state(copy)
    restore_decision_state(copy, {})
    restore_decision_state(copy, decision_state(Fleet()))
    assert decision_state(copy) == before
    assert copy.cluster("new") == replace(
        cluster("new", 1), taints=copy.clusters["new"].view.taints
    )


def test_a_snapshot_keeps_pools_apart_that_differ_only_in_their_shortage() -> None:
    whole, lacking = pool("p", 0), pool("p", 0, shortage="no machines")
    known = fleet(cluster("a", whole), cluster("b", lacking))
    copy = load(dump(known))
    assert {
        name: [each.shortage for each in info.pools]
        for name, info in copy.clusters.items()
    } == {"a": [""], "b": ["no machines"]}
