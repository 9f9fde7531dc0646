"""The turns of clusters to upgrade their stacks, with `stack_upgrade_parallelism`,
without Temporal and without clusters.
"""

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
from workflows.stack_upgrades.turns import LEASE, UpgradeTurns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 5


class Queue:
    """The turns, with a clock that the test sets."""

    def __init__(self, state: UpgradesState | None = None) -> None:
        self.now = NOW
        self.said = list[str]()
        self.number = 0
        self.turns = self._turns(state or UpgradesState())

    def _turns(self, state: UpgradesState) -> UpgradeTurns:
        return UpgradeTurns(
            state,
            lambda last: max(last + 1, int(self.now.timestamp() * 1000)),
            lambda _, message: self.said.append(message),
        )

    def ask(self, cluster: str, **fields: Any) -> dict[str, UpgradeTurn]:
        """Receive a request; return the answers to clusters."""
        self.number += 1
        message = UpgradeRequest(
            **{
                "cluster": cluster,
                "uid": cluster,
                "turn": 1,
                "sequence": self.number,
                **fields,
            }
        )
        self.turns.request(message, self.now)
        return self.advance()

    def advance(self, *, minutes: int = 0) -> dict[str, UpgradeTurn]:
        self.now += timedelta(minutes=minutes)
        self.turns.advance(self.now)
        return {
            cluster: UpgradeTurn.model_validate(sent.payload)
            for cluster, sent in self.turns.answers().items()
        }

    def carry(self) -> None:
        """Start another run."""
        state = self.turns.carried(UpgradesState()).model_dump(
            mode="json", by_alias=True
        )
        self.turns = self._turns(UpgradesState.model_validate(state))


def told(answers: dict[str, UpgradeTurn]) -> dict[str, bool | list[str]]:
    """Return per cluster whether it may upgrade, or the holders it waits for."""
    return {
        cluster: answer.granted or answer.holders for cluster, answer in answers.items()
    }


def test_of_two_requests_one_is_granted_and_the_other_learns_its_holder() -> None:
    queue = Queue()
    assert told(queue.ask("eu")) == {"eu": True}
    assert told(queue.ask("us")) == {"us": ["eu"]}
    assert told(queue.advance()) == {}
    assert told(queue.ask("eu", wanted=False)) == {"us": True}


def test_the_smallest_setting_limits_the_parallel_upgrades() -> None:
    queue = Queue()
    for cluster in ("a", "b"):
        queue.ask(cluster, at_once=3)
    assert queue.turns.holders == ["a", "b"]
    queue.ask("c", at_once=2)
    queue.ask("d", at_once=3)
    assert (queue.turns.holders, queue.turns.waiting) == (["a", "b"], ["c", "d"])
    # The workers of one cluster have a raised setting, and it reports that.
    queue.ask("c", at_once=3)
    assert (queue.turns.holders, queue.turns.waiting) == (["a", "b", "c"], ["d"])
    queue.ask("a", wanted=False)
    assert queue.turns.holders == ["b", "c", "d"]


def test_a_holder_without_progress_moves_to_the_end_of_the_queue_when_others_wait() -> (
    None
):
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
    # A repeated report is no progress.
    queue.ask("eu", progress="1/4", holds=True)
    assert told(queue.advance(minutes=1)) == {"us": True, "asia": ["us"], "eu": ["us"]}
    assert queue.turns.waiting == ["asia", "eu"]
    assert (
        "cluster eu made no progress for 30 min: the next cluster upgrades"
        in queue.said
    )
    # It does not know yet that its turn is over.
    assert told(queue.ask("eu", progress="1/5", holds=True)) == {"eu": ["us"]}


def test_a_deleted_or_missing_cluster_neither_waits_nor_holds_a_turn() -> None:
    queue = Queue()
    queue.ask("eu")
    queue.ask("us")
    queue.ask("asia")
    queue.turns.drop("us")
    assert told(queue.ask("eu", wanted=False)) == {"asia": True}
    # A recreated cluster with the same name needs its own turn.
    queue.ask("eu", uid="second", turn=2)
    assert (queue.turns.holders, queue.turns.waiting) == (["asia"], ["eu"])


def test_the_next_run_continues_and_a_run_without_state_lets_upgrades_finish() -> None:
    queue = Queue()
    queue.ask("eu")
    queue.ask("us")
    queue.carry()
    assert told(queue.advance()) == {}
    assert (queue.turns.holders, queue.turns.waiting) == (["eu"], ["us"])
    lost = Queue()
    lost.turns.request(UpgradeRequest(cluster="us", uid="us", turn=1, sequence=1), NOW)
    lost.turns.request(
        UpgradeRequest(cluster="eu", uid="eu", turn=1, sequence=1, holds=True), NOW
    )
    assert told(lost.advance()) == {"us": ["eu"], "eu": True}


class Cluster:
    """One cluster with an upgrade: its real turn client, and steps that tests complete."""

    def __init__(self, name: str, now: Callable[[], datetime]) -> None:
        self.state: ClusterState = a_cluster(
            uid=name, annotations={}, stack=a_complete_stack()
        )
        context: EntityContext[ClusterState] = EntityContext(
            "InferenceCluster",
            self.state,
            lambda: None,
            f"inferencecluster/{name}",
            now,
        )
        self.now, self.name, self.deleted = now, name, False
        self.state.stack.completed_plan = self.state.stack.planned_at
        self.state.stack.replan = True
        self.turn = StackTurn(context)

    @property
    def upgrades(self) -> bool:
        return bool(self.state.stack.turn.granted)

    @property
    def is_complete(self) -> bool:
        return not self.state.stack.replan and not is_upgrading(self.state.stack)

    def step(self) -> None:
        """Start or continue the upgrade, if the cluster has its turn."""
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
    """Clusters and their queue.

    Messages arrive late and twice, but in order between one sender and one receiver.
    """

    def __init__(self, choice: random.Random, at_once: int) -> None:
        self.choice, self.queue = choice, Queue()
        self.clusters = [
            Cluster(name, lambda: self.queue.now) for name in ("a", "b", "c", "d")
        ]
        for cluster in self.clusters:
            cluster.state.stack.seen = StackSeen(upgrades_at_once=at_once)
        self.to_queue: dict[str, list[UpgradeRequest]] = {
            cluster.name: [] for cluster in self.clusters
        }
        self.to_clusters: dict[str, list[UpgradeTurn]] = {
            cluster.name: [] for cluster in self.clusters
        }

    def send(self, answers: dict[str, SignalRequest]) -> None:
        for name, sent in answers.items():
            self.to_clusters[name] += [
                UpgradeTurn.model_validate(sent.payload)
            ] * self.choice.choice((1, 2))

    def move(self) -> None:
        """Let one random event happen."""
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
def test_any_order_of_messages_respects_the_limit_and_upgrades_all_clusters(
    case: int,
) -> None:
    choice = random.Random(f"{SEED}/{case}")  # noqa: S311
    at_once = choice.choice((1, 1, 2))
    fleet = Fleet(choice, at_once)
    for count in range(20_000):
        fleet.move()
        working = [
            cluster.name
            for cluster in fleet.clusters
            if cluster.upgrades and not cluster.deleted
        ]
        assert len(working) <= at_once
        assert len(fleet.queue.turns.holders) <= at_once
        if count == 100 and choice.random() < 0.5:
            # A cluster that holds a turn or waits for one is deleted.
            choice.choice(fleet.clusters).deleted = True
        if fleet.quiet():
            break
    assert fleet.quiet()


@pytest.mark.random
@pytest.mark.parametrize("case", range(cases(30)))
def test_a_hanging_or_lost_holder_blocks_the_others_only_for_a_lease(
    case: int,
) -> None:
    choice = random.Random(f"{SEED}/lost/{case}")  # noqa: S311
    fleet = Fleet(choice, 1)
    hanging = choice.choice(fleet.clusters)
    others = [cluster for cluster in fleet.clusters if cluster is not hanging]
    # The cluster requests a turn, and from then on it does not run.
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
