"""The scheduler's orders between two decisions, for each message and result, without a server."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from api_types.base import Message
from api_types.limits import POLICY_BYTES_MAX
from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import (
    Bound,
    DeploymentAccount,
    Forget,
    PlacementRequest,
    Released,
    ReplicaAccount,
    ReportClass,
    ReportCluster,
    SetPolicy,
)
from scheduler import LedgerEntry, reasons, to_wire
from tests.scheduler.builders import cluster, deployment
from tests.workflows.environment.protocol_fleet import ReportedCluster
from tests.workflows.fleet_scheduler.cycle import LOG, run_cycle
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState, Takeover
from workflows.fleet_scheduler.controller import RESYNCS_AT_ONCE, SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.orders import Announce, Order, SendSchedulerSignals
from workflows.fleet_scheduler.rebuild.accounts import Accounts
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption

START = 1_700_000_000_000
MINUTE = 60_000
DEPLOYMENT = "modeldeployment/ml/m"


class Scheduler:
    """A scheduler whose time a test sets and whose orders it reads."""

    def __init__(self, nodes: int = 1) -> None:
        self.ms = START
        self.cache = SchedulerCache(SchedulerState(), lambda: self.ms)
        self.controller = SchedulerController(self.cache, Inbox(self.cache, LOG), LOG)
        self.cache.fleet.put_cluster(cluster("a", nodes))

    def receive(self, name: str, message: Any) -> list[PlacementRequest]:
        return run_cycle(self.cache, (name, message.wire()))

    def place(
        self, number: int = 1, uid: str = "", **fields: Any
    ) -> list[PlacementRequest]:
        view = deployment(uid=uid) if uid else deployment()
        return self.receive("place", place(view, number, sequence=number, **fields))

    def read_account(
        self, workflow_id: str, account: Message, asked_at: int | None = None
    ) -> None:
        read = Accounts()
        read.add(workflow_id, account.wire())
        AccountAdoption(self.cache, Inbox(self.cache, LOG), LOG).adopt(
            read.packed(), asked_at
        )

    def due(self) -> list[SignalRequest]:
        return [signal for order in self.sends() for signal in order.signals]

    def sends(self) -> Iterator[SendSchedulerSignals]:
        orders: list[Order] = self.controller.due()
        yield from (
            order for order in orders if isinstance(order, SendSchedulerSignals)
        )

    @property
    def entries(self) -> list[LedgerEntry]:
        return list(self.cache.fleet.entries())


def account_of(entry: LedgerEntry) -> dict[str, Any]:
    """Return the account of the replica's own workflow."""
    named = {
        "namespace": "ml",
        "deployment": "m",
        "name": entry.name,
        "cluster": entry.cluster,
        "index": entry.index,
    }
    return {**named, "uid": entry.uid, "entry": to_wire(entry), "started": True}


@pytest.mark.parametrize(
    ("number", "epoch", "decided"),
    [(START - 1, 0, False), (START + 1, 0, True), (START - 1, START, True)],
    ids=[
        "made before",
        "made later",
        "made by a deployment that knows the scheduler, whatever its clock",
    ],
)
def test_a_request_older_than_the_scheduler_is_not_decided(
    number: int, epoch: int, decided: bool
) -> None:
    # An earlier scheduler may have decided it. The uids derived from it may belong to
    # deleted replicas.
    scheduler = Scheduler()
    scheduler.cache.state.epoch = START
    scheduler.place(number, epoch=epoch)
    assert (len(scheduler.entries), scheduler.cache.state.asked_again) == (
        (1, []) if decided else (0, [DEPLOYMENT])
    )


def test_the_later_of_two_answers_to_a_request_has_the_greater_number() -> None:
    scheduler = Scheduler()
    (request,) = scheduler.receive("place", place(deployment(want=2), sequence=1))
    first = scheduler.cache.answers[request.request_id]
    scheduler.cache.fleet.put_cluster(cluster("a", 2))
    scheduler.cache.hints.add_cluster("a")
    run_cycle(scheduler.cache)
    second = scheduler.cache.answers[request.request_id]
    assert [
        (answer.get("shortfall", 0), answer["sequence"]) for answer in (first, second)
    ] == [(1, START), (0, START + 1)]


def test_a_silent_deployment_is_queried_once_however_many_messages_arrive() -> None:
    scheduler = Scheduler()
    scheduler.place()
    scheduler.ms += 11 * MINUTE
    asked = []
    for number in range(100):
        scheduler.receive(
            "report_class", ReportClass(name="other", generation=number + 1, spec={})
        )
        asked += [signal.signal for signal in scheduler.due()]
    assert asked == ["revoke"]


def test_a_replica_released_unstarted_keeps_its_query_backoff() -> None:
    scheduler = Scheduler(nodes=2)
    scheduler.receive("place", place(deployment(want=2), 1, sequence=1))
    scheduler.receive("place", place(deployment(want=1), 2, sequence=2))
    (leaving,) = (
        entry for entry in scheduler.entries if entry.state == reasons.RELEASING
    )
    asked = []
    for minute in range(80):
        scheduler.ms = START + minute * MINUTE
        asked += [
            minute
            for signal in scheduler.due()
            if signal.signal == "revoke" and signal.payload["uid"] == leaving.uid
        ]
    assert asked == [10, 30, 70]


def test_a_missing_deployment_is_forgotten_with_its_request_and_gets_no_capacity() -> (
    None
):
    scheduler = Scheduler()
    # Its request waits for a second node.
    scheduler.receive("place", place(deployment(want=2), sequence=1))
    scheduler.receive("place", place(deployment(name="rival"), sequence=1))
    assert [
        (entry.deployment, len(scheduler.cache.state.unplaced))
        for entry in scheduler.entries
    ] == [("m", 2)]
    for _ in range(3):
        scheduler.ms += 11 * MINUTE
        for order in scheduler.sends():
            scheduler.controller.sent(
                order,
                {
                    signal.workflow_id
                    for signal in order.signals
                    if signal.workflow_id == DEPLOYMENT
                },
            )
        # None of its replicas was ever started.
        scheduler.controller.checked(
            scheduler.cache.verification.due(scheduler.ms), {}, []
        )
        run_cycle(scheduler.cache)
        assert [entry.deployment for entry in scheduler.entries] == ["rival"]
    assert scheduler.cache.state.unplaced == {}


def test_a_reservation_under_check_is_not_passed_to_the_deployments_successor() -> None:
    scheduler = Scheduler()
    scheduler.place(uid="first")
    (entry,) = scheduler.entries
    scheduler.cache.forget_owner("ml", "m")
    checked = scheduler.cache.verification.due(scheduler.ms)
    # The check is in progress when the successor requests its first placement.
    scheduler.cache.deployments.settle("ml/m", "second")
    assert scheduler.place(uid="second") == []
    scheduler.controller.checked(checked, {}, [])
    assert [request.uid for request in run_cycle(scheduler.cache)] == ["second"]
    (placed,) = scheduler.entries
    assert (placed.uid != entry.uid, placed.origin[0]) == (True, "second")


def test_a_deployment_created_while_its_signal_was_in_transit_keeps_its_request() -> (
    None
):
    scheduler = Scheduler()
    scheduler.place(uid="first")
    scheduler.ms += 11 * MINUTE
    (order,) = scheduler.sends()
    # Its successor is known by now.
    scheduler.cache.deployments.settle("ml/m", "second")
    scheduler.place(uid="second")
    before = scheduler.cache.carried_extras()
    scheduler.controller.sent(order, {DEPLOYMENT})
    assert scheduler.cache.carried_extras() == before


def test_a_replica_started_after_its_release_is_evicted() -> None:
    scheduler = Scheduler()
    scheduler.place()
    (entry,) = scheduler.entries
    scheduler.receive("released", Released(uid=entry.uid))
    scheduler.receive("bound", Bound(entries={entry.uid: to_wire(entry)}))
    doubts = scheduler.cache.verification.due(scheduler.ms)
    scheduler.controller.checked(
        doubts, {doubt.workflow_id: account_of(entry) for doubt in doubts}, []
    )
    run_cycle(scheduler.cache)
    assert [found.state for found in scheduler.entries] == [reasons.RELEASING]
    (evicted,) = scheduler.due()
    assert (
        evicted.signal,
        evicted.workflow_id,
        evicted.payload["eviction"]["uid"],
    ) == ("evict", DEPLOYMENT, entry.uid)
    # The deployment may not know the replica, and needs its entry to delete it.
    assert evicted.payload["eviction"]["entry"]["uid"] == entry.uid


def test_a_raised_epoch_is_announced_to_all_once() -> None:
    scheduler = Scheduler()
    scheduler.cache.state.epoch = scheduler.cache.state.announced = 7
    scheduler.place(epoch=100)
    announced = [
        order.signal
        for order in scheduler.controller.due()
        if isinstance(order, Announce)
    ]
    assert [(signal.signal, signal.payload) for signal in announced] == [
        ("resync", {"epoch": 101})
    ]
    assert set(announced[0].kinds) == {
        "ModelDeployment",
        "InferenceCluster",
        "InferenceClass",
    }
    assert scheduler.controller.due() == []


def test_capacity_that_a_request_releases_is_free_for_its_own_answer() -> None:
    scheduler = Scheduler()
    scheduler.place()
    (entry,) = scheduler.entries
    scheduler.place(2, returned=[entry.uid])
    (again,) = scheduler.entries
    assert again.uid != entry.uid


@pytest.mark.parametrize(
    "asked", ["the deployment that it was placed for", "another one of its name"]
)
def test_only_its_own_deployment_can_release_a_replica(
    asked: str,
) -> None:
    scheduler = Scheduler()
    scheduler.place(uid="first")
    (entry,) = scheduler.entries
    scheduler.cache.give_back(
        entry.uid, "first" if asked.startswith("the") else "second"
    )
    charged = [found.uid for found in scheduler.entries]
    checked = [doubt.uid for doubt in scheduler.cache.verification.due(scheduler.ms)]
    assert (charged, checked) == (
        ([], []) if asked.startswith("the") else ([entry.uid], [entry.uid])
    )


def test_a_started_replica_is_checked_instead_of_released() -> None:
    scheduler = Scheduler()
    scheduler.place()
    (entry,) = scheduler.entries
    scheduler.receive("bound", Bound(entries={entry.uid: to_wire(entry)}))
    scheduler.cache.give_back(entry.uid, entry.origin[0])
    assert [found.uid for found in scheduler.entries] == [entry.uid]
    assert [doubt.uid for doubt in scheduler.cache.verification.due(scheduler.ms)] == [
        entry.uid
    ]


def test_a_request_with_another_uid_waits_until_the_current_deployment_is_known() -> (
    None
):
    scheduler = Scheduler(nodes=9)
    scheduler.place(uid="first")
    assert scheduler.place(uid="second") == []
    assert list(scheduler.cache.state.unresponsive) == [DEPLOYMENT]
    scheduler.cache.deployments.settle("ml/m", "second")
    assert [request.uid for request in scheduler.place(uid="second")] == ["second"]
    assert scheduler.place(2, uid="first") == []


def test_the_end_of_an_earlier_deployment_does_not_affect_its_successor() -> None:
    scheduler = Scheduler()
    scheduler.place(uid="first")
    scheduler.cache.deployments.settle("ml/m", "second")
    scheduler.place(uid="second")
    before = [entry.uid for entry in scheduler.entries]
    scheduler.receive(
        "forget", Forget(kind="ModelDeployment", namespace="ml", name="m", uid="first")
    )
    assert [entry.uid for entry in scheduler.entries] == before


@pytest.mark.parametrize(
    ("missing", "waits"),
    [
        ("modelreplica/ml/m-0a1b2c3d", True),
        ("modelreplica/other/m-0a1b2c3d", False),
        ("modelreplica/ml/rival-0a1b2c3d", False),
        ("inferencecluster/a", True),
        ("modeldeployment/ml/rival", False),
    ],
)
def test_a_deployment_is_not_gone_while_an_account_of_a_possible_replica_is_missing(
    missing: str, *, waits: bool
) -> None:
    scheduler = Scheduler()
    scheduler.receive(
        "forget",
        Forget(
            kind="ModelDeployment", namespace="ml", name="m", uid="first", gone=True
        ),
    )
    scheduler.cache.await_account(missing, ())
    assert [signal.signal for signal in scheduler.due()] == (
        [] if waits else ["forgotten"]
    )
    scheduler.cache.state.unresponsive.clear()
    assert [signal.signal for signal in scheduler.due()] == (
        ["forgotten"] if waits else []
    )


def reported(uid: str, sequence: int, *, deleting: bool = False) -> ReportCluster:
    message = ReportedCluster("eu", {"p": 2}).report(sequence, uid)
    if deleting:
        message.manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return message


def test_the_end_of_an_earlier_cluster_does_not_affect_its_successor() -> None:
    scheduler = Scheduler()
    scheduler.receive("report_cluster", reported("first", 9))
    scheduler.read_account("inferencecluster/eu", reported("second", 1))
    scheduler.receive("forget", Forget(kind="InferenceCluster", name="eu", uid="first"))
    assert scheduler.cache.fleet.cluster("eu") is not None
    scheduler.receive(
        "forget", Forget(kind="InferenceCluster", name="eu", uid="second")
    )
    assert scheduler.cache.fleet.cluster("eu") is None


def test_deployments_of_a_deleted_cluster_request_again_and_their_replicas_are_evicted() -> (
    None
):
    scheduler = Scheduler()
    scheduler.place()
    (entry,) = scheduler.entries
    scheduler.receive("bound", Bound(entries={entry.uid: to_wire(entry)}))
    # Its deletion was forced.
    scheduler.receive("forget", Forget(kind="InferenceCluster", name="a", uid="uid-a"))
    assert [(signal.signal, signal.workflow_id) for signal in scheduler.due()] == [
        ("resync", DEPLOYMENT)
    ]
    scheduler.place(2)
    assert [(found.uid, found.state) for found in scheduler.entries] == [
        (entry.uid, reasons.RELEASING)
    ]


def test_decisions_are_made_between_two_batches_of_resyncs() -> None:
    scheduler = Scheduler()
    names = [f"m-{number:04}" for number in range(2 * RESYNCS_AT_ONCE + 1)]
    scheduler.cache.request_resync(("ml", name) for name in reversed(names))
    passes = [[signal.workflow_id for signal in scheduler.due()] for _ in range(4)]
    assert [len(each) for each in passes] == [RESYNCS_AT_ONCE, RESYNCS_AT_ONCE, 1, 0]
    told = [*itertools.chain.from_iterable(passes)]
    assert told == [f"modeldeployment/ml/{name}" for name in names]


def test_each_report_of_a_cluster_under_deletion_is_answered_and_none_of_its_successor() -> (
    None
):
    scheduler = Scheduler()
    for sequence in (3, 4):
        scheduler.receive("report_cluster", reported("first", sequence, deleting=True))
        (occupied,) = scheduler.due()
        assert (
            occupied.payload["uid"],
            occupied.payload["sequence"],
            occupied.payload["replicas"],
        ) == ("first", sequence, [])
        assert scheduler.due() == []
    scheduler.read_account("inferencecluster/eu", reported("second", 1))
    assert scheduler.due() == []
    assert scheduler.cache.state.deleting_clusters == {}


def test_the_first_report_of_an_older_cluster_counts_only_if_the_cluster_sent_it_itself() -> (
    None
):
    scheduler = Scheduler()
    scheduler.cache.state.epoch = START
    late = reported("first", 9).model_copy(update={"created": START - 1})
    scheduler.receive("report_cluster", late)
    assert (
        scheduler.cache.fleet.cluster("eu"),
        list(scheduler.cache.state.asked_again),
    ) == (None, ["inferencecluster/eu"])
    scheduler.read_account(
        "inferencecluster/eu", late.model_copy(update={"gone": True})
    )
    # From now on it is known to be gone, however many of its reports are still late.
    scheduler.receive("report_cluster", late)
    assert (
        scheduler.cache.fleet.cluster("eu"),
        len(scheduler.cache.state.asked_again),
    ) == (None, 1)
    scheduler.read_account("inferencecluster/eu", reported("second", 1))
    assert scheduler.cache.fleet.cluster("eu") is not None


def test_the_first_report_of_a_cluster_newer_than_the_scheduler_counts_at_once() -> (
    None
):
    scheduler = Scheduler()
    scheduler.cache.state.epoch = START
    scheduler.receive(
        "report_cluster",
        reported("first", 9).model_copy(update={"created": START + 1_000}),
    )
    assert scheduler.cache.fleet.cluster("eu") is not None
    assert scheduler.cache.state.asked_again == []


def test_the_deployment_of_a_replica_that_only_its_cluster_names_requests_again() -> (
    None
):
    # The replica and the deployment that knew it were terminated. This deployment
    # starts the replica again, or lets it be deleted.
    earlier, scheduler = Scheduler(), Scheduler()
    earlier.place()
    (entry,) = earlier.entries
    for _ in range(2):
        scheduler.read_account(
            f"modelreplica/ml/{entry.name}",
            ReplicaAccount.model_validate(account_of(entry)),
            scheduler.ms,
        )
    assert [(signal.signal, signal.workflow_id) for signal in scheduler.due()] == [
        ("resync", DEPLOYMENT)
    ]


def test_a_cluster_whose_account_reports_it_gone_is_forgotten() -> None:
    scheduler = Scheduler()
    scheduler.receive("report_cluster", reported("first", 9))
    scheduler.read_account(
        "inferencecluster/eu", reported("first", 10).model_copy(update={"gone": True})
    )
    assert scheduler.cache.fleet.cluster("eu") is None


def test_an_account_requested_before_the_clusters_successor_reported_is_requested_again() -> (
    None
):
    scheduler = Scheduler()
    asked_at = scheduler.cache.messages_read
    scheduler.receive("report_cluster", reported("second", 1))
    scheduler.read_account("inferencecluster/eu", reported("first", 9), asked_at)
    assert (scheduler.cache.clusters["eu"].uid, scheduler.cache.state.asked_again) == (
        "second",
        ["inferencecluster/eu"],
    )
    scheduler.read_account(
        "inferencecluster/eu", reported("third", 1), scheduler.cache.messages_read
    )
    assert scheduler.cache.clusters["eu"].uid == "third"


def test_an_account_requested_before_the_deployments_successor_requested_is_requested_again() -> (
    None
):
    scheduler = Scheduler()
    asked_at = scheduler.cache.messages_read
    scheduler.place(number=7, uid="second")
    scheduler.read_account(DEPLOYMENT, DeploymentAccount(uid="first"), asked_at)
    assert (
        scheduler.cache.deployments["ml/m"].uid,
        scheduler.cache.state.asked_again,
    ) == ("second", [DEPLOYMENT])
    scheduler.read_account(
        DEPLOYMENT, DeploymentAccount(uid="first"), scheduler.cache.messages_read
    )
    assert scheduler.cache.deployments["ml/m"].uid == "first"


def test_a_cluster_name_that_is_invalid_in_a_workflow_id_is_ignored() -> None:
    scheduler = Scheduler()
    scheduler.receive("report_cluster", ReportedCluster("a/b", {"p": 2}).report(1))
    assert list(scheduler.cache.fleet.clusters) == ["a"]


# The policy

POLICY = {"priorityClasses": {"high": 9}}


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"accounting": "device-safe"}, ""),
        ("strict", "the policy must be an object"),
        ({"priorityClass": {}}, "priorityClass: "),
        (
            {"quotas": ["x" * POLICY_BYTES_MAX]},
            f"the policy has {POLICY_BYTES_MAX + 15} bytes of JSON; at most {POLICY_BYTES_MAX} are",
        ),
    ],
    ids=["another one", "no object", "with an unknown field", "too large"],
)
def test_an_unusable_policy_leaves_the_last_one_in_force_and_reports_why(
    policy: Any, problem: str
) -> None:
    scheduler = Scheduler()
    scheduler.receive("set_policy", SetPolicy(policy=POLICY))
    state = scheduler.cache.state
    state.policy_problem, state.policy_lost = "the one before", "no record"
    scheduler.receive("set_policy", SetPolicy(policy=policy))
    assert state.policy_problem[: len(problem)] == problem
    assert bool(state.policy_problem) == bool(problem)
    assert (state.policy, state.policy_lost) == (
        (POLICY, "no record") if problem else (policy, "")
    )
    assert scheduler.cache.fleet.options.priority_of("high") == (9 if problem else 0)


# Due without a message


@pytest.mark.parametrize(
    ("state", "minutes"),
    [
        ({}, None),
        ({"takeover": Takeover(predecessor=1, announce_at=START + 5 * MINUTE)}, 5),
        ({"takeover": Takeover(predecessor=1, announce_at=START - 5 * MINUTE)}, 0),
        (
            {
                "takeover": Takeover(predecessor=1, announce_at=START + MINUTE),
                "announced": 3,
            },
            None,
        ),
        ({"unresponsive_since": {"x": START}}, None),
        ({"unresponsive_since": {"x": START}, "deleting_clusters": {"a": None}}, 10),
        (
            {"unresponsive_since": {"x": START}, "deleting_deployments": {"ml/m": "u"}},
            10,
        ),
        ({"deleting_clusters": {"a": None}}, None),
    ],
    ids=[
        "nothing",
        "an epoch to announce",
        "an epoch that is late",
        "an epoch that was announced",
        "an account that holds nothing up",
        "an account that holds a cluster",
        "an account that holds a deployment",
        "a cluster that waits for replicas",
    ],
)
def test_the_scheduler_wakes_up_for_a_timer_without_a_message(
    state: dict[str, Any], minutes: int | None
) -> None:
    scheduler = Scheduler()
    for field, value in {"epoch": 3, **state}.items():
        setattr(scheduler.cache.state, field, value)
    expected = None if minutes is None else timedelta(minutes=minutes)
    assert scheduler.controller.delay() == expected


def test_a_forgotten_deployment_keeps_its_started_replicas_until_they_are_gone() -> (
    None
):
    scheduler = Scheduler(nodes=2)
    scheduler.place(uid="first")
    (entry,) = scheduler.entries
    scheduler.receive("bound", Bound(entries={entry.uid: to_wire(entry)}))
    scheduler.receive(
        "forget", Forget(kind="ModelDeployment", name="m", namespace="ml", uid="first")
    )
    assert [found.uid for found in scheduler.entries] == [entry.uid]
    assert scheduler.cache.verification.due(scheduler.ms) == []


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ({"state": reasons.RELEASING, "nominated_for": ("ml", "high")}, ["r"]),
        ({"state": reasons.BOUND, "nominated_for": ("ml", "high")}, []),
        ({"state": reasons.RELEASING}, []),
        (None, []),
    ],
    ids=["preempted", "kept", "evicted for nobody", "gone"],
)
def test_only_an_unfinished_preemption_waits_for_an_answer(
    entry: dict[str, Any] | None, left: list[str]
) -> None:
    scheduler = Scheduler()
    if entry is not None:
        charged = LedgerEntry("r", "ml", "low", "a", 0, "low-a", (), **entry)
        scheduler.cache.fleet.put_replica(charged)
    scheduler.cache.unanswered = {"r": scheduler.ms}
    assert scheduler.cache.give_up_unanswered() == []
    assert list(scheduler.cache.unanswered) == left
