"""Who upgrades its stack when: spec/stack-and-routing.md 2.10, `stack_upgrade_parallelism`. Without Temporal and without clusters."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_types.messages.delivery import SignalRequest
from api_types.messages.stack import StackSeen
from api_types.messages.upgrades import UpgradeRequest, UpgradeTurn
from tests.random_cases import SEED, cases
from tests.workflows.inference_cluster.builders import a_cluster
from tests.workflows.inference_cluster.test_stack_plan import a_complete_stack, a_plan
from workflows.entity.context import EntityContext
from workflows.inference_cluster.stack.plan import begin_plan, is_upgrading
from workflows.inference_cluster.stack.turn import StackTurn
from workflows.inference_cluster.state import ClusterState
from workflows.stack_upgrades.state import UpgradesState
from workflows.stack_upgrades.turns import LEASE, Turns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 5


class Queue:
    """The turns, at a time that the test sets."""

    def __init__(self, state: UpgradesState | None = None) -> None:
        self.now = NOW
        self.said = list[str]()
        self.number = 0
        self.turns = self._turns(state or UpgradesState())

    def _turns(self, state: UpgradesState) -> Turns:
        return Turns(state, lambda last: max(last + 1, int(self.now.timestamp() * 1000)), lambda _, message: self.said.append(message))

    def ask(self, cluster: str, **fields: Any) -> dict[str, UpgradeTurn]:
        """Take a request; gives what clusters are told of it."""
        self.number += 1
        message = UpgradeRequest(**{"cluster": cluster, "uid": cluster, "turn": 1, "sequence": self.number, **fields})
        self.turns.request(message, self.now)
        return self.advance()

    def advance(self, *, minutes: int = 0) -> dict[str, UpgradeTurn]:
        self.now += timedelta(minutes=minutes)
        self.turns.advance(self.now)
        return {cluster: UpgradeTurn.model_validate(sent.payload) for cluster, sent in self.turns.answers().items()}

    def carry(self) -> None:
        """Begin another run."""
        state = self.turns.carried(UpgradesState()).model_dump(mode="json", by_alias=True)
        self.turns = self._turns(UpgradesState.model_validate(state))


def told(answers: dict[str, UpgradeTurn]) -> dict[str, bool | list[str]]:
    """Give who may upgrade, and for whom the others wait."""
    return {cluster: answer.granted or answer.holders for cluster, answer in answers.items()}


def test_of_two_that_ask_one_upgrades_and_the_other_is_told_for_whom_it_waits() -> None:
    queue = Queue()
    assert told(queue.ask("eu")) == {"eu": True}
    assert told(queue.ask("us")) == {"us": ["eu"]}
    assert told(queue.advance()) == {}
    assert told(queue.ask("eu", wanted=False)) == {"us": True}


def test_as_many_upgrade_at_once_as_the_smallest_of_all_settings_says() -> None:
    queue = Queue()
    for cluster in ("a", "b"):
        queue.ask(cluster, at_once=3)
    assert queue.turns.holders == ["a", "b"]
    queue.ask("c", at_once=2)
    queue.ask("d", at_once=3)
    assert (queue.turns.holders, queue.turns.waiting) == (["a", "b"], ["c", "d"])
    # The setting of the workers of one was raised, and it says so.
    queue.ask("c", at_once=3)
    assert (queue.turns.holders, queue.turns.waiting) == (["a", "b", "c"], ["d"])
    queue.ask("a", wanted=False)
    assert queue.turns.holders == ["b", "c", "d"]


def test_a_holder_that_makes_no_progress_goes_to_the_end_of_the_queue_when_others_wait() -> None:
    queue = Queue()
    queue.ask("eu")
    assert (queue.advance(minutes=100), queue.turns.next_end()) == ({}, None)
    queue.ask("eu", progress="1/3")
    queue.ask("us")
    queue.ask("asia")
    assert queue.turns.next_end() == queue.now + LEASE
    queue.advance(minutes=29)
    queue.ask("eu", progress="1/4")
    assert told(queue.advance(minutes=29)) == {}
    # Whoever says the same again makes no progress.
    queue.ask("eu", progress="1/4", holds=True)
    assert told(queue.advance(minutes=1)) == {"us": True, "asia": ["us"], "eu": ["us"]}
    assert queue.turns.waiting == ["asia", "eu"]
    assert "cluster eu made no progress for 30 min: the next one upgrades" in queue.said
    # It does not know yet that its turn is over.
    assert told(queue.ask("eu", progress="1/5", holds=True)) == {"eu": ["us"]}


def test_one_that_is_deleted_or_does_not_run_waits_no_more_and_holds_nothing() -> None:
    queue = Queue()
    queue.ask("eu")
    queue.ask("us")
    queue.ask("asia")
    queue.turns.drop("us")
    assert told(queue.ask("eu", wanted=False)) == {"asia": True}
    # A cluster of the same name that is applied again wants a turn of its own.
    queue.ask("eu", uid="second", turn=2)
    assert (queue.turns.holders, queue.turns.waiting) == (["asia"], ["eu"])


def test_a_next_run_goes_on_and_one_that_knows_nothing_lets_those_end_who_upgrade() -> None:
    queue = Queue()
    queue.ask("eu")
    queue.ask("us")
    queue.carry()
    assert told(queue.advance()) == {}
    assert (queue.turns.holders, queue.turns.waiting) == (["eu"], ["us"])
    lost = Queue()
    lost.turns.request(UpgradeRequest(cluster="us", uid="us", turn=1, sequence=1), NOW)
    lost.turns.request(UpgradeRequest(cluster="eu", uid="eu", turn=1, sequence=1, holds=True), NOW)
    assert told(lost.advance()) == {"us": ["eu"], "eu": True}


class Cluster:
    """One cluster that has to be upgraded: its real part that asks for turns, and steps that tests let it take."""

    def __init__(self, name: str, now: Callable[[], datetime]) -> None:
        self.state: ClusterState = a_cluster(uid=name, annotations={}, stack=a_complete_stack())
        context: EntityContext[ClusterState] = EntityContext("InferenceCluster", self.state, lambda: None, f"inferencecluster/{name}", now)
        self.now, self.name, self.deleted = now, name, False
        self.state.stack.completed_plan = self.state.stack.planned_at
        self.state.stack.replan = True
        self.turn = StackTurn(context, lambda: True)

    @property
    def upgrades(self) -> bool:
        return bool(self.state.stack.turn.granted)

    @property
    def is_complete(self) -> bool:
        return not self.state.stack.replan and not is_upgrading(self.state.stack)

    def step(self) -> None:
        """Begin or go on with the upgrade, if it may."""
        stack = self.state.stack
        self.turn.follow(running=True)
        if not self.upgrades:
            return
        if stack.replan:
            begin_plan(stack, a_plan(gateway_class="other"), self.now().isoformat())
        elif len(stack.done) < STEPS:
            stack.done.append(f"step {len(stack.done)}")
        else:
            stack.completed_plan = stack.planned_at

    def message(self) -> UpgradeRequest | None:
        if self.deleted:
            self.turn.give_back()
        else:
            self.turn.follow(running=True)
        return self.turn.request()


class Fleet:
    """Clusters and their queue; messages arrive late and twice, but those of one sender to one receiver in order."""

    def __init__(self, choice: random.Random, at_once: int) -> None:
        self.choice, self.queue = choice, Queue()
        self.clusters = [Cluster(name, lambda: self.queue.now) for name in ("a", "b", "c", "d")]
        for cluster in self.clusters:
            cluster.state.stack.seen = StackSeen(upgrades_at_once=at_once)
        self.to_queue: dict[str, list[UpgradeRequest]] = {cluster.name: [] for cluster in self.clusters}
        self.to_clusters: dict[str, list[UpgradeTurn]] = {cluster.name: [] for cluster in self.clusters}

    def send(self, answers: dict[str, SignalRequest]) -> None:
        for name, sent in answers.items():
            self.to_clusters[name] += [UpgradeTurn.model_validate(sent.payload)] * self.choice.choice((1, 2))

    def move(self) -> None:
        """Let one thing happen."""
        cluster = self.choice.choice(self.clusters)
        what = self.choice.random()
        if what < 0.3 and not cluster.deleted:
            cluster.step()
        elif what < 0.5:
            if message := cluster.message():
                self.to_queue[cluster.name] += [message] * self.choice.choice((1, 2))
        elif what < 0.7 and self.to_queue[cluster.name]:
            self.queue.turns.request(self.to_queue[cluster.name].pop(0), self.queue.now)
            self.queue.turns.advance(self.queue.now)
            self.send(self.queue.turns.answers())
        elif what < 0.95 and self.to_clusters[cluster.name]:
            answer = self.to_clusters[cluster.name].pop(0)
            if not cluster.deleted:
                cluster.turn.answered(answer)
        elif what < 0.97:
            self.queue.carry()
        self.queue.now += timedelta(seconds=1)

    def quiet(self) -> bool:
        return all(cluster.is_complete or cluster.deleted for cluster in self.clusters)


@pytest.mark.random
@pytest.mark.parametrize("case", range(cases(60)))
def test_in_whatever_order_messages_arrive_never_more_upgrade_than_may_and_all_are_upgraded_in_the_end(case: int) -> None:
    choice = random.Random(f"{SEED}/{case}")  # noqa: S311
    at_once = choice.choice((1, 1, 2))
    fleet = Fleet(choice, at_once)
    for count in range(20_000):
        fleet.move()
        working = [cluster.name for cluster in fleet.clusters if cluster.upgrades and not cluster.deleted]
        assert len(working) <= at_once
        assert len(fleet.queue.turns.holders) <= at_once
        if count == 100 and choice.random() < 0.5:
            # Whoever has the turn, or waits, is deleted.
            choice.choice(fleet.clusters).deleted = True
        if fleet.quiet():
            break
    assert fleet.quiet()


@pytest.mark.random
@pytest.mark.parametrize("case", range(cases(30)))
def test_whoever_hangs_or_is_lost_with_its_turn_stops_the_others_for_a_lease_only(case: int) -> None:
    choice = random.Random(f"{SEED}/lost/{case}")  # noqa: S311
    fleet = Fleet(choice, 1)
    hanging = choice.choice(fleet.clusters)
    others = [cluster for cluster in fleet.clusters if cluster is not hanging]
    # It asks, and from then on nobody runs it.
    hanging.turn.follow(running=True)
    message = hanging.message()
    assert message
    fleet.queue.turns.request(message, fleet.queue.now)
    fleet.queue.turns.advance(fleet.queue.now)
    fleet.clusters = others
    for count in range(20_000):
        fleet.move()
        if count % 1000 == 999:
            fleet.queue.now += LEASE
            fleet.queue.turns.advance(fleet.queue.now)
            fleet.send(fleet.queue.turns.answers())
        if fleet.quiet():
            break
    assert fleet.quiet()
