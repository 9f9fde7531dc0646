"""The state that a lost scheduler hands over, and how the next one uses it before it decides.

These tests need no server.
"""

from typing import Any

import pytest

from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import ReportCluster
from tests.scheduler import builders
from tests.scheduler.builders import deployment
from tests.workflows.environment.protocol_fleet import ReportedCluster
from tests.workflows.fleet_scheduler.cycle import LOG, run_cycle
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.cache.carry_over import ANNOUNCE_AFTER_MS
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import (
    ReceivedSignal,
    SchedulerState,
    SurveyProgress,
)
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.orders import Announce, SendSchedulerSignals
from workflows.fleet_scheduler.rebuild.accounts import Accounts
from workflows.fleet_scheduler.rebuild.activities import AccountsPage
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption
from workflows.fleet_scheduler.rebuild.lost_state import LostState, continuation
from workflows.fleet_scheduler.rebuild.unresponsive import MissingAccounts

START = 1_700_000_000_000
# The epochs of the lost scheduler, of a later one, and of the one that takes over.
LOST, LATER, OWN = START, START + 10, START + 20
EU, US = "inferencecluster/eu", "inferencecluster/us"


class Scheduler:
    """A scheduler whose time and received accounts a test sets."""

    def __init__(self, state: SchedulerState) -> None:
        self.ms = state.epoch
        self.cache = SchedulerCache(state, lambda: self.ms)
        while self.cache.parts_left:
            self.cache.read_part()
        self.state = self.cache.state
        self.inbox = Inbox(self.cache, LOG)
        self.controller = SchedulerController(self.cache, self.inbox, LOG)
        adoption = AccountAdoption(self.cache, self.inbox, LOG)
        self.missing = MissingAccounts(self.state, adoption)
        if self.state.takeover and not self.state.takeover.begun:
            adoption.begin_takeover(self.state.takeover)
            self.state.asked_again = []

    def lost(self, *arrived: ReceivedSignal) -> "Scheduler":
        """Terminate the scheduler; return the one that continues."""
        handed_over = LostState.model_validate_json(
            self.controller.handover().model_dump_json(by_alias=True)
        )
        following, problem = continuation(handed_over, arrived, OWN)
        assert following is not None, problem
        return Scheduler(following)

    def answer(self, name: str, epoch: int) -> None:
        """Deliver the account of a cluster that has seen this epoch."""
        accounts = Accounts()
        report = cluster(name).model_copy(update={"epoch": epoch})
        accounts.add(f"inferencecluster/{name}", report.wire())
        self.missing._arrived.append(
            (
                self.ms,
                AccountsPage(
                    accounts=accounts.packed(), answered=[f"inferencecluster/{name}"]
                ),
            )
        )
        self.missing.adopt()

    def sends(self) -> list[SendSchedulerSignals]:
        return [
            order
            for order in self.controller.due()
            if isinstance(order, SendSchedulerSignals)
        ]

    def signals(self) -> list[SignalRequest]:
        return [signal for order in self.sends() for signal in order.signals]

    def accounted(self) -> list[str]:
        return sorted(
            name
            for name, info in self.cache.fleet.clusters.items()
            if info.view.accounted
        )


def cluster(name: str, sequence: int = 1) -> ReportCluster:
    return ReportedCluster(name, {"gpus": 4}).report(sequence)


@pytest.fixture
def first() -> Scheduler:
    """Return a scheduler with two clusters, and a deployment with two placed but
    unstarted replicas.
    """
    scheduler = Scheduler(SchedulerState(epoch=LOST, announced=LOST))
    for name in ("eu", "us"):
        scheduler.cache.fleet.put_cluster(builders.cluster(name, 4))
    run_cycle(
        scheduler.cache, ("place", place(deployment(want=2), sequence=LOST + 1).wire())
    )
    run_cycle(
        scheduler.cache,
        *(("report_cluster", cluster(name).wire()) for name in ("eu", "us")),
    )
    scheduler.controller.due()
    assert (len(list(scheduler.cache.fleet.entries())), scheduler.accounted()) == (
        2,
        ["eu", "us"],
    )
    return scheduler


def test_decisions_and_queued_messages_are_kept_with_a_greater_epoch(
    first: Scheduler,
) -> None:
    unread, own = (
        place(deployment(name="unread"), sequence=LOST + 2).wire(),
        place(deployment(name="own"), sequence=OWN + 1).wire(),
    )
    first.inbox.append_received(ReceivedSignal("place", unread))
    second = first.lost(ReceivedSignal("place", own))
    assert {entry.uid for entry in second.cache.fleet.entries()} == {
        entry.uid for entry in first.cache.fleet.entries()
    }
    assert [signal.payload["name"] for signal in second.state.inbox] == [
        "unread",
        "own",
    ]
    assert second.state.epoch == OWN


@pytest.mark.parametrize(
    "behind", [0, 5], ids=["a clock that goes right", "a clock that was set back"]
)
def test_the_epoch_exceeds_the_lost_schedulers_epoch(
    first: Scheduler, behind: int
) -> None:
    following, _ = continuation(first.controller.handover(), (), LOST - behind)
    assert following is not None
    assert following.epoch == LOST + 1


def test_requests_under_decision_are_decided_by_the_next_scheduler(
    first: Scheduler,
) -> None:
    request = place(deployment(name="in-hand"), sequence=LOST + 2)
    first.inbox.append_received(ReceivedSignal("place", request.wire()))
    first.inbox.read()
    assert [each.name for each in first.controller.next_batch().requests] == ["in-hand"]
    assert first.state.queue == {}
    assert [each.name for each in first.lost().state.queue.values()] == ["in-hand"]


@pytest.mark.parametrize(
    "unknown",
    [{"survey": SurveyProgress()}, {"rebuild": True}],
    ids=["it was rebuilding", "it was about to"],
)
def test_an_incomplete_scheduler_hands_nothing_over(
    first: Scheduler, unknown: dict[str, Any]
) -> None:
    for name, value in unknown.items():
        setattr(first.state, name, value)
    handed_over = first.controller.handover()
    assert handed_over == LostState(
        problem="the lost scheduler did not know all entities"
    )
    assert continuation(handed_over, (), OWN) == (None, handed_over.problem)


def test_an_unreadable_state_is_rejected_with_the_reason() -> None:
    following, problem = continuation(LostState(state={"epoch": "soon"}), (), OWN)
    assert following is None
    assert "epoch" in problem


def test_too_many_messages_cause_all_entities_to_be_read(
    monkeypatch: pytest.MonkeyPatch, first: Scheduler
) -> None:
    monkeypatch.setattr("api_types.payloads.limits.CARRIED_BYTES_MAX", 3_000)
    arrived = [
        ReceivedSignal("place", place(deployment(name=f"n{number}")).wire())
        for number in range(100)
    ]
    assert continuation(first.controller.handover(), arrived, OWN) == (
        None,
        "the state is too large to be carried",
    )


def test_unfinished_sends_are_repeated(first: Scheduler) -> None:
    first.state.deleting_clusters = {"us": ["ml/m-1"]}
    second = first.lost()
    assert list(second.cache.resyncs) == [("ml", "m")]
    assert second.state.deleting_clusters == {"us": None}


def test_a_cluster_takes_no_placement_until_it_has_answered_and_seen_the_epoch(
    first: Scheduler,
) -> None:
    second = first.lost()
    assert (second.accounted(), second.state.unresponsive) == (
        [],
        {EU: ["eu"], US: ["us"]},
    )
    # A report that the cluster sends by itself does not show that it has seen the
    # epoch.
    run_cycle(second.cache, ("report_cluster", cluster("eu", 2).wire()))
    assert (second.accounted(), second.state.unresponsive) == (
        [],
        {EU: ["eu"], US: ["us"]},
    )
    second.answer("eu", LOST)
    assert second.accounted() == []
    (told,) = (order for order in second.sends() if order.told)
    assert [
        (signal.workflow_id, signal.signal, signal.payload["epoch"])
        for signal in told.signals
    ] == [(EU, "resync", OWN)]
    second.controller.sent(told, set())
    second.missing.settle()
    assert (second.accounted(), second.state.unresponsive) == (["eu"], {US: ["us"]})
    # The cluster is queried again for another reason, and has seen the epoch.
    second.cache.await_account(EU, ["eu"])
    second.state.asked_again = []
    second.missing.adopt()
    assert second.accounted() == []
    second.answer("eu", OWN)
    assert (second.accounted(), second.state.untold) == (["eu"], [])


def test_an_older_account_does_not_enable_a_replaced_cluster(
    first: Scheduler,
) -> None:
    second = first.lost()
    run_cycle(
        second.cache,
        (
            "report_cluster",
            ReportedCluster("eu", {"gpus": 1}).report(1, "uid-next").wire(),
        ),
    )
    second.cache.clusters.settle("eu", "uid-next")
    second.cache.reported_at["eu"] = second.cache.messages_read + 1
    second.answer("eu", LOST)
    assert (second.state.untold, EU in second.state.unresponsive) == ([], True)


@pytest.mark.parametrize(
    "epoch", [LATER, OWN + 10], ids=["before this one", "with a clock that goes ahead"]
)
@pytest.mark.parametrize("known_by", ["account", "report"])
def test_a_cluster_that_saw_a_later_scheduler_causes_all_entities_to_be_read(
    first: Scheduler, epoch: int, known_by: str
) -> None:
    second = first.lost()
    if known_by == "account":
        second.answer("us", LOST)
        second.answer("eu", epoch)
    else:
        run_cycle(
            second.cache,
            (
                "report_cluster",
                cluster("eu", 2).model_copy(update={"epoch": epoch}).wire(),
            ),
        )
    assert second.state.rebuild
    assert second.controller.handover().state is None


def test_the_epoch_is_announced_to_others_when_the_clusters_have_answered(
    first: Scheduler,
) -> None:
    second = first.lost()
    assert not [
        order for order in second.controller.due() if isinstance(order, Announce)
    ]
    for name in ("eu", "us"):
        second.answer(name, LOST)
    for order in second.sends():
        second.controller.sent(order, set())
    second.missing.settle()
    (announced,) = (
        order for order in second.controller.due() if isinstance(order, Announce)
    )
    assert announced.signal.kinds == ["ModelDeployment", "InferenceClass"]


def test_a_silent_cluster_delays_the_announcement_for_a_minute(
    first: Scheduler,
) -> None:
    second = first.lost()
    delay = second.controller.delay()
    assert delay is not None
    assert delay.total_seconds() * 1000 == ANNOUNCE_AFTER_MS
    second.ms += ANNOUNCE_AFTER_MS
    assert [order for order in second.controller.due() if isinstance(order, Announce)]


def test_silent_entities_are_queried_after_the_others(first: Scheduler) -> None:
    second = first.lost()
    second.missing._arrived.append(
        (second.ms, AccountsPage(accounts=Accounts().packed(), unresponsive={EU: "eu"}))
    )
    second.missing.adopt()
    assert list(second.state.unresponsive) == [US, EU]
