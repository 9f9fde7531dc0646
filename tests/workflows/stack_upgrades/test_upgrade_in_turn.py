"""A cluster before, in and after its turn to upgrade, without Temporal and without a cluster."""

from typing import Any

import pytest
from temporalio import workflow

from activities.render.stack import components, objects
from api_types import labels
from api_types.messages.stack import (
    ApplyChartCrds,
    EnsureRelease,
    Lag,
    StackApplied,
    StackSeen,
)
from api_types.messages.upgrades import UpgradeTurn
from tests.workflows.inference_cluster.test_stack_orders import World
from tests.workflows.inference_cluster.test_stack_plan import (
    a_complete_stack,
    a_plan,
    a_stack,
)
from workflows.entity.failures import Failure
from workflows.inference_cluster.stack.plan import (
    CHECK,
    PREFLIGHT,
    begin_plan,
    is_upgrading,
)
from workflows.inference_cluster.stack.turn import REPORT_AFTER
from workflows.inference_cluster.stack.verdict import stack_verdict

NEWER = a_plan(gateway_class="other")
LWS = components.LEADER_WORKER_SET.key


@pytest.fixture(autouse=True)
def _orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record executed activities as orders."""
    monkeypatch.setattr(
        workflow, "execute_activity_method", lambda _, order, **__: order
    )


class Upgrading(World):
    """A cluster with a complete stack, whose check finds that another one is wanted."""

    def __init__(self, **seen: Any) -> None:
        super().__init__(a_complete_stack(), takes_turns=True)
        self.update()
        self.look(wanted=NEWER.digest, **seen)

    def look(self, **seen: Any) -> None:
        self.calls.end(
            CHECK,
            StackSeen(**{"digest": str(self.time), "wanted": a_plan().digest, **seen}),
        )
        self.update(minutes=60)

    def answer(self, *holders: str) -> None:
        """Grant the turn, or answer with its current holders."""
        turn = self.stack.turn
        self.turn.answered(
            UpgradeTurn(
                uid="u",
                turn=turn.number,
                sequence=turn.answer + 1,
                granted=not holders,
                holders=list(holders),
            )
        )
        self.update()

    @property
    def steps(self) -> list[str]:
        return [key for key in self.calls.keys if key != CHECK]

    @property
    def says(self) -> str:
        verdict = stack_verdict(self.stack, "192.0.2.1")
        assert (verdict.status, verdict.reason) == ("True", "BackendHealthy")
        return verdict.message


def test_a_waiting_upgrade_names_the_holder_and_its_stack_is_checked_and_repaired() -> (
    None
):
    world = Upgrading(upgrades_at_once=3)
    request = world.turn.request()
    assert request
    assert (request.wanted, request.at_once, request.holds) == (True, 3, False)
    assert world.turn.request() is None
    assert world.says == "waiting for its turn to be upgraded"
    world.answer("us", "asia")
    assert (world.steps, CHECK in world.calls.keys) == ([], True)
    assert world.says == "waiting for the upgrade of cluster us, asia"
    world.look(
        wanted=NEWER.digest,
        lags=[Lag(target=LWS, object="Deployment lws", why="missing", missing=True)],
    )
    assert world.steps == [LWS]
    world.end_steps()
    world.answer()
    assert world.steps == [PREFLIGHT]
    world.calls.end(PREFLIGHT, NEWER)
    world.update()
    assert (is_upgrading(world.stack), world.steps) == (True, [objects.NAMESPACES])


def test_an_installation_waits_for_no_turn() -> None:
    world = World(a_stack(), takes_turns=True)
    world.update()
    assert (world.turn.request(), world.calls.keys) == (None, [objects.NAMESPACES])


def test_an_upgrade_without_its_turn_starts_no_step_until_the_next_turn() -> None:
    world = Upgrading()
    world.answer()
    world.calls.end(PREFLIGHT, NEWER)
    world.update()
    world.answer("us")
    world.calls.end(objects.NAMESPACES, StackApplied(objects=1))
    world.update()
    assert (world.steps, world.turn.waits, CHECK in world.calls.keys) == (
        [],
        True,
        True,
    )
    assert world.says == "waiting for the upgrade of cluster us"
    world.look(wanted=NEWER.digest)
    assert (world.steps, CHECK in world.calls.keys) == ([], True), "it is looked after"
    world.answer()
    assert world.steps == [objects.QUOTA_GROUP]


def test_progress_is_reported_periodically() -> None:
    world = Upgrading()
    world.turn.request()
    world.answer()
    world.calls.end(PREFLIGHT, NEWER)
    sent = []
    for _ in range(6):
        world.end_steps()
        world.update(minutes=2)
        sent.append(world.turn.request())
    found = [request for request in sent if request]
    assert len(found) in (2, 3)
    assert all(request.holds and request.wanted for request in found)
    assert len({request.progress for request in found}) == len(found)


@pytest.mark.parametrize(
    "end", ["preflight fails", "same plan", "external", "deleted", "unreachable"]
)
def test_a_turn_is_returned_when_nothing_is_upgraded(end: str) -> None:
    world = Upgrading()
    first = world.turn.request()
    world.answer("us") if end == "unreachable" else world.answer()
    match end:
        case "preflight fails":
            world.calls.now.pop(PREFLIGHT).failed(Failure("NameConflict", "in the way"))
            world.update()
        case "same plan":
            world.calls.end(PREFLIGHT, a_plan())
            world.update()
        case "external":
            world.state.annotations = {labels.STACK: "external"}
            world.update()
        case "deleted":
            world.turn.give_back()
        case _:
            # The cluster waits, and does not answer.
            world.turn.follow(running=False)
    back = world.turn.request()
    assert first
    assert back
    assert (back.wanted, back.sequence > first.sequence) == (False, True)
    assert world.turn.request() is None
    if end == "preflight fails":
        # It requests a turn again for its next attempt.
        world.update(minutes=60)
        again = world.turn.request()
        assert again
        assert (
            again.wanted,
            again.turn > first.turn,
            PREFLIGHT in world.calls.keys,
        ) == (True, True, False)


def test_a_repeated_request_has_the_current_state_and_an_answer_to_an_earlier_one_is_ignored() -> (
    None
):
    world = Upgrading()
    first = world.turn.request()
    world.answer()
    # StackUpgrades was restarted.
    world.turn.repeat()
    again = world.turn.request()
    assert first
    assert again
    assert (again.turn, again.holds, again.wanted, again.sequence > first.sequence) == (
        first.turn,
        True,
        True,
        True,
    )
    assert world.turn.account() == again
    world.calls.end(PREFLIGHT, a_plan())
    # This arrives together with the end of its request.
    world.turn.repeat()
    world.update()
    back = world.turn.request()
    assert back
    assert (back.wanted, world.turn.account().wanted) == (False, False)
    world.turn.answered(
        UpgradeTurn(uid="u", turn=first.turn, sequence=99, granted=True)
    )
    assert not world.stack.turn.granted


def test_an_unchanged_release_is_not_written_the_rest_is_upgraded_and_users_are_informed() -> (
    None
):
    world = Upgrading()
    world.answer()
    reason = f"Rejected: {LWS} stays at v0.9.0"
    kept = {LWS: reason, components.ENVOY_GATEWAY.key: "it goes with another"}
    world.calls.end(PREFLIGHT, NEWER.model_copy(update={"kept": kept}))
    orders = list[Any]()
    for _ in range(100):
        world.update(minutes=1)
        orders += [world.calls.now[key].order for key in world.steps]
        world.end_steps()
        if CHECK in world.calls.keys:
            world.calls.end(
                CHECK, StackSeen(digest=str(world.time), wanted=NEWER.digest)
            )
    assert not is_upgrading(world.stack)
    written = [
        order.release.name for order in orders if isinstance(order, EnsureRelease)
    ]
    assert sorted(written) == sorted(
        release.name for key, release in NEWER.releases.items() if key not in kept
    )
    (crds,) = [order for order in orders if isinstance(order, ApplyChartCrds)]
    names = {release.name for release in crds.releases}
    assert ("mp-lws" in names, "mp-cert-manager" in names) == (False, True)
    assert reason in world.says
    assert [
        event.message for event in world.state.events if event.reason == "Rejected"
    ] == [*kept.values()]
    # A manually deleted object of it is restored unchanged.
    world.update()
    world.look(
        wanted=NEWER.digest,
        lags=[Lag(target=LWS, object="Deployment lws", why="missing", missing=True)],
    )
    assert world.steps == [LWS]


def test_a_release_that_may_be_written_again_is_written_by_the_next_plan_of_the_same_settings() -> (
    None
):
    world = Upgrading()
    world.answer()
    world.calls.end(PREFLIGHT, NEWER.model_copy(update={"kept": {LWS: "Rejected"}}))
    begin_plan(world.stack, NEWER, world.context.now())
    assert world.stack.plan == NEWER


def test_an_answer_that_changes_the_holder_is_confirmed() -> None:
    world = Upgrading()
    assert world.turn.request()
    world.answer("us")
    assert world.turn.request() is None, "it waits, as it said"
    for holders in ((), ("us",)):
        # The answer may belong to a task that was executed twice, and may be outdated.
        world.answer(*holders)
        said = world.turn.request()
        assert said
        assert (said.wanted, said.holds) == (True, not holders)
        assert world.turn.request() is None


@pytest.mark.parametrize(
    ("uid", "turn"),
    [("earlier", 0), ("u", -1)],
    ids=["an earlier cluster of the name", "an earlier request"],
)
def test_an_answer_to_another_request_is_corrected(uid: str, turn: int) -> None:
    world = Upgrading()
    first = world.turn.request()
    assert first
    world.context.queued = False
    world.turn.answered(
        UpgradeTurn(uid=uid, turn=first.turn + turn, sequence=99, granted=True)
    )
    again = world.turn.request()
    assert again
    assert (world.context.queued, world.stack.turn.granted) == (True, False)
    assert (again.uid, again.turn, again.holds, again.sequence > first.sequence) == (
        "u",
        first.turn,
        False,
        True,
    )


def test_an_unwanted_turn_is_returned() -> None:
    world = World(a_complete_stack(), takes_turns=True)
    world.update()
    assert world.turn.request() is None
    world.turn.answered(UpgradeTurn(uid="u", turn=1, sequence=99, granted=True))
    back = world.turn.request()
    assert back
    assert (back.wanted, back.holds) == (False, False)
    assert world.turn.request() is None


def test_unreported_progress_is_reported_when_it_is_due() -> None:
    world = Upgrading()
    world.turn.request()
    world.answer()
    world.calls.end(PREFLIGHT, NEWER)
    world.update()
    assert world.turn.request()
    due = world.time + REPORT_AFTER
    world.end_steps()
    world.update(minutes=1)
    world.context.requeue_time = None
    assert world.turn.request() is None
    assert world.context.requeue_time == due
    world.update(minutes=4)
    assert world.turn.request()
