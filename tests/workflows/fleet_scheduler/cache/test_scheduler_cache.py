"""The scheduler's cache alone.

The effect of each message, and the requests that it causes to be decided again. These
tests need no server.
"""

from datetime import timedelta
from typing import Any

import pytest

from api_types import names
from api_types.messages.scheduling import (
    Bound,
    Forget,
    Released,
    ReportCluster,
    Revoked,
)
from api_types.payloads.packing import pack, share, unpack
from scheduler import to_wire
from scheduler.decide import decide
from scheduler.fleet.snapshots import snapshot
from scheduler.fleet.snapshots.decision_state import decision_state
from scheduler.fleet.snapshots.ledger_rows import unpack_rows
from scheduler.model.inputs import DeploymentView
from scheduler.model.policy import PlacementPolicy, SpreadConstraint
from scheduler.model.reasons import RELEASING, RESERVED
from scheduler.placement import victim_search
from tests.scheduler.builders import cluster, deployment, engine
from tests.workflows.fleet_scheduler.cache.builders import (
    MINUTE,
    START,
    Clock,
    as_ordered,
    cache_with,
    carried,
    cycle,
    read,
    reopened,
)
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.carry_over import (
    CacheVersion,
    audit_ledger,
)
from workflows.fleet_scheduler.cache.scheduler_cache import (
    UNANSWERED_MS,
    SchedulerCache,
)
from workflows.fleet_scheduler.cache.state import ReceivedSignal
from workflows.fleet_scheduler.decide_activity import schedule_request
from workflows.fleet_scheduler.inbox import READ_AT_ONCE


def test_a_batch_orders_requests_by_priority_and_then_by_arrival() -> None:
    made = cache_with(
        Clock(), cluster("a", 2), policy={"priorityClasses": {"high": 100}}
    )
    cycle(made)
    high = PlacementPolicy(priority_class="high")
    views = [
        deployment(name="first"),
        deployment(name="urgent", policy=high),
        deployment(name="second"),
        deployment(name="alarm", policy=high),
    ]
    assert cycle(made, *(("place", place(view)) for view in views)) == [
        "urgent",
        "alarm",
        "first",
        "second",
    ]
    assert sorted(entry.deployment for entry in made.fleet.entries()) == [
        "alarm",
        "urgent",
    ]


def test_namespaces_take_turns_in_a_batch() -> None:
    """A tenant with hundreds of requests would delay all others by their decisions."""
    made = cache_with(Clock(), cluster("a", 9))
    cycle(made)
    views = [deployment(name=f"many-{n}", namespace="busy") for n in range(3)]
    views += [deployment(name=f"few-{n}", namespace="calm") for n in range(2)]
    assert cycle(made, *(("place", place(view)) for view in views)) == [
        "many-0",
        "few-0",
        "many-1",
        "few-1",
        "many-2",
    ]


def test_the_policy_sets_when_a_deployment_is_queried_about_an_unstarted_replica() -> (
    None
):
    clock = Clock()
    made = cache_with(clock, cluster("a", 1), policy={"reservationTtlSeconds": 30})
    cycle(made, ("place", place(deployment())))
    assert made.reservations.delay(clock()) == timedelta(seconds=30)
    clock.ms += 29_999
    assert made.reservations.expired(clock()) == []
    clock.ms += 1
    assert [entry.state for entry in made.reservations.expired(clock())] == [RESERVED]


def gang_among(made: SchedulerCache, clusters: int) -> DeploymentView:
    """Fill clusters of two nodes with low-priority replicas.

    Return a gang that fits there without them.
    """
    cycle(made, ("place", place(deployment(name="low", want=2 * clusters))))
    policy = PlacementPolicy(
        priority_class="high", preemption="LowerPriority", gang_replicas=clusters
    )
    return deployment(engine(copies=2), name="big", want=clusters, policy=policy)


def test_a_request_with_an_unfinished_victim_search_is_queued_behind_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = cache_with(
        Clock(),
        *(cluster(name, 2) for name in "abcd"),
        policy={"priorityClasses": {"high": 100}},
    )
    big = gang_among(made, 4)
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", 4)
    assert cycle(
        made, ("place", place(big)), ("place", place(deployment(name="small")))
    ) == ["big", "small", "big", "big"]
    assert len(made.fleet.owned("ml", "big")) == 4
    assert made.answers["uid-ml-big/1"]["shortfall"] == 0
    assert made.fleet.unfinished_searches == {}


def test_time_without_a_worker_does_not_count_against_a_preemption_answer() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2), policy={"priorityClasses": {"high": 100}})
    cycle(made, ("place", place(gang_among(made, 1))))
    (victim, other) = made.unanswered
    del made.unanswered[other]
    clock.ms += 10 * UNANSWERED_MS
    assert made.give_up_unanswered() == []
    assert made.next_unanswered() == timedelta(milliseconds=UNANSWERED_MS)
    clock.ms += UNANSWERED_MS
    assert [entry.uid for entry in made.give_up_unanswered()] == [victim]
    assert made.next_unanswered() is None


def test_a_victim_search_ends_with_its_deployment() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    view = deployment(name="big")
    cycle(made, ("place", place(view)))
    made.fleet.unfinished_searches["ml", "big"] = 2
    cycle(
        made,
        (
            "forget",
            Forget(kind="ModelDeployment", namespace="ml", name="big", uid=view.uid),
        ),
    )
    assert made.fleet.unfinished_searches == {}


def test_requests_behind_a_queue_reservation_are_decided_again_when_the_reservation_expires() -> (
    None
):
    clock = Clock()
    made = cache_with(
        clock,
        cluster("a", 1),
        policy={"queueOrder": "StrictOrder", "holdForSeconds": 300},
    )
    cycle(made)
    big, small = deployment(engine(copies=4), name="big"), deployment(name="small")
    assert cycle(made, ("place", place(big)), ("place", place(small))) == [
        "big",
        "small",
    ]
    assert made.next_timeout() == timedelta(minutes=5, milliseconds=1)
    clock.ms += 4 * MINUTE
    assert cycle(made) == []
    clock.ms += MINUTE + 1
    assert cycle(made) == ["big", "small", "big"], (
        "the end of a reservation is a change for its owner too"
    )
    assert [entry.deployment for entry in made.fleet.entries()] == ["small"]
    assert made.next_timeout() is None


def test_a_waiting_request_is_decided_again_when_others_may_be_preempted_again() -> (
    None
):
    clock = Clock()
    made = cache_with(clock, cluster("a", 1))
    cycle(made)
    preempted = deployment(name="preempted")
    made.fleet.preempted_at["ml", "preempted"] = clock.ms
    assert cycle(made, ("place", place(preempted))) == ["preempted"]
    assert made.next_timeout() is None, "nobody waits"
    big = deployment(engine(copies=4), name="big")
    assert cycle(made, ("place", place(big))) == ["big"]
    delay = made.next_timeout()
    assert delay is not None
    assert timedelta(minutes=10) <= delay < timedelta(minutes=10, seconds=10)
    clock.ms += int(delay.total_seconds() * 1000) - 1
    assert cycle(made) == []
    clock.ms += 1
    assert cycle(made) == ["big"]
    assert made.next_timeout() is None


def test_a_queue_reservation_ends_with_its_deployment_and_is_carried_over() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 1), policy={"queueOrder": "StrictOrder"})
    cycle(made)
    cycle(made, ("place", place(deployment(engine(copies=4), name="big"))))
    assert (
        snapshot.load(snapshot.dump(made.fleet)).queue_reservations
        == made.fleet.queue_reservations
    )
    gone = Forget(
        kind="ModelDeployment",
        namespace="ml",
        name="big",
        uid=deployment(name="big").uid,
    )
    made.state.inbox.append(ReceivedSignal("forget", gone.wire()))
    assert cycle(made, ("place", place(deployment(name="small")))) == ["small"]
    assert made.next_timeout() is None
    assert [entry.deployment for entry in made.fleet.entries()] == ["small"]


def test_a_policy_that_is_too_large_is_refused_with_its_size() -> None:
    made = cache_with(
        Clock(), policy={"priorityClasses": {f"class-{n}" * 8: n for n in range(1_000)}}
    )
    cycle(made)
    assert made.state.policy is None
    assert made.state.policy_problem.endswith(
        "bytes of JSON; at most 65536 are accepted"
    )


def test_a_recount_finds_wrong_charges() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    cache_registry.register("run-3", made)
    made.fleet.ledger._charged_nodes._used["a"]["p"] = 2
    assert audit_ledger(CacheVersion(run_id="run-3", version=made.fleet.version)) == [
        "a/p: 2 nodes charged, 1 by recount"
    ]


def test_the_pages_of_the_ledger_form_one_account() -> None:
    made = cache_with(Clock(), cluster("a", 5))
    cycle(made, ("place", place(deployment(want=5))))
    uids = sorted(entry.uid for entry in made.fleet.entries())
    page = made.ledger_page(uids[1])
    assert [entry.uid for entry in unpack_rows(unpack(page["entries"]))] == uids[2:]
    assert (page["version"], page["after"], "state" in page) == (
        made.fleet.version,
        "",
        False,
    )
    assert unpack(made.ledger_page("")["state"]) == decision_state(made.fleet)


US, EU = {"region": "us"}, {"region": "eu"}


@pytest.mark.parametrize(
    ("wants", "requeued"),
    [
        ({"match_labels": US}, ["waits"]),
        ({"match_labels": EU}, []),
        ({}, ["waits"]),
        (
            {
                "match_labels": EU,
                "policy": PlacementPolicy(
                    topology_spread=(SpreadConstraint("region"),)
                ),
            },
            ["waits"],
        ),
    ],
    ids=["same labels", "other labels", "no labels", "a rule that counts elsewhere"],
)
def test_only_affected_requests_are_decided_again(
    wants: dict[str, Any], requeued: list[str]
) -> None:
    made = cache_with(Clock(), cluster("a", 1, labels=US), cluster("b", 1, labels=EU))
    cycle(
        made,
        *(
            ("place", place(deployment(name=name, match_labels=labels)))
            for name, labels in (("u", US), ("e", EU))
        ),
    )
    assert cycle(made, ("place", place(deployment(name="waits", want=3, **wants)))) == [
        "waits"
    ]
    assert (
        cycle(made, ("released", Released(uid=next(iter(made.fleet.owned("ml", "u"))))))
        == requeued
    )


def test_a_request_that_waits_to_grow_is_decided_again_when_its_cluster_gains_capacity() -> (
    None
):
    made = cache_with(Clock(), cluster("a", 2, labels=US))
    cycle(
        made,
        *(
            ("place", place(deployment(name=name, match_labels=US)))
            for name in ("grows", "other")
        ),
    )
    made.fleet.put_cluster(cluster("a", 2, labels=EU))
    grown = deployment(engine(copies=2), name="grows", match_labels=US, template="v2")
    assert cycle(made, ("place", place(grown, 2))) == ["grows"]
    assert cycle(
        made, ("released", Released(uid=next(iter(made.fleet.owned("ml", "other")))))
    ) == ["grows"]
    assert cycle(made) == []


def test_a_reduced_quota_usage_affects_all_requests() -> None:
    quota = {"namespace": "ml", "maxNodes": 1}
    made = cache_with(
        Clock(),
        cluster("a", 1, labels=US),
        cluster("b", 1, labels=EU),
        policy={"quotas": [quota]},
    )
    cycle(made)
    cycle(
        made,
        ("place", place(deployment(name="u", match_labels=US))),
        ("place", place(deployment(name="e", match_labels=EU))),
    )
    assert cycle(
        made, ("released", Released(uid=next(iter(made.fleet.owned("ml", "u")))))
    ) == ["e"]


def test_messages_are_read_in_order_in_bounded_batches() -> None:
    made = cache_with(Clock())
    made.state.inbox += [
        ReceivedSignal("place", place(deployment(name=f"d{i}")).wire())
        for i in range(READ_AT_ONCE + 10)
    ]
    assert read(made)
    assert len(made.state.queue) == READ_AT_ONCE
    assert not read(made)
    assert list(made.state.queue) == [f"ml/d{i}" for i in range(READ_AT_ONCE + 10)]


def test_a_newer_request_replaces_the_older_one_at_the_end_of_the_queue() -> None:
    made = cache_with(Clock())
    made.state.inbox += [
        ReceivedSignal("place", place(deployment(name=name), number).wire())
        for name, number in (("a", 1), ("b", 1), ("a", 2))
    ]
    read(made)
    assert [
        (waiting.name, waiting.request_id[-1]) for waiting in made.state.queue.values()
    ] == [("b", "1"), ("a", "2")]


POOLS = [{"name": "p", "nodes": 2, "devices": []}]


def test_a_deployment_requests_again_when_its_pool_is_gone() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    resyncs = []
    other = {**POOLS[0], "name": "q"}
    for number, pools in enumerate(([*POOLS, other], POOLS, [other], [])):
        name, report = reported(clock, number + 1, "another", "Admitted")
        report.manifest["status"]["gpuPools"] = pools
        cycle(made, (name, report))
        resyncs.append(list(made.resyncs))
        made.resyncs = {}
    assert resyncs == [[], [], [("ml", "m")], []]


def reported(
    clock: Clock, sequence: int, workload: str, state: str
) -> tuple[str, ReportCluster]:
    """Return a report of cluster `a` whose adapter saw a workload in this state."""
    seen = {"workload": workload, "state": state, "reason": "Preempted", "since": START}
    manifest = {
        "metadata": {"name": "a"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "gpuPools": POOLS,
            "capacity": {"observedAt": clock(), "admission": [seen]},
        },
    }
    return "report_cluster", ReportCluster(
        name="a", uid="u", sequence=sequence, manifest=manifest
    )


def test_an_evicted_deployment_requests_again_at_once_and_on_readmission() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    (entry,) = made.fleet.entries()
    ours = names.workload_name(entry.namespace, entry.name)
    resyncs = []
    for number, (workload, state) in enumerate(
        [
            (ours, "Admitted"),
            (ours, "Evicted"),
            (ours, "Evicted"),
            (ours, "Admitted"),
            ("another", "Evicted"),
        ]
    ):
        cycle(made, reported(clock, number + 1, workload, state))
        resyncs.append(list(made.resyncs))
        made.resyncs = {}
    assert resyncs == [[], [("ml", "m")], [], [("ml", "m")], []]
    cycle(made, reported(clock, 9, ours, "Evicted"))
    # It waits for its nodes again, with a full timeout.
    assert made.next_timeout() == timedelta(minutes=15, seconds=1)


def test_packed_admissions_are_read_and_unreadable_ones_change_nothing() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    name, report = reported(clock, 1, "one", "Admitted")
    for sequence, packed in enumerate(
        (
            pack(share(report.manifest["status"]["capacity"]["admission"])),
            "no such text",
        )
    ):
        manifest = {
            "metadata": {"name": "a"},
            "status": {
                "capacity": {"observedAt": START, "admission": {"$packed": packed}}
            },
        }
        cycle(
            made,
            (
                name,
                report.model_copy(
                    update={"sequence": sequence + 1, "manifest": manifest}
                ),
            ),
        )
        assert [seen.workload for seen in made.fleet.clusters["a"].view.admission] == [
            "one"
        ]


def test_a_deployment_requests_again_after_the_admission_timeout() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    (entry,) = made.fleet.entries()
    seen = {
        "workload": names.workload_name(entry.namespace, entry.name),
        "state": "Pending",
        "reason": "Gated",
        "since": START,
    }
    manifest = {
        "metadata": {"name": "a"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "gpuPools": POOLS,
            "capacity": {"observedAt": START, "admission": [seen]},
        },
    }
    cycle(
        made,
        (
            "report_cluster",
            ReportCluster(name="a", uid="u", sequence=1, manifest=manifest),
        ),
    )
    assert made.next_timeout() == timedelta(minutes=15, seconds=1)
    assert not made.resyncs
    clock.ms += 15 * MINUTE
    cycle(made)
    assert not made.resyncs
    clock.ms += 1000
    cycle(made)
    assert list(made.resyncs) == [("ml", "m")]
    assert made.next_timeout() is None
    # The next run keeps the timeout.
    clock.ms = START
    assert reopened(carried(made), clock).next_timeout() == timedelta(
        minutes=15, seconds=1
    )


def test_an_update_in_an_overtaken_answer_is_ordered_again() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    before, after = (deployment(want=2, template=template) for template in ("v1", "v2"))
    cycle(made, ("place", place(before)))
    cycle(made, ("place", place(after, 2, as_ordered(made))))
    ordered = [entry.template for entry in made.fleet.entries()]
    assert sorted(ordered) == ["v1", "v2"]
    # The order never arrived: both replicas are unchanged and Ready.
    cycle(made, ("place", place(after, 3, as_ordered(made, template="v1"))))
    assert [entry.template for entry in made.fleet.entries()] == ordered
    # The order arrived, and the replica became Ready again. The other one follows.
    cycle(made, ("place", place(after, 4, as_ordered(made))))
    assert [entry.template for entry in made.fleet.entries()] == ["v2", "v2"]


def test_an_undelivered_update_is_not_treated_as_done() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    before, after = (deployment(template=template) for template in ("v1", "v2"))
    cycle(made, ("place", place(before)))
    cycle(made, ("place", place(after, 2, as_ordered(made))))
    made.state.inbox.append(
        ReceivedSignal("place", place(after, 3, as_ordered(made, template="v1")).wire())
    )
    read(made)
    (waiting,) = made.state.queue.values()
    (placement,) = decide(made.fleet, [schedule_request(waiting)], made.now())[
        0
    ].placements
    assert placement.action == "Update"


def test_the_nodes_of_old_pods_are_free_when_their_replica_is_ready_with_its_template() -> (
    None
):
    made = cache_with(Clock(), cluster("a", 2))
    before = deployment(engine(copies=2), template="v1")
    after = deployment(engine(copies=1), template="v2")
    cycle(made, ("place", place(before)))
    cycle(made, ("place", place(after, 2, as_ordered(made))))
    assert cycle(made, ("place", place(deployment(name="other")))) == ["other"]

    def free_after(number: int, view: DeploymentView, **known: Any) -> int:
        kept = as_ordered(made, **known)
        kept = [each for each in kept if made.fleet.owned("ml", "m").get(each.uid)]
        made.state.inbox.append(
            ReceivedSignal("place", place(view, number, kept).wire())
        )
        read(made)
        return made.fleet.free("a")["p"]

    assert free_after(3, after, ready=False) == 0
    # This request was sent before the update arrived, so the old pods are Ready.
    assert free_after(4, after, template="v1") == 0
    assert free_after(5, before, template="v1") == 0
    made = reopened(carried(made), Clock())
    assert free_after(6, after, template="v2") == 1
    assert [request.name for request in made.state.queue.values()] == ["m", "other"]


def test_an_eviction_in_an_overtaken_answer_is_decided_again() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    cycle(made, ("place", place(deployment(want=2))))
    cycle(made, ("place", place(deployment(want=1), 2, as_ordered(made))))
    assert sorted(entry.state for entry in made.fleet.entries()) == [
        RELEASING,
        RESERVED,
    ]
    made.state.inbox.append(
        ReceivedSignal("place", place(deployment(want=1), 3, as_ordered(made)).wire())
    )
    read(made)
    (waiting,) = made.state.queue.values()
    assert (
        len(decide(made.fleet, [schedule_request(waiting)], made.now())[0].evictions)
        == 1
    )
    # The replica is wanted again, so both stay.
    cycle(made, ("place", place(deployment(want=2), 4, as_ordered(made))))
    assert RELEASING not in {entry.state for entry in made.fleet.entries()}


def test_a_replica_released_before_its_start_is_revoked_across_runs() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    cycle(made, ("place", place(deployment(want=2))))
    cycle(made, ("place", place(deployment(want=1), 2)))
    again = reopened(carried(made), clock)
    assert again.reservations.expired(clock()) == []
    clock.ms += 11 * MINUTE
    expired = again.reservations.expired(clock())
    assert sorted(entry.state for entry in expired) == [RELEASING, RESERVED]
    (leaving,) = (entry for entry in expired if entry.state == RELEASING)
    cycle(
        again, ("revoked", Revoked(uid=leaving.uid, deployment_uid=leaving.origin[0]))
    )
    assert [entry.state for entry in again.reservations.expired(clock())] == [RESERVED]


def a_report(uid: str, sequence: int, nodes: int) -> tuple[str, ReportCluster]:
    """Return a report of cluster `a` from an object with this uid."""
    pools = [{"name": "p", "nodes": nodes, "devices": []}]
    conditions = [{"type": "Ready", "status": "True"}]
    manifest = {
        "metadata": {"name": "a", "uid": uid},
        "status": {"conditions": conditions, "gpuPools": pools},
    }
    return "report_cluster", ReportCluster(
        name="a", uid=uid, sequence=sequence, manifest=manifest
    )


def nodes_of(made: SchedulerCache) -> int:
    view = made.fleet.cluster("a")
    return sum(pool.nodes for pool in view.pools) if view else 0


def test_a_recreated_cluster_starts_fresh_once_its_own_report_confirms_it() -> None:
    made = cache_with(Clock())
    cycle(made, a_report("first", 9, 10))
    cycle(made, a_report("second", 1, 2))
    assert (nodes_of(made), list(made.state.unresponsive)) == (
        10,
        ["inferencecluster/a"],
    )
    # Its account names the current uid.
    made.clusters.settle("a", "second")
    cycle(made, a_report("second", 1, 2))
    assert nodes_of(made) == 2
    cycle(made, a_report("first", 10, 10))
    assert nodes_of(made) == 2


def test_a_late_request_changes_nothing() -> None:
    made = cache_with(Clock(), cluster("a", 9))
    view = deployment(want=1)
    cycle(made, ("place", place(view, 2, sequence=2)))
    assert cycle(made, ("place", place(deployment(want=5), 1, sequence=1))) == []
    assert len(list(made.fleet.entries())) == 1


ACCOUNT = {
    "namespace": "ml",
    "deployment": "m",
    "name": "m",
    "cluster": "a",
    "index": 0,
}


def test_a_missing_deployment_holds_no_capacity_once_its_replicas_are_checked() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made, ("place", place(deployment())))
    (entry,) = made.fleet.entries()
    made.forget_owner("ml", "m")
    (doubt,) = made.verification.due(made.now())
    facts = made.verification.facts([doubt], {}, [], made.now())
    cycle(
        made,
        *(
            (message.name, Released.model_validate(message.payload))
            for message in facts.messages
        ),
    )
    assert (facts.present, list(made.fleet.entries())) == ([], [])
    # A started replica keeps its nodes.
    cycle(made, ("place", place(deployment(), 2)))
    (entry,) = made.fleet.entries()
    made.forget_owner("ml", "m")
    account = {**ACCOUNT, "uid": entry.uid, "entry": {"uid": entry.uid}}
    assert made.verification.facts(
        made.verification.due(made.now()), {doubt.workflow_id: account}, [], made.now()
    ).present == [entry.uid]


def test_a_silent_deployment_is_queried_about_its_reservation_ever_more_rarely() -> (
    None
):
    clock = Clock()
    made = cache_with(clock, cluster("a", 1))
    cycle(made, ("place", place(deployment())))
    asked: list[int] = []
    for minute in range(240):
        clock.ms = START + minute * MINUTE
        expired = made.reservations.expired(clock())
        made.reservations.asked((entry.uid for entry in expired), clock())
        asked += [minute] * len(expired)
        # Other messages do not cause another query.
        assert made.reservations.expired(clock()) == []
    assert asked == [10, 20, 40, 80, 160]


def test_a_replica_reported_after_its_nodes_were_freed_is_charged_and_checked() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made, ("place", place(deployment())))
    (entry,) = made.fleet.entries()
    cycle(made, ("released", Released(uid=entry.uid)))
    cycle(made, ("bound", Bound(entries={entry.uid: to_wire(entry)})))
    assert [found.state for found in made.fleet.entries()] == [RELEASING]
    assert [doubt.uid for doubt in made.verification.due(made.now())] == [entry.uid]
