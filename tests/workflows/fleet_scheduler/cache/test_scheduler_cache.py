"""The scheduler's cache alone: what each message changes, and which requests are decided again because of it. No server is needed."""

import uuid
from datetime import timedelta
from typing import Any

import pytest

from api_types import names
from api_types.errors import StaleSnapshot
from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import KnownReplica, Released, ReportClass, ReportCluster, Revoked, SetPolicy
from api_types.packing import unpack
from scheduler.decide import decide
from scheduler.fleet import snapshot
from scheduler.fleet.decision_state import decision_state
from scheduler.fleet.ledger_rows import unpack_rows
from scheduler.model.policy import PlacementPolicy, TopologySpread
from scheduler.model.reasons import RELEASING, RESERVED
from tests.scheduler.builders import cluster, deployment, engine
from tests.workflows.fleet_scheduler.cycle import LOG, run_cycle
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache import cache_registry, carry_over
from workflows.fleet_scheduler.cache.carry_over import CacheVersion, PackedFleet, audit_ledger, newest_answers, pack_cache
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import ReceivedSignal, SchedulerState
from workflows.fleet_scheduler.decide_activity import schedule_request
from workflows.fleet_scheduler.inbox import READ_AT_ONCE, Inbox
from workflows.fleet_scheduler.outgoing import PLACEMENTS_AT_ONCE, batches

START = 1_700_000_000_000
MINUTE = 60_000


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms


def cache_with(clock: Clock, *views: Any, policy: dict[str, Any] | None = None) -> SchedulerCache:
    made = SchedulerCache(SchedulerState(), clock)
    for view in views:
        made.fleet.put_cluster(view)
    if policy:
        made.state.inbox.append(ReceivedSignal("set_policy", SetPolicy(policy=policy).wire()))
    return made


def read(made: SchedulerCache) -> bool:
    return Inbox(made, LOG).read()


def cycle(made: SchedulerCache, *orders: tuple[str, Any]) -> list[str]:
    """Take messages in and decide everything that waits, as the workflow does; gives who was decided about."""
    return [request.name for request in run_cycle(made, *((kind, order.wire()) for kind, order in orders))]


def test_sch_18_4_10_requests_behind_a_queue_reservation_are_decided_again_when_it_expires() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 1), policy={"queueOrder": "StrictOrder", "holdForSeconds": 300})
    cycle(made)
    big, small = deployment(engine(copies=4), name="big"), deployment(name="small")
    assert cycle(made, ("place", place(big)), ("place", place(small))) == ["big", "small"]
    assert made.next_queue_reservation_expiry() == timedelta(minutes=5, milliseconds=1)
    clock.ms += 4 * MINUTE
    assert cycle(made) == []
    clock.ms += MINUTE + 1
    assert cycle(made) == ["big", "small", "big"], "the end of a reservation is a change for its owner too"
    assert [entry.deployment for entry in made.fleet.entries()] == ["small"]
    assert made.next_queue_reservation_expiry() is None


def test_sch_18_4_10_a_queue_reservation_ends_with_its_deployment_and_is_carried_over() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 1), policy={"queueOrder": "StrictOrder"})
    cycle(made)
    cycle(made, ("place", place(deployment(engine(copies=4), name="big"))))
    assert snapshot.load(snapshot.dump(made.fleet)).queue_reservations == made.fleet.queue_reservations
    made.state.inbox.append(ReceivedSignal("forget", {"kind": "ModelDeployment", "namespace": "ml", "name": "big", "uid": "u"}))
    assert cycle(made, ("place", place(deployment(name="small")))) == ["small"]
    assert made.next_queue_reservation_expiry() is None
    assert [entry.deployment for entry in made.fleet.entries()] == ["small"]


def carried(made: SchedulerCache) -> SchedulerState:
    """Carry a cache over to the next run, the way the workflow does, through JSON."""
    run_id = uuid.uuid4().hex
    cache_registry.register(run_id, made)
    packed = pack_cache(CacheVersion(run_id=run_id, version=made.fleet.version))
    state = made.carried(PackedFleet.model_validate_json(packed.model_dump_json(by_alias=True)))
    return SchedulerState.model_validate_json(state.model_dump_json(by_alias=True))


def reopened(state: SchedulerState, clock: Clock) -> SchedulerCache:
    made = SchedulerCache(state, clock)
    while made.parts_left:
        made.read_part()
    return made


def test_sch_14_everything_is_carried_over_to_the_next_run() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 1), cluster("b", 1), policy={"priorityClasses": {"high": 5}})
    cycle(made)
    cycle(made, ("place", place(deployment(want=3))), ("report_class", ReportClass(name="h100", generation=7, spec={})))
    made.answers.record("one", {"epoch": 3})
    made.state.unresponsive = {"modelreplica/ml/lost": "b"}
    made.state.deleting_clusters = {"b": ["ml/x"]}
    made.state.inbox.append(ReceivedSignal("released", {"uid": "later"}))
    kept = made.carried_extras()
    entries = sorted(made.fleet.entries(), key=lambda entry: entry.uid)
    state = carried(made)
    assert (state.inbox, state.unplaced, state.clusters) == ([], {}, {})
    again = reopened(state, clock)
    assert again.carried_extras() == kept
    assert sorted(again.fleet.entries(), key=lambda entry: entry.uid) == entries
    assert again.fleet.options == made.fleet.options
    assert (list(again.unbound), again.state.inbox) == ([entry.uid for entry in entries], [("released", {"uid": "later"})])
    assert not again.state.rebuild


def test_sch_14_a_cache_that_does_not_fit_is_rebuilt_and_the_policy_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 1), policy={"profile": "dense"})
    cycle(made)
    made.state.inbox.append(ReceivedSignal("released", {"uid": "later"}))
    monkeypatch.setattr(carry_over, "CARRIED_CHARACTERS_MAX", 10)
    again = reopened(carried(made), clock)
    assert again.state.rebuild
    assert (list(again.fleet.clusters), again.fleet.options.profile) == ([], "dense")
    assert again.state.inbox == [("released", {"uid": "later"})]


def test_sch_14_the_newest_answers_are_carried_as_far_as_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry_over, "ANSWERS_CHARACTERS_MAX", 2_000)
    answers = {f"request-{i}": {"uid": uuid.UUID(int=i * 7919**9 % 2**128).hex} for i in range(200)}
    kept = unpack(newest_answers(answers))
    assert list(kept) == list(answers)[-len(kept) :]
    assert 0 < len(kept) < len(answers)


def test_sch_14_reading_another_cache_or_version_than_the_wanted_one_is_refused() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cache_registry.register("run-1", made)
    assert audit_ledger(CacheVersion(run_id="run-1", version=made.fleet.version)) == []
    for version in (CacheVersion(run_id="run-1", version=made.fleet.version + 1), CacheVersion(run_id="run-2", version=made.fleet.version)):
        with pytest.raises(StaleSnapshot, match="is not in this process"):
            pack_cache(version)


def test_sch_9_2_a_recount_finds_what_was_charged_wrongly() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    cache_registry.register("run-3", made)
    made.fleet.ledger._charged_nodes._used["a"]["p"] = 2
    assert audit_ledger(CacheVersion(run_id="run-3", version=made.fleet.version)) == ["a/p: 2 nodes charged, 1 by recount"]


def test_the_ledger_is_read_in_pages_that_are_one_account() -> None:
    made = cache_with(Clock(), cluster("a", 5))
    cycle(made, ("place", place(deployment(want=5))))
    uids = sorted(entry.uid for entry in made.fleet.entries())
    page = made.ledger_page(uids[1])
    assert [entry.uid for entry in unpack_rows(unpack(page["entries"]))] == uids[2:]
    assert (page["version"], page["after"], "state" in page) == (made.fleet.version, "", False)
    assert unpack(made.ledger_page("")["state"]) == decision_state(made.fleet)


def test_large_answers_are_sent_in_batches_in_order() -> None:
    requests = [
        SignalRequest(workflow_id=f"w{i}", signal="placed", payload={"placements": [{}] * size})
        for i, size in enumerate((300, 300, 300, 900, 1))
    ]
    sent = list(batches(requests))
    assert [[request.workflow_id for request in part] for part in sent] == [["w0", "w1"], ["w2"], ["w3"], ["w4"]]
    assert PLACEMENTS_AT_ONCE == 800
    assert list(batches([])) == []


US, EU = {"region": "us"}, {"region": "eu"}


@pytest.mark.parametrize(
    ("wants", "requeued"),
    [
        ({"match_labels": US}, ["waits"]),
        ({"match_labels": EU}, []),
        ({}, ["waits"]),
        ({"match_labels": EU, "policy": PlacementPolicy(topology_spread=(TopologySpread("region"),))}, ["waits"]),
    ],
    ids=["same labels", "other labels", "no labels", "a rule that counts elsewhere"],
)
def test_sch_14_only_requests_whose_answer_can_change_are_decided_again(wants: dict[str, Any], requeued: list[str]) -> None:
    made = cache_with(Clock(), cluster("a", 1, labels=US), cluster("b", 1, labels=EU))
    cycle(made, *(("place", place(deployment(name=name, match_labels=labels))) for name, labels in (("u", US), ("e", EU))))
    assert cycle(made, ("place", place(deployment(name="waits", want=3, **wants)))) == ["waits"]
    assert cycle(made, ("released", Released(uid=next(iter(made.fleet.owned("ml", "u")))))) == requeued


def test_sch_14_a_request_that_waits_to_grow_is_decided_again_when_its_own_cluster_has_capacity() -> None:
    made = cache_with(Clock(), cluster("a", 2, labels=US))
    cycle(made, *(("place", place(deployment(name=name, match_labels=US))) for name in ("grows", "other")))
    made.fleet.put_cluster(cluster("a", 2, labels=EU))
    grown = deployment(engine(copies=2), name="grows", match_labels=US, template="v2")
    assert cycle(made, ("place", place(grown, 2))) == ["grows"]
    assert cycle(made, ("released", Released(uid=next(iter(made.fleet.owned("ml", "other")))))) == ["grows"]
    assert cycle(made) == []


def test_sch_14_a_quota_that_is_used_less_affects_all_requests() -> None:
    quota = {"namespace": "ml", "maxNodes": 1}
    made = cache_with(Clock(), cluster("a", 1, labels=US), cluster("b", 1, labels=EU), policy={"quotas": [quota]})
    cycle(made)
    cycle(made, ("place", place(deployment(name="u", match_labels=US))), ("place", place(deployment(name="e", match_labels=EU))))
    assert cycle(made, ("released", Released(uid=next(iter(made.fleet.owned("ml", "u")))))) == ["e"]


def test_many_messages_are_read_a_bounded_number_at_once_in_order() -> None:
    made = cache_with(Clock())
    made.state.inbox += [ReceivedSignal("place", place(deployment(name=f"d{i}")).wire()) for i in range(READ_AT_ONCE + 10)]
    assert read(made)
    assert len(made.state.queue) == READ_AT_ONCE
    assert not read(made)
    assert list(made.state.queue) == [f"ml/d{i}" for i in range(READ_AT_ONCE + 10)]


def test_a_newer_request_takes_the_place_of_the_older_at_the_end_of_the_queue() -> None:
    made = cache_with(Clock())
    made.state.inbox += [
        ReceivedSignal("place", place(deployment(name=name), number).wire()) for name, number in (("a", 1), ("b", 1), ("a", 2))
    ]
    read(made)
    assert [(waiting.name, waiting.request_id[-1]) for waiting in made.state.queue.values()] == [("b", "1"), ("a", "2")]


def reported(clock: Clock, sequence: int, workload: str, state: str) -> tuple[str, ReportCluster]:
    """A report of cluster `a` whose adapter saw a workload so."""
    seen = {"workload": workload, "state": state, "reason": "Preempted", "since": START}
    manifest = {
        "metadata": {"name": "a"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"observedAt": clock(), "admission": [seen]}},
    }
    return "report_cluster", ReportCluster(name="a", uid="u", sequence=sequence, manifest=manifest)


def test_sch_18_5_4_an_evicted_deployment_asks_again_at_once_and_when_it_is_readmitted() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    (entry,) = made.fleet.entries()
    ours = names.workload_name(entry.namespace, entry.name)
    resyncs = []
    for number, (workload, state) in enumerate(
        [(ours, "Admitted"), (ours, "Evicted"), (ours, "Evicted"), (ours, "Admitted"), ("another", "Evicted")]
    ):
        cycle(made, reported(clock, number + 1, workload, state))
        resyncs.append(list(made.resyncs))
        made.resyncs = {}
    assert resyncs == [[], [("ml", "m")], [], [("ml", "m")], []]
    cycle(made, reported(clock, 9, ours, "Evicted"))
    # It waits for its nodes again, and as long as others may.
    assert made.next_timeout() == timedelta(minutes=15, seconds=1)


def test_sch_18_5_4_a_deployment_that_waits_too_long_for_admission_asks_again() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    (entry,) = made.fleet.entries()
    seen = {"workload": names.workload_name(entry.namespace, entry.name), "state": "Pending", "reason": "Gated", "since": START}
    manifest = {
        "metadata": {"name": "a"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"observedAt": START, "admission": [seen]}},
    }
    cycle(made, ("report_cluster", ReportCluster(name="a", uid="u", sequence=1, manifest=manifest)))
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
    assert reopened(carried(made), clock).next_timeout() == timedelta(minutes=15, seconds=1)


def as_ordered(made: SchedulerCache, **changes: Any) -> list[KnownReplica]:
    """The replicas as a deployment reports them that carried out its answers, but for the changes."""
    return [KnownReplica(uid=e.uid, template=e.template, ready=True, serving=True).model_copy(update=changes) for e in made.fleet.entries()]


def test_wfl_4_an_update_in_an_answer_that_was_overtaken_is_ordered_again() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    before, after = (deployment(want=2, template=template) for template in ("v1", "v2"))
    cycle(made, ("place", place(before)))
    cycle(made, ("place", place(after, 2, as_ordered(made))))
    ordered = [entry.template for entry in made.fleet.entries()]
    assert sorted(ordered) == ["v1", "v2"]
    # The order never arrived: both replicas are as they were, and Ready.
    cycle(made, ("place", place(after, 3, as_ordered(made, template="v1"))))
    assert [entry.template for entry in made.fleet.entries()] == ordered
    # It arrived, and the replica came back Ready: the other one follows.
    cycle(made, ("place", place(after, 4, as_ordered(made))))
    assert [entry.template for entry in made.fleet.entries()] == ["v2", "v2"]


def test_wfl_4_an_update_that_never_arrived_is_not_taken_for_done() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    before, after = (deployment(template=template) for template in ("v1", "v2"))
    cycle(made, ("place", place(before)))
    cycle(made, ("place", place(after, 2, as_ordered(made))))
    made.state.inbox.append(ReceivedSignal("place", place(after, 3, as_ordered(made, template="v1")).wire()))
    read(made)
    (waiting,) = made.state.queue.values()
    (placement,) = decide(made.fleet, [schedule_request(waiting)], made.now())[0].placements
    assert placement.action == "Update"


def test_wfl_4_an_eviction_in_an_answer_that_was_overtaken_is_decided_again() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    cycle(made, ("place", place(deployment(want=2))))
    cycle(made, ("place", place(deployment(want=1), 2, as_ordered(made))))
    assert sorted(entry.state for entry in made.fleet.entries()) == [RELEASING, RESERVED]
    made.state.inbox.append(ReceivedSignal("place", place(deployment(want=1), 3, as_ordered(made)).wire()))
    read(made)
    (waiting,) = made.state.queue.values()
    assert len(decide(made.fleet, [schedule_request(waiting)], made.now())[0].evictions) == 1
    # Wanted again meanwhile: both stay.
    cycle(made, ("place", place(deployment(want=2), 4, as_ordered(made))))
    assert RELEASING not in {entry.state for entry in made.fleet.entries()}


def test_wfl_4_a_replica_that_was_released_before_it_was_started_is_revoked_across_runs() -> None:
    clock = Clock()
    made = cache_with(clock, cluster("a", 2))
    cycle(made, ("place", place(deployment(want=2))))
    made.unbound = dict.fromkeys(entry.uid for entry in made.fleet.entries())
    cycle(made, ("place", place(deployment(want=1), 2)))
    again = reopened(carried(made), clock)
    assert again.expired_reservations() == []
    clock.ms += 11 * MINUTE
    assert sorted(entry.state for entry in again.expired_reservations()) == [RELEASING, RESERVED]
    (leaving,) = (entry for entry in again.expired_reservations() if entry.state == RELEASING)
    cycle(again, ("revoked", Revoked(uid=leaving.uid)))
    assert [entry.state for entry in again.expired_reservations()] == [RESERVED]
