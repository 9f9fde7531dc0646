"""The activities that a stack orders, and its handling of late, duplicate and odd
results, without Temporal and without a cluster.
"""

import json
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from temporalio import workflow

from activities.render.stack import components, objects
from activities.render.stack.install import INSTALL, OTHER_CRDS, Action
from activities.render.stack.removal import STEPS
from api_types import labels
from api_types.messages.cluster_work import RemainingObject, TeardownStepResult
from api_types.messages.entities import ForceFinalizer
from api_types.messages.stack import (
    ApplyChartCrds,
    ApplyStackObjects,
    CheckStack,
    EnsuredRelease,
    EnsureRelease,
    Lag,
    ListLoadBalancers,
    LoadBalancers,
    PreflightStack,
    PurgedDefinitions,
    PurgeDefinitions,
    RemovedFinalizer,
    StackApplied,
    StackOrder,
    StackPlan,
    StackSeen,
)
from tests.workflows.inference_cluster.builders import a_cluster
from tests.workflows.inference_cluster.test_stack_plan import (
    a_complete_stack,
    a_plan,
    a_stack,
    take,
)
from workflows.entity.conditions import condition_of
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.stack.installer import StackInstaller
from workflows.inference_cluster.stack.plan import (
    CHECK,
    PREFLIGHT,
    RESTART,
    is_carried_out,
)
from workflows.inference_cluster.stack.removal import (
    FINALIZER,
    FINALIZERS_MAX,
    REMOVE,
    StackRemoval,
)
from workflows.inference_cluster.stack.turn import StackTurn
from workflows.inference_cluster.stack.verdict import progress_lines, stack_verdict
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState

HUGE = "x" * 100_000


class Call(NamedTuple):
    """A running call."""

    order: Any
    done: Callable[[Any], None]
    failed: Callable[[Failure], None]


class Calls(BackgroundCalls):
    """Calls that end when the test ends them. Late results are kept too."""

    def __init__(self) -> None:
        self.now: dict[str, Call] = {}
        self.started: list[str] = []

    def running(self, key: str) -> bool:
        return key in self.now

    @property
    def keys(self) -> list[str]:
        return list(self.now)

    def start(
        self,
        key: str,
        call: Callable[[], Awaitable[Any]],
        done: Callable[[Any], None],
        failed: Callable[[Failure], None],
    ) -> None:
        if key not in self.now:
            self.started.append(key)
            self.now[key] = Call(call(), done, failed)

    def stop(self, key: str) -> None:
        self.now.pop(key, None)

    def end(self, key: str, result: Any) -> Call:
        call = self.now.pop(key)
        call.done(result)
        return call


class NoTurn(StackTurn):
    """Let a cluster upgrade its stack at once."""

    def follow(self, *, running: bool) -> None:
        del running


class World:
    """One cluster with a managed stack.

    It upgrades at once unless it takes turns with others.
    """

    def __init__(
        self, stack: StackState, *, takes_turns: bool = False, **fields: Any
    ) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.state: ClusterState = a_cluster(annotations={}, stack=stack, **fields)
        self.calls = Calls()
        context: EntityContext[ClusterState] = EntityContext(
            "InferenceCluster",
            self.state,
            lambda: None,
            "inferencecluster/eu",
            lambda: self.time,
        )
        self.context = context
        self.turn = StackTurn(context) if takes_turns else NoTurn(context)
        self.installer = StackInstaller(context, self.calls, self.turn, lambda: None)
        self.removal = StackRemoval(context, self.calls)

    @property
    def stack(self) -> StackState:
        return self.state.stack

    def end_steps(self) -> None:
        """End the running steps with the results of their activities."""
        for key in [
            key for key in self.calls.keys if key not in (PREFLIGHT, RESTART, CHECK)
        ]:
            order = self.calls.now[key].order
            release = order.release if isinstance(order, EnsureRelease) else None
            self.calls.end(
                key,
                EnsuredRelease(name=release.name, revision=1)
                if release
                else StackApplied(objects=1),
            )

    def update(self, minutes: int = 0) -> None:
        self.time += timedelta(minutes=minutes)
        self.installer.update()


@pytest.fixture(autouse=True)
def _orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record executed activities as orders."""
    monkeypatch.setattr(
        workflow, "execute_activity_method", lambda _, order, **__: order
    )


def without(plan: StackPlan, component: str) -> StackPlan:
    return plan.model_copy(
        update={
            "digest": "old",
            "releases": {
                key: each for key, each in plan.releases.items() if key != component
            },
        }
    )


def test_a_finalizer_that_blocks_a_step_for_ten_minutes_is_named_and_still_awaited() -> (
    None
):
    world = World(a_complete_stack(), deletion_timestamp="2026-01-01T00:00:00Z")
    why = "finalizer service.kubernetes.io/load-balancer-cleanup, deleted at 2026-01-01T00:00:00Z"
    held = RemainingObject(id="v1/Service/envoy-gateway-system/envoy-eu", why=why)
    reasons, said = [], ""
    for _ in range(12):
        assert not world.removal.update()
        if world.calls.running(REMOVE):
            is_gateway = world.stack.removal.step.target == objects.GATEWAY
            world.calls.end(
                REMOVE, TeardownStepResult(remaining=[held] if is_gateway else [])
            )
        found = condition_of(world.state.conditions, "Deleting")
        assert found is not None
        reasons.append(found.reason)
        said = found.message
        world.time += timedelta(minutes=1)
    assert (reasons[2], reasons[-1]) == ("Uninstalling", "FinalizerStuck")
    assert "stack U2, step 2 of" in said
    assert f"Service envoy-gateway-system/envoy-eu ({why})" in said
    # No step is skipped automatically.
    assert world.stack.removal.step.target == objects.GATEWAY
    assert world.state.left_behind == []


def test_the_ai_gateway_is_restarted_once_when_a_check_finds_the_need() -> None:
    world = World(a_complete_stack())
    world.update()
    assert RESTART not in world.calls.started
    assert world.stack.seen is not None
    world.stack.seen = world.stack.seen.model_copy(update={"restart": True})
    world.update()
    world.update()
    assert world.calls.started.count(RESTART) == 1
    assert world.calls.end(RESTART, result=True).order.cluster_uid == world.state.uid
    assert said_of(world, "Restarted") == [
        "restarted the AI gateway, because it started before the cluster served InferencePools"
    ]
    world.update(1)
    assert world.calls.started.count(RESTART) == 1


def test_no_event_is_made_if_nothing_was_restarted() -> None:
    world = World(a_complete_stack())
    assert world.stack.seen is not None
    world.stack.seen = world.stack.seen.model_copy(update={"restart": True})
    world.update()
    world.calls.end(RESTART, result=False)
    world.update(1)
    assert (said_of(world, "Restarted"), world.calls.started.count(RESTART)) == ([], 1)


CLEANUP = "service.kubernetes.io/load-balancer-cleanup"
BALANCER = RemainingObject(
    id="v1/Service/envoy-gateway-system/envoy-eu",
    why=f"finalizer {CLEANUP}, deleted at 2026-01-01T00:00:00Z",
)


def waiting_for(held: RemainingObject) -> World:
    """Return a cluster whose removal has found a remaining object."""
    world = World(a_complete_stack(), deletion_timestamp="2026-01-01T00:00:00Z")
    world.stack.removal.number, world.stack.removal.remaining = 2, [held]
    return world


def asked(**fields: Any) -> ForceFinalizer:
    written = {
        "object": "Service/envoy-gateway-system/envoy-eu",
        "finalizer": CLEANUP,
        "accept_leak": True,
        "by": "ann",
        "reason": "gone",
    }
    return ForceFinalizer(**{**written, **fields})


def said_of(world: World, reason: str) -> list[str]:
    return [event.message for event in world.state.events if event.reason == reason]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"accept_leak": False}, "a load balancer outside the cluster may remain"),
        ({"object": "Service/default/other"}, "does not wait for it"),
        ({"object": ""}, "does not wait for it"),
        ({"finalizer": "example.com/other"}, "does not wait for it"),
    ],
)
def test_a_finalizer_that_may_leak_or_is_not_awaited_is_not_removed(
    fields: dict[str, Any], why: str
) -> None:
    world = waiting_for(BALANCER)
    world.removal.force_finalizer(asked(**fields))
    (said,) = said_of(world, "ForceRefused")
    assert why in said
    assert not world.removal.update()
    assert world.calls.started == [REMOVE]


def test_a_finalizer_is_removed_once_during_the_step_with_user_and_reason() -> None:
    world = waiting_for(BALANCER)
    assert not world.removal.update()
    world.removal.force_finalizer(asked(object=BALANCER.id))
    assert not world.removal.update()
    assert not world.removal.update()
    order = world.calls.end(FINALIZER, RemovedFinalizer(removed=True)).order
    assert (order.object, order.finalizer, order.cluster_uid) == (
        BALANCER.id,
        CLEANUP,
        world.state.uid,
    )
    assert said_of(world, "FinalizerRemoved") == [
        f"ann removed finalizer {CLEANUP} of {BALANCER.id}: gone"
    ]
    assert not world.removal.update()
    assert world.calls.started == [REMOVE, FINALIZER]


def test_a_finalizer_that_was_not_removed_is_reported_for_manual_removal() -> None:
    world = waiting_for(BALANCER)
    world.removal.force_finalizer(asked())
    assert not world.removal.update()
    world.calls.end(FINALIZER, RemovedFinalizer(why="the object is not being deleted"))
    (said,) = said_of(world, "FinalizerKept")
    assert said.endswith(
        "was not removed as requested by ann: the object is not being deleted"
    )
    for _ in range(FINALIZERS_MAX):
        world.removal.force_finalizer(asked())
    world.removal.force_finalizer(asked())
    assert "try again later" in said_of(world, "ForceRefused")[-1]
    assert len(world.stack.removal.finalizers) == FINALIZERS_MAX


@pytest.mark.parametrize("component", components.BY_KEY)
@pytest.mark.parametrize("complete", [True, False])
def test_a_plan_of_an_earlier_version_without_a_component_is_made_again(
    component: str, *, complete: bool
) -> None:
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
    # An equally old worker of the cluster makes the same plan. It is queried again,
    # ever more rarely.
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


@pytest.mark.parametrize(
    ("revision", "rewrites"),
    [(1, [True]), (0, [])],
    ids=["as it is installed", "of before"],
)
def test_objects_deleted_during_an_installation_are_installed_again(
    revision: int, rewrites: list[bool]
) -> None:
    """A check that started before an installation has no information about it."""
    component = components.LEADER_WORKER_SET.key
    world = World(a_stack())
    while not world.calls.running(CHECK):
        world.update()
        world.end_steps()
    assert component in world.stack.done
    installed = world.stack.releases[component]
    world.stack.releases[component] = installed.model_copy(
        update={"revision": revision}
    )
    world.calls.stop(CHECK)
    world.update()
    world.stack.releases[component] = installed
    lag = Lag(
        target=component,
        object="release lws-system/mp-lws",
        why="does not exist",
        missing=True,
    )
    world.calls.end(CHECK, StackSeen(digest="d", lags=[lag]))
    world.update(minutes=1)
    orders = [call.order for key, call in world.calls.now.items() if key == component]
    assert [order.rewrite for order in orders] == rewrites


def test_orders_for_releases_name_the_owner_of_the_stack() -> None:
    world = World(a_stack())
    world.stack.done = [
        step.key for step in INSTALL if step.action is not Action.RELEASE
    ]
    world.update()
    ensured = [
        call.order for key, call in world.calls.now.items() if key in components.BY_KEY
    ]
    assert ensured
    assert [order.cluster_uid for order in ensured] == ["u"] * len(ensured)
    world = World(a_complete_stack())
    world.stack.removal.number = next(
        step.number for step in STEPS if step.target == components.AI_GATEWAY.key
    )
    world.removal.update()
    assert world.calls.now[REMOVE].order.cluster_uid == "u"


def test_the_next_order_can_be_sent_however_many_objects_forced_steps_leave() -> None:
    world = World(a_complete_stack())
    left = [
        RemainingObject(id=f"v1/Service/{'n' * length}/s{number}", why=HUGE)
        for number in range(10)
        for length in (1, 1000, 2000)
    ][:20]
    for number in range(1, len(STEPS)):
        assert not world.removal.update()
        assert world.stack.removal.number == number
        world.stack.removal.remaining = [
            item.model_copy(update={"id": f"{item.id}-{number}"}) for item in left
        ]
        world.state.forced = "step"
        world.removal.update()
    assert not world.removal.update()
    assert len(world.calls.now[REMOVE].order.skipped) == 64
    assert f"v1/Service/n/s0-{len(STEPS) - 1}" in world.calls.now[REMOVE].order.skipped
    assert len(world.state.model_dump_json()) < 500_000


def refused() -> World:
    """Return a cluster under deletion whose stack was found to be of another owner."""
    world = World(StackState(), deletion_timestamp="2026-01-01T00:00:00Z")
    world.stack.failures[PREFLIGHT] = CONFLICT
    world.stack.retry_at[PREFLIGHT] = "2026-01-01T01:00:00Z"
    return world


CONFLICT = Failure("NameConflict", "the stack belongs to another cluster")
GIVEN = a_plan().model_copy(update={"found": True})


def test_a_refused_stack_that_was_given_to_the_cluster_is_removed_with_it() -> None:
    world = refused()
    assert world.installer.looks_before_removal()
    # An unreachable cluster is asked again.
    world.calls.now.pop(PREFLIGHT).failed(Failure("ClusterUnreachable", "refused"))
    assert world.installer.looks_before_removal()
    assert not world.calls.running(PREFLIGHT)
    world.time += timedelta(hours=1)
    assert world.installer.looks_before_removal()
    assert world.stack.removal.looking
    world.calls.end(PREFLIGHT, GIVEN)
    assert not world.installer.looks_before_removal()
    assert not world.removal.update()
    assert world.calls.started == [PREFLIGHT, PREFLIGHT, REMOVE]
    assert said_of(world, "ComposingBackend") == []


def test_a_cluster_that_was_reset_in_its_deletion_removes_the_stack_that_it_forgot() -> (
    None
):
    world = World(
        StackState(),
        deletion_timestamp="2026-01-01T00:00:00Z",
        reset=True,
        facts=None,
    )
    assert world.installer.looks_before_removal()
    # The stack carries the former uid until an administrator gives it to the cluster.
    world.calls.now.pop(PREFLIGHT).failed(CONFLICT)
    assert world.installer.looks_before_removal()
    shown = condition_of(world.state.conditions, "Deleting")
    assert shown is not None
    assert shown.message == f"preflight: {CONFLICT.message}"
    world.time += timedelta(hours=1)
    assert world.installer.looks_before_removal()
    world.calls.end(PREFLIGHT, GIVEN)
    assert not world.installer.looks_before_removal()
    assert not world.removal.update()
    assert world.calls.started == [PREFLIGHT, PREFLIGHT, REMOVE]


STACK_STAYS = [("stack", "eu", f"not removed: {CONFLICT.message}")]


def left_of(world: World) -> list[tuple[str, str, str]]:
    return [(each.kind, each.name, each.reason) for each in world.state.left_behind]


def test_the_deletion_ends_if_the_stack_still_belongs_to_another_owner() -> None:
    world = refused()
    assert world.installer.looks_before_removal()
    world.calls.now.pop(PREFLIGHT).failed(CONFLICT)
    for _ in range(2):
        assert not world.installer.looks_before_removal()
    assert world.removal.update()
    assert world.calls.started == [PREFLIGHT]
    assert left_of(world) == STACK_STAYS
    assert len(said_of(world, "LeftBehind")) == 1


@pytest.mark.parametrize("found", [True, False])
def test_a_cluster_without_a_preflight_removes_only_a_stack_that_it_owns(
    *, found: bool
) -> None:
    """Its class was missing, for example, and an earlier cluster may have a stack there."""
    world = World(StackState(), deletion_timestamp="2026-01-01T00:00:00Z")
    assert world.installer.looks_before_removal()
    plan = a_complete_stack().plan
    assert plan is not None
    world.calls.end(PREFLIGHT, plan.model_copy(update={"found": found}))
    assert not world.installer.looks_before_removal()
    assert world.removal.update() is not found
    assert world.calls.running(REMOVE) is found
    assert left_of(world) == []


def test_a_forced_deletion_lists_the_stack_without_looking() -> None:
    forced = refused()
    forced.state.forced = "all"
    assert not forced.installer.looks_before_removal()
    assert (forced.calls.started, left_of(forced)) == ([], STACK_STAYS)
    unknown = World(
        StackState(), deletion_timestamp="2026-01-01T00:00:00Z", forced="all"
    )
    assert not unknown.installer.looks_before_removal()
    assert left_of(unknown) == [
        (
            *STACK_STAYS[0][:2],
            "not removed: the deletion was forced before its owner was known",
        )
    ]


def test_a_cluster_that_has_never_connected_has_no_stack() -> None:
    world = World(StackState(), deletion_timestamp="2026-01-01T00:00:00Z", facts=None)
    assert not world.installer.looks_before_removal()
    assert (world.calls.started, left_of(world)) == ([], [])


def test_a_forced_removal_lists_the_objects_that_are_or_may_be_installed() -> None:
    """Helm may have created a release whose installation runs or has failed."""
    stack = a_stack()
    take(stack, objects.NAMESPACES)
    take(stack, objects.QUOTA_GROUP)
    take(stack, OTHER_CRDS)
    take(stack, components.LEADER_WORKER_SET.key)
    world = World(stack, forced="all")
    assert world.removal.update()
    assert [
        (item.kind, item.namespace, item.name) for item in world.state.left_behind
    ] == [
        ("HelmRelease", "node-feature-discovery", "mp-node-feature-discovery"),
        ("HelmRelease", "monitoring", "mp-kube-prometheus-stack"),
        ("HelmRelease", "lws-system", "mp-lws"),
        ("HelmRelease", "cert-manager", "mp-cert-manager"),
        *(("CustomResourceDefinition", "", name) for name in objects.INFERENCE_CRDS),
        ("ResourceQuota", "dra-driver-nvidia-gpu", "allow-critical-pods"),
        ("Namespace", "", "modelplane-system"),
        ("Namespace", "", "dra-driver-nvidia-gpu"),
    ]


def test_remaining_definitions_are_deleted_last_and_only_on_request_and_others_are_listed() -> (
    None
):
    world = World(a_complete_stack())
    world.stack.removal.number = len(STEPS) + 1
    assert world.removal.update()
    world.stack.removal.purge = True
    assert not world.removal.update()
    order = world.calls.now[REMOVE].order
    assert isinstance(order, PurgeDefinitions)
    assert [release.name for release in order.releases] == [
        release.name for release in a_plan().releases.values()
    ]
    kept = RemainingObject(
        id="apiextensions.k8s.io/v1/CustomResourceDefinition//pools.example.com",
        why="there are objects of it",
    )
    world.calls.end(
        REMOVE,
        PurgedDefinitions(
            kept=[kept], remaining=[RemainingObject(id="v1/Service/a/b")]
        ),
    )
    assert not world.removal.update()
    assert world.state.left_behind == []
    world.calls.end(REMOVE, PurgedDefinitions(kept=[kept]))
    assert world.removal.update()
    assert [
        (item.kind, item.name, item.location, item.reason)
        for item in world.state.left_behind
    ] == [
        (
            "CustomResourceDefinition",
            "pools.example.com",
            "eu",
            "there are objects of it",
        )
    ]
    assert [
        event.message
        for event in world.state.events
        if event.reason == "DefinitionKept"
    ] == ["pools.example.com stays: there are objects of it"]


class Campaign:
    """Random events.

    Results, including late and duplicate ones, failures, and actions of users and
    others.
    """

    def __init__(self, seed: int, world: World) -> None:
        self.choice = random.Random(seed)  # noqa: S311
        self.world = world
        self.ended = list[tuple[Call, Any]]()
        self.plans = [
            a_plan(),
            a_plan(gateway_class="other"),
            without(a_plan(), components.PROMETHEUS.key),
        ]

    def result(self, key: str, order: Any) -> Any:
        lags = [
            Lag(
                target=target,
                object="o",
                why=HUGE,
                missing=self.choice.random() < 0.5,
                gates=self.choice.random() < 0.5,
            )
            for target in self.choice.sample(
                [*components.BY_KEY, objects.GATEWAY, objects.CLASS, "unknown"],
                self.choice.randrange(3),
            )
        ]
        match order:
            case PreflightStack():
                return self.choice.choice(self.plans)
            case CheckStack():
                wanted = self.choice.choice(["", order.plan, order.plan, "other"])
                return StackSeen(
                    digest=str(self.choice.random()),
                    wanted=wanted,
                    lags=lags,
                    restart=self.choice.random() < 0.3,
                    notes=[HUGE],
                )
            case EnsureRelease():
                workloads = [f"Deployment/{'n' * 253}/{'m' * 253}"] * 64
                return EnsuredRelease(
                    name=order.release.name,
                    revision=self.choice.randrange(5),
                    workloads=workloads,
                )
            case StackOrder() if key == RESTART:
                return self.choice.random() < 0.5
            case ListLoadBalancers():
                return LoadBalancers(services=["n" * 1024] * 20, more=7)
            case ApplyStackObjects() | ApplyChartCrds():
                return StackApplied(objects=1, notes=[HUGE] * 8)
            case PurgeDefinitions():
                return PurgedDefinitions(
                    kept=[RemainingObject(id=f"v1/Service/{'n' * 900}/x", why=HUGE)]
                    * 256
                )
            case _:
                left = [
                    RemainingObject(
                        id=f"v1/Service/{'n' * 900}/{self.choice.random()}",
                        why=f"finalizer {HUGE}",
                    )
                    for _ in range(20)
                ]
                return TeardownStepResult(
                    skipped=[HUGE] * 20,
                    remaining=left if self.choice.random() < 0.5 else [],
                )

    def step(self) -> bool:
        """Do one random action; return True when the removal has ended."""
        world, now = self.world, self.world.calls.now
        what = self.choice.random()
        key = self.choice.choice(list(now)) if now else ""
        if key and what < 0.5:
            result = self.result(key, now[key].order)
            self.ended.append((world.calls.end(key, result), result))
        elif key and what < 0.6:
            failure = Failure(
                self.choice.choice(
                    ["NameConflict", "ServerError", "ClusterUnreachable", ""]
                ),
                HUGE,
            )
            now.pop(key).failed(failure)
        elif self.ended and what < 0.65:
            # The same result again, and late.
            call, result = self.choice.choice(self.ended)
            call.done(result)
        elif what < 0.7:
            world.state.annotations = (
                {} if world.state.annotations else {labels.STACK: "external"}
            )
            world.installer.retry()
        elif what < 0.75:
            world.installer.retry()
            world.removal.retry()
        elif what < 0.8:
            world.state.stack = StackState.model_validate(
                {
                    **json.loads(world.state.stack.model_dump_json(by_alias=True)),
                    "unknown": [1],
                }
            )
            world.calls.now.clear()
        elif what < 0.83 and world.state.deleting:
            world.state.forced = self.choice.choice(["step", "step", "step", "all"])
        elif what < 0.84 and not world.state.deleting:
            world.state.deletion_timestamp = "2026-01-01T00:00:00Z"
            world.stack.removal.purge = self.choice.random() < 0.5
            world.installer.stop_looking()
        world.time += timedelta(seconds=self.choice.choice([0, 0, 1, 30, 600]))
        if world.state.deleting:
            return world.removal.update()
        world.installer.update()
        return False


@pytest.mark.parametrize("seed", range(60))
def test_no_order_of_events_makes_a_pass_fail_or_the_carried_state_large(
    seed: int,
) -> None:
    campaign = Campaign(seed, World(StackState()))
    for _ in range(400):
        if campaign.step():
            break
        stack = campaign.world.stack
        progress_lines(stack)
        stack_verdict(stack, "")
        assert len(stack.done) < 200
    assert len(campaign.world.state.model_dump_json(by_alias=True)) < 1_000_000


def test_an_upgrade_of_objects_alone_is_complete_only_when_a_check_has_seen_them() -> (
    None
):
    world = World(a_complete_stack())
    world.update()
    before = world.calls.now[CHECK].order
    world.calls.end(CHECK, StackSeen(digest="d", wanted="other"))
    world.update(minutes=60)
    world.calls.end(PREFLIGHT, a_plan(gateway_class="other"))
    assert before.spec != a_plan(gateway_class="other").spec
    looks = list[CheckStack]()
    for _ in range(100):
        for key in [key for key in world.calls.keys if key in components.BY_KEY]:
            # The charts are equal, so no revision differs.
            name = world.calls.now[key].order.release.name
            world.calls.end(key, EnsuredRelease(name=name, revision=1))
        world.end_steps()
        if CHECK in world.calls.now:
            looks.append(world.calls.now[CHECK].order)
            # Only differences from the known state are reported. Here there are none.
            if not looks[-1].known:
                world.calls.end(
                    CHECK,
                    StackSeen(digest="d", wanted=a_plan(gateway_class="other").digest),
                )
        world.update(minutes=1)
        if is_carried_out(world.stack):
            break
    assert is_carried_out(world.stack)
    fresh = [
        each
        for each in looks
        if not each.known and each.spec == a_plan(gateway_class="other").spec
    ]
    assert len(fresh) >= 2, (
        "one after the GatewayClass was applied, and one after the Gateway"
    )


def test_an_unchanged_plan_of_a_preflight_completes_nothing_twice() -> None:
    world = World(a_complete_stack())

    def completed() -> int:
        return sum(
            event.count
            for event in world.state.events
            if event.reason == "StackComplete"
        )

    world.update()
    assert completed() == 1
    world.stack.replan = True
    world.update()
    assert world.stack.plan
    world.calls.end(PREFLIGHT, world.stack.plan)
    world.update()
    assert completed() == 1
