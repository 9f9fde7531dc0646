"""What a stack orders of activities, and what it does with late, doubled and odd results; without Temporal and without a cluster."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from temporalio import workflow

from activities.render.stack import components, objects
from activities.render.stack.install import INSTALL, Action
from activities.render.stack.removal import STEPS
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.stack import EnsuredRelease, EnsureRelease, StackApplied, StackPlan
from tests.workflows.inference_cluster.builders import a_cluster
from tests.workflows.inference_cluster.test_stack_plan import a_complete_stack, a_plan, a_stack
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.stack.installer import StackInstaller
from workflows.inference_cluster.stack.plan import CHECK, PREFLIGHT, RESTART
from workflows.inference_cluster.stack.removal import REMOVE, StackRemoval
from workflows.inference_cluster.stack.verdict import progress_lines, stack_verdict
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState

HUGE = "x" * 100_000


class Call(NamedTuple):
    """A call that runs."""

    order: Any
    done: Callable[[Any], None]
    failed: Callable[[Failure], None]


class Calls(BackgroundCalls):
    """Calls that end when the test says so; late results are kept too."""

    def __init__(self) -> None:
        self.now: dict[str, Call] = {}
        self.started: list[str] = []

    def running(self, key: str) -> bool:
        return key in self.now

    @property
    def keys(self) -> list[str]:
        return list(self.now)

    def start(self, key: str, call: Callable[[], Awaitable[Any]], done: Callable[[Any], None], failed: Callable[[Failure], None]) -> None:
        if key not in self.now:
            self.started.append(key)
            self.now[key] = Call(call(), done, failed)

    def stop(self, key: str) -> None:
        self.now.pop(key, None)

    def end(self, key: str, result: Any) -> Call:
        call = self.now.pop(key)
        call.done(result)
        return call


class World:
    """One cluster whose stack is managed."""

    def __init__(self, stack: StackState, **fields: Any) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.state: ClusterState = a_cluster(annotations={}, stack=stack, **fields)
        self.calls = Calls()
        context: EntityContext[ClusterState] = EntityContext(
            "InferenceCluster", self.state, lambda: None, "inferencecluster/eu", lambda: self.time
        )
        self.context = context
        self.installer = StackInstaller(context, self.calls, lambda: None)
        self.removal = StackRemoval(context, self.calls)

    @property
    def stack(self) -> StackState:
        return self.state.stack

    def end_steps(self) -> None:
        """End the steps that run, each with what its activity gives."""
        for key in [key for key in self.calls.keys if key not in (PREFLIGHT, RESTART, CHECK)]:
            order = self.calls.now[key].order
            release = order.release if isinstance(order, EnsureRelease) else None
            self.calls.end(key, EnsuredRelease(name=release.name, revision=1) if release else StackApplied(objects=1))

    def update(self, minutes: int = 0) -> None:
        self.time += timedelta(minutes=minutes)
        self.installer.update()


@pytest.fixture(autouse=True)
def _orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """An activity that is executed is its order."""
    monkeypatch.setattr(workflow, "execute_activity_method", lambda _, order, **__: order)


def without(plan: StackPlan, component: str) -> StackPlan:
    return plan.model_copy(update={"digest": "old", "releases": {key: each for key, each in plan.releases.items() if key != component}})


@pytest.mark.parametrize("component", components.BY_KEY)
@pytest.mark.parametrize("complete", [True, False])
def test_a_plan_of_an_earlier_version_that_lacks_a_component_is_made_anew(component: str, *, complete: bool) -> None:
    stack = a_complete_stack() if complete else a_stack()
    stack.plan = without(a_plan(), component)
    stack.done = [key for key in stack.done if key != component]
    stack.releases.pop(component, None)
    world = World(stack)
    world.update()
    world.end_steps()
    world.update(minutes=1)
    world.end_steps()
    world.update()
    assert PREFLIGHT in world.calls.keys
    # A worker of the cluster that is as old makes the same one: it is asked again, ever more rarely.
    for _ in range(600):
        if world.calls.running(PREFLIGHT):
            world.calls.end(PREFLIGHT, without(a_plan(), component))
        world.end_steps()
        world.update(minutes=1)
    assert 10 < world.calls.started.count(PREFLIGHT) < 40
    if not world.calls.running(PREFLIGHT):
        world.update(minutes=31)
    world.calls.end(PREFLIGHT, a_plan())
    world.update()
    assert world.stack.plan == a_plan()
    assert (world.stack.upgrading, world.stack.replan) == (complete, False)
    assert objects.NAMESPACES in world.calls.keys
    progress_lines(world.stack)
    stack_verdict(world.stack, "")


def test_orders_for_releases_say_whose_the_stack_is() -> None:
    world = World(a_stack())
    world.stack.done = [step.key for step in INSTALL if step.action is not Action.RELEASE]
    world.update()
    ensured = [call.order for key, call in world.calls.now.items() if key in components.BY_KEY]
    assert ensured
    assert [order.cluster_uid for order in ensured] == ["u"] * len(ensured)
    world = World(a_complete_stack())
    world.stack.removal.number = next(step.number for step in STEPS if step.target == components.AI_GATEWAY.key)
    world.removal.update()
    assert world.calls.now[REMOVE].order.cluster_uid == "u"


def test_however_much_every_forced_step_leaves_the_next_order_can_be_sent() -> None:
    world = World(a_complete_stack())
    left = [RemainingObject(id=f"v1/Service/{'n' * length}/s{number}", why=HUGE) for number in range(10) for length in (1, 1000, 2000)][:20]
    for number in range(1, len(STEPS)):
        assert not world.removal.update()
        assert world.stack.removal.number == number
        world.stack.removal.remaining = [item.model_copy(update={"id": f"{item.id}-{number}"}) for item in left]
        world.state.forced = "step"
        world.removal.update()
    assert not world.removal.update()
    assert len(world.calls.now[REMOVE].order.skipped) == 64
    assert f"v1/Service/n/s0-{len(STEPS) - 1}" in world.calls.now[REMOVE].order.skipped
    assert len(world.state.model_dump_json()) < 500_000
