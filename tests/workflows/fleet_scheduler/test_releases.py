"""The messages about a released replica, a deployment that may end and an empty
cluster, and the charges until then.

These tests need no server.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from api_types.digests import content_hash
from api_types.limits import UNKNOWN_REPLICAS_MAX
from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import (
    Bound,
    Forget,
    KnownReplica,
    Released,
    ReplicaAccount,
)
from api_types.names import workflow_id
from scheduler import LedgerEntry, to_wire
from scheduler.model.policy import PlacementPolicy
from scheduler.model.reasons import BOUND, RELEASING, RESERVED
from tests.scheduler.builders import cluster, deployment
from tests.workflows.environment.protocol_fleet import ReportedCluster
from tests.workflows.fleet_scheduler.cache.builders import (
    Clock,
    as_ordered,
    cache_with,
    carried,
    cycle,
    reopened,
)
from tests.workflows.fleet_scheduler.cycle import LOG
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import HOLDS_OTHERS_MS
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.orders import SendSchedulerSignals
from workflows.fleet_scheduler.rebuild.accounts import Accounts, PackedAccounts
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption

HIGH = {"priorityClasses": {"high": 9}}


def controller_of(made: SchedulerCache) -> SchedulerController:
    return SchedulerController(made, Inbox(made, LOG), LOG)


def due(made: SchedulerCache) -> list[SignalRequest]:
    return [
        signal
        for order in controller_of(made).due()
        if isinstance(order, SendSchedulerSignals)
        for signal in order.signals
    ]


def sent(made: SchedulerCache, name: str) -> list[tuple[str, Any]]:
    return [
        (signal.workflow_id, signal.payload)
        for signal in due(made)
        if signal.signal == name
    ]


def one_started(made: SchedulerCache) -> LedgerEntry:
    """Place one replica and report its start."""
    cycle(made, ("place", place(deployment())))
    started(made)
    (entry,) = made.fleet.entries()
    return entry


def by_owner(made: SchedulerCache) -> dict[str, LedgerEntry]:
    return {entry.deployment: entry for entry in made.fleet.entries()}


def started(made: SchedulerCache) -> None:
    """Report the start of every placed replica."""
    cycle(
        made,
        (
            "bound",
            Bound(
                entries={entry.uid: to_wire(entry) for entry in made.fleet.entries()}
            ),
        ),
    )


def preempted(by: str = "ml") -> tuple[SchedulerCache, LedgerEntry]:
    """Return one node whose replica was preempted by a deployment in the namespace `by`."""
    made = cache_with(Clock(), cluster("a", 1), policy=HIGH)
    cycle(made, ("place", place(deployment(name="low"))))
    started(made)
    policy = PlacementPolicy(priority_class="high", preemption="LowerPriority")
    cycle(made, ("place", place(deployment(name="high", namespace=by, policy=policy))))
    owned = by_owner(made)
    assert (owned["low"].state, owned["high"].state) == (RELEASING, RESERVED)
    return made, owned["low"]


def test_a_preempting_deployment_is_told_when_the_victim_is_gone() -> None:
    made, victim = preempted()
    cycle(made, ("released", Released(uid=victim.uid)))
    # This holds even if the scheduler's run ends before it has sent the message.
    made = reopened(carried(made), Clock())
    assert sent(made, "released") == [
        ("modeldeployment/ml/high", Released(uid=victim.uid).wire())
    ]
    assert sent(made, "released") == []


@pytest.mark.parametrize(
    ("by", "who"), [("ml", "ml/high"), ("others", "a deployment of another namespace")]
)
def test_a_victim_is_told_its_preemptor_if_both_share_a_namespace(
    by: str, who: str
) -> None:
    made, victim = preempted(by)
    # The deployment did not receive the first order, and lists the replica again.
    cycle(
        made,
        (
            "place",
            place(
                deployment(name="low"),
                2,
                [KnownReplica(uid=victim.uid, name=victim.name, cluster="a")],
            ),
        ),
    )
    ((receiver, evicted),) = sent(made, "evict")
    assert (receiver, evicted["eviction"]["reason"]) == (
        "modeldeployment/ml/low",
        f"preempted by {who}",
    )


def test_waiting_requests_are_decided_again_when_a_protection_ends() -> None:
    made = cache_with(Clock(), cluster("a", 1), policy=HIGH)
    cycle(
        made,
        (
            "place",
            place(deployment(name="low", policy=PlacementPolicy(min_available=1))),
        ),
    )
    started(made)
    high = deployment(
        name="high",
        policy=PlacementPolicy(priority_class="high", preemption="LowerPriority"),
    )
    cycle(made, ("place", place(high)))
    assert by_owner(made).keys() == {"low"}
    kept = KnownReplica(
        uid=by_owner(made)["low"].uid, name=by_owner(made)["low"].name, cluster="a"
    )
    edited = place(deployment(name="low"), 2, [kept])
    cycle(made, ("place", edited))
    cycle(made)
    assert by_owner(made).keys() == {"low", "high"}


def test_an_edit_protects_replicas_from_a_request_decided_before_it() -> None:
    made = cache_with(Clock(), cluster("a", 1), policy=HIGH)
    cycle(made, ("place", place(deployment(name="low"))))
    started(made)
    low = by_owner(made)["low"]
    edited = deployment(name="low", policy=PlacementPolicy(min_available=1))
    high = deployment(
        name="high",
        policy=PlacementPolicy(priority_class="high", preemption="LowerPriority"),
    )
    kept = KnownReplica(uid=low.uid, name=low.name, cluster="a")
    assert cycle(made, ("place", place(high)), ("place", place(edited, 2, [kept]))) == [
        "high",
        "low",
    ]
    assert by_owner(made).keys() == {"low"}


def test_no_deployment_is_told_of_a_replica_that_none_waits_for() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    cycle(made, ("place", place(deployment(want=2))))
    started(made)
    first, _ = made.fleet.entries()
    cycle(made, ("released", Released(uid=first.uid)))
    assert sent(made, "released") == []


def test_a_started_replica_is_charged_in_full_whatever_it_waited_for() -> None:
    """Its entry says that it reuses a node.

    A node of another replica of its deployment would therefore count as free.
    """
    made, _ = preempted()
    successor = by_owner(made)["high"]
    assert successor.reuse
    lost = cache_with(Clock(), cluster("a", 3))
    cycle(lost, ("bound", Bound(entries={successor.uid: to_wire(successor)})))
    assert by_owner(lost)["high"].reuse == ()
    made.fleet.bind(successor.uid)
    assert (by_owner(made)["high"].state, by_owner(made)["high"].reuse) == (BOUND, ())
    account = ReplicaAccount(
        uid=successor.uid,
        namespace="ml",
        deployment="high",
        name=successor.name,
        cluster="a",
        index=0,
        entry=to_wire(successor),
    )
    read = Accounts()
    read.add("modelreplica/ml/high", account.wire())
    assert [entry.reuse for entry in read.entries.values()] == [()]


def test_a_started_replica_is_charged_in_full_though_it_was_released_before_its_report() -> (
    None
):
    made, _ = preempted()
    successor = by_owner(made)["high"]
    made.fleet.put_replica(successor.as_releasing(made.now()))
    cycle(made, ("bound", Bound(entries={successor.uid: to_wire(successor)})))
    assert (by_owner(made)["high"].state, by_owner(made)["high"].reuse) == (
        RELEASING,
        (),
    )


def test_a_late_bound_message_does_not_start_a_deleted_replica() -> None:
    """A scheduler that lost its state does not know that the replica is gone.

    The deployment would start it again, on nodes that are free by then.
    """
    made = cache_with(Clock(), cluster("a", 2))
    entry = to_wire(one_started(made))
    lost = cache_with(Clock(), cluster("a", 2))
    asked = place(deployment(), 2)
    assert (
        cycle(lost, ("place", asked), ("bound", Bound(entries={entry["uid"]: entry})))
        == []
    )
    (doubt,) = lost.verification.due(lost.now())
    controller_of(lost).checked([doubt], {}, [])
    assert cycle(lost) == ["m"]
    assert [
        placement["action"]
        for placement in lost.answers[asked.request_id]["placements"]
    ] == ["Create"]


def test_a_replica_with_promised_nodes_is_evicted_again_if_its_deployment_missed_the_order() -> (
    None
):
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made, ("place", place(deployment(template="v1"))))
    started(made)
    (entry,) = made.fleet.entries()
    made.fleet.put_replica(entry.as_releasing(1))
    cycle(made, ("place", place(deployment(template="v1"), 2)))
    successor = next(found for found in made.fleet.entries() if found.state == RESERVED)
    assert successor.reuse
    kept = [each for each in as_ordered(made) if each.uid == entry.uid]
    cycle(made, ("place", place(deployment(template="v1"), 3, kept)))
    found = made.fleet.replica(entry.uid)
    assert found is not None
    assert found.state == RELEASING
    assert [payload["eviction"]["uid"] for _, payload in sent(made, "evict")] == [
        entry.uid
    ]


# Deployments that end


def forget(name: str = "m", **fields: Any) -> tuple[str, Forget]:
    known = {
        "kind": "ModelDeployment",
        "namespace": "ml",
        "name": name,
        "uid": deployment(name=name).uid,
        **fields,
    }
    return "forget", Forget(**known)


def test_a_deployment_may_end_only_when_nothing_is_charged_to_it() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made, ("place", place(deployment())))
    started(made)
    (entry,) = made.fleet.entries()
    cycle(made, forget(gone=True))
    assert sent(made, "forgotten") == []
    # Its workflow answers that it exists, so the deployment must delete it. The
    # scheduler's next run still knows that.
    made = reopened(carried(made), Clock())
    (doubt,) = made.verification.due(made.now())
    account = ReplicaAccount(
        uid=entry.uid,
        namespace="ml",
        deployment="m",
        name=entry.name,
        cluster="a",
        index=0,
        entry=to_wire(entry),
    ).wire()
    controller_of(made).checked([doubt], {doubt.workflow_id: account}, [])
    made = reopened(carried(made), Clock())
    ((receiver, evicted),) = sent(made, "evict")
    assert (receiver, evicted["eviction"]["entry"]["uid"]) == (
        "modeldeployment/ml/m",
        entry.uid,
    )
    cycle(made, ("released", Released(uid=entry.uid)))
    assert [
        (receiver, payload["uid"]) for receiver, payload in sent(made, "forgotten")
    ] == [("modeldeployment/ml/m", deployment().uid)]
    assert sent(made, "forgotten") == []


@pytest.mark.parametrize(
    "before", [False, True], ids=["of this scheduler", "of the one before"]
)
def test_deleting_a_deployment_frees_its_reservation_unless_a_start_report_may_be_lost(
    *, before: bool
) -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made, ("place", place(deployment())))
    (entry,) = made.fleet.entries()
    made.state.epoch = entry.since + int(before)
    cycle(made, forget())
    assert ([*made.fleet.entries()] == [], list(made.verification.doubts)) == (
        not before,
        [entry.uid] if before else [],
    )


def test_the_end_of_an_earlier_deployment_evicts_nothing_of_its_successor() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made, forget(gone=True, uid="earlier"))
    # Its own account shows which of the two exists, and it requests again.
    assert cycle(made, ("place", place(deployment()))) == []
    AccountAdoption(made, Inbox(made, LOG), LOG).adopt(
        PackedAccounts(deployments={"ml/m": deployment().uid})
    )
    made.state.unresponsive.clear()
    assert list(made.resyncs) == [("ml", "m")]
    assert cycle(made, ("place", place(deployment()))) == ["m"]
    assert made.state.deleting_deployments == {}
    cycle(made, forget(gone=True, uid="earlier"))
    assert (made.state.deleting_deployments, made.verification.doubts) == ({}, {})


def test_the_end_of_an_unknown_deployment_waits_for_its_account() -> None:
    made = cache_with(Clock(), cluster("a", 1))
    cycle(made, ("place", place(deployment())))
    cycle(made, forget(gone=True, uid="another"))
    assert (made.state.deleting_deployments, list(made.state.unresponsive)) == (
        {},
        ["modeldeployment/ml/m"],
    )


# Clusters


def report(name: str, sequence: int = 1, **fields: Any) -> tuple[str, Any]:
    return "report_cluster", ReportedCluster(name, {"p": 2}).report(
        sequence
    ).model_copy(update=fields)


def test_a_cluster_with_an_unknown_replica_takes_no_placement_until_the_replica_answers() -> (
    None
):
    made = cache_with(Clock(), cluster("a", 2), cluster("c", 2))
    cycle(made, ("place", place(deployment(name="known"))))
    (known,) = made.fleet.entries()
    cycle(made, report("c", replicas=[f"ml/{known.name}", "ml/forgotten-1"]))
    asked = workflow_id("ModelReplica", "ml", "forgotten-1")
    assert made.state.unresponsive == {asked: ["c"]}
    view = made.fleet.cluster("c")
    assert view is not None
    assert not view.accounted
    # A replica whose workflow was terminated still answers, and its objects there are
    # charged.
    entry = to_wire(known) | {
        "uid": "f",
        "name": "forgotten-1",
        "deployment": "forgotten",
        "cluster": "c",
    }
    account = ReplicaAccount(
        uid="f",
        namespace="ml",
        deployment="forgotten",
        name="forgotten-1",
        cluster="c",
        index=0,
        entry=entry,
        started=True,
    )
    read = Accounts()
    read.add(asked, account.wire())
    AccountAdoption(made, Inbox(made, LOG), LOG).adopt(read.packed())
    del made.state.unresponsive[asked]
    cycle(made, report("c", 2, replicas=["ml/forgotten-1"]))
    assert (made.state.unresponsive, by_owner(made)["forgotten"].cluster) == ({}, "c")


@pytest.mark.parametrize("replica", ["", "ml", "ml/", "/x", "ml/x/y"])
def test_a_report_with_a_nameless_replica_changes_nothing(replica: str) -> None:
    made = cache_with(Clock())
    cycle(made, report("c", replicas=[replica]))
    assert (made.fleet.cluster("c"), made.state.unresponsive) == (None, {})


def test_a_cluster_that_invents_replicas_blocks_only_itself_and_fills_nothing() -> None:
    made = cache_with(Clock(), cluster("a", 2), cluster("c", 2))
    for number in range(3):
        cycle(
            made,
            report(
                "c",
                1 + number,
                replicas=[
                    f"ml/made-up-{number}-{index}"
                    for index in range(UNKNOWN_REPLICAS_MAX)
                ],
            ),
        )
    assert len(made.state.unresponsive) == UNKNOWN_REPLICAS_MAX
    assert {
        name: info.view.accounted for name, info in made.fleet.clusters.items()
    } == {"a": True, "c": False}
    said = (
        f"cluster c has objects of {UNKNOWN_REPLICAS_MAX} more replicas without a known "
        "ModelReplica"
    )
    assert [event.message.partition(":")[0] for event in made.state.events] == [said]
    # Answered entries make room for others.
    made.state.unresponsive.clear()
    cycle(made, report("c", 4, replicas=["ml/forgotten-1"]))
    assert made.state.unresponsive == {
        workflow_id("ModelReplica", "ml", "forgotten-1"): ["c"]
    }


@pytest.mark.slow
def test_a_cluster_that_invents_queues_fills_no_shared_state() -> None:
    made = cache_with(Clock(), cluster("a", 2))
    name, reported = report("c")
    reported.manifest["status"]["capacity"] = {
        "observedAt": 1,
        "queues": [{"name": "q", "tenants": ["modelplane-ml"] * 20_000}],
    }
    cycle(made, (name, reported))
    assert made.fleet.cluster("c") is not None, (
        "a long but compressible message is carried over"
    )
    reported.manifest["status"]["capacity"]["queues"] = [
        {"name": content_hash(number), "tenants": []} for number in range(20_000)
    ]
    cycle(made, (name, reported.model_copy(update={"sequence": 2})))
    view = made.fleet.cluster("c")
    assert view is not None
    assert [found.name for found in view.queues] == ["q"]
    assert "status.capacity: has" in made.state.events[-1].message


def test_a_deleted_cluster_is_not_told_that_it_is_empty_while_an_account_is_missing() -> (
    None
):
    made = cache_with(Clock())
    name, deleted = report("c")
    deleted.manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cycle(made, (name, deleted))
    made.state.unresponsive["modeldeployment/ml/m"] = []
    assert sent(made, "occupied") == []
    made.state.unresponsive.clear()
    assert [payload["replicas"] for _, payload in sent(made, "occupied")] == [[]]


def waiting(missing: str) -> tuple[SchedulerCache, Clock]:
    """Delete a deployment and a cluster while the account of another object is missing."""
    clock = Clock()
    made = cache_with(clock)
    delete_both(made)
    await_account(made, missing)
    return made, clock


def delete_both(made: SchedulerCache) -> None:
    name, deleted = report("c")
    deleted.manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cycle(made, (name, deleted))
    cycle(made, ("place", place(deployment())))
    cycle(made, forget(gone=True, uid=deployment().uid))


def await_account(made: SchedulerCache, missing: str) -> None:
    made.await_account(missing, ())
    AccountAdoption(made, Inbox(made, LOG), LOG).allow_accounted()


@pytest.mark.parametrize(
    ("missing", "held"),
    [("inferencecluster/x", "forgotten"), ("modeldeployment/ml/x", "occupied")],
)
def test_a_missing_account_delays_the_deletion_of_others_for_ten_minutes(
    missing: str, held: str
) -> None:
    made, clock = waiting(missing)
    assert held not in {signal.signal for signal in due(made)}
    assert controller_of(made).delay() == timedelta(milliseconds=HOLDS_OTHERS_MS)
    clock.ms += HOLDS_OTHERS_MS - 1
    following = reopened(carried(made), clock)
    AccountAdoption(following, Inbox(following, LOG), LOG).allow_accounted()
    assert held not in {signal.signal for signal in due(following)}
    clock.ms += 1
    assert held in {signal.signal for signal in due(following)}


def test_a_rebuild_restarts_the_time_limit_of_missing_accounts() -> None:
    made, clock = waiting("inferencecluster/x")
    clock.ms += HOLDS_OTHERS_MS
    made.forget_fleet()
    delete_both(made)
    await_account(made, "inferencecluster/x")
    assert "forgotten" not in {signal.signal for signal in due(made)}


def test_a_late_report_does_not_restore_a_deleted_cluster() -> None:
    made = cache_with(Clock())
    cycle(made, report("c", uid="second"))
    cycle(made, ("forget", Forget(kind="InferenceCluster", name="c", uid="second")))
    cycle(made, report("c", uid="first"))
    assert (made.fleet.cluster("c"), made.state.unresponsive) == (
        None,
        {"inferencecluster/c": ["c"]},
    )
    # The last known cluster says that it is gone. A successor that existed would answer
    # instead.
    read = Accounts()
    read.add("inferencecluster/c", report("c", uid="second", gone=True)[1].wire())
    AccountAdoption(made, Inbox(made, LOG), LOG).adopt(read.packed())
    del made.state.unresponsive["inferencecluster/c"]
    cycle(made, report("c", uid="second"))
    assert made.fleet.cluster("c") is None


def test_the_end_of_a_cluster_does_not_end_the_wait_for_its_successors_account() -> (
    None
):
    made = cache_with(Clock())
    cycle(made, report("c", uid="first"))
    # It was applied again, and this message overtook the end of the first cluster.
    cycle(
        made,
        report("c", uid="second"),
        ("forget", Forget(kind="InferenceCluster", name="c", uid="first")),
    )
    assert (made.fleet.cluster("c"), made.state.unresponsive) == (
        None,
        {"inferencecluster/c": ["c"]},
    )


@pytest.mark.parametrize("sequence", range(1, 7))
def test_an_answer_after_one_of_two_replicas_is_gone_starts_nothing_on_nodes_of_the_other(
    sequence: int,
) -> None:
    """The uids of the placements, and with them the order in the ledger, follow from
    the request.
    """
    made = cache_with(
        Clock(), cluster("a", 2), policy={**HIGH, "preemptionCooldownSeconds": 0}
    )
    cycle(made, ("place", place(deployment(name="low", want=2))))
    started(made)
    policy = PlacementPolicy(priority_class="high", preemption="LowerPriority")
    first = place(deployment(name="high", want=2, policy=policy), sequence)
    cycle(made, ("place", first))
    promised = {
        placement["uid"]: set(placement["after"])
        for placement in made.answers[first.request_id]["placements"]
    }
    early = min(promised.values(), key=len)
    assert sorted(map(len, promised.values())) == [1, 2]
    cycle(made, ("released", Released(uid=next(iter(early)))))
    again = place(
        deployment(name="high", want=2, policy=policy),
        sequence + 1,
        [KnownReplica(uid=uid) for uid in promised],
    )
    cycle(made, ("place", again))
    now = {
        placement["uid"]: set(placement["after"])
        for placement in made.answers[again.request_id]["placements"]
    }
    assert sorted(len(after & now[uid]) for uid, after in promised.items()) == [0, 1]


def test_a_deployment_is_informed_that_its_terminating_released_replica_is_gone() -> (
    None
):
    made = cache_with(Clock(), cluster("a", 2))
    cycle(made, ("place", place(deployment())))
    started(made)
    (entry,) = made.fleet.entries()
    cycle(made, ("released", Released(uid=entry.uid)))
    cycle(
        made,
        (
            "place",
            place(deployment(), 2, [KnownReplica(uid=entry.uid, terminating=True)]),
        ),
    )
    assert sent(made, "released") == [
        ("modeldeployment/ml/m", Released(uid=entry.uid).wire())
    ]


@pytest.mark.parametrize(
    ("state", "listed", "checked"),
    [
        (RELEASING, False, True),
        (RELEASING, True, False),
        (BOUND, False, False),
        (RESERVED, False, False),
    ],
    ids=[
        "unlisted and released",
        "listed",
        "unlisted and bound",
        "unlisted and reserved",
    ],
)
def test_a_terminating_replica_that_its_deployment_does_not_list_is_checked(
    *, state: str, listed: bool, checked: bool
) -> None:
    made = cache_with(Clock(), cluster("a", 2))
    entry = one_started(made)
    made.fleet.put_replica(replace(entry, state=state))
    kept = (
        [
            KnownReplica(
                uid=entry.uid, name=entry.name, cluster=entry.cluster, terminating=True
            )
        ]
        if listed
        else []
    )
    cycle(made, ("place", place(deployment(), 2, kept)))
    assert list(made.verification.doubts) == ([entry.uid] if checked else [])
