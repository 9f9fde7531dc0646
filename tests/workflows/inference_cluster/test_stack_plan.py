"""When the steps of a stack may run, and its condition, without Temporal and without a cluster."""

import random
from itertools import count
from typing import Any, NamedTuple

import pytest

from activities.render.stack import components, objects
from activities.render.stack.install import (
    ALL_READY,
    GATEWAY_CRDS,
    INSTALL,
    PAIR_READY,
    S2B,
    S4,
    UPGRADE,
    Action,
)
from activities.stack.preflight import make_plan
from api_types.messages.cluster_work import Connection
from api_types.messages.stack import InstalledRelease, Lag, StackPlan, StackSeen
from api_types.sections.stacks import StackSettings
from workflows.entity.failures import Failure
from workflows.inference_cluster.stack.plan import (
    PREFLIGHT,
    begin_plan,
    complete_idle_steps,
    coverage,
    covers,
    is_carried_out,
    missing_targets,
    open_steps,
    reopen,
)
from workflows.inference_cluster.stack.verdict import progress_lines, stack_verdict
from workflows.inference_cluster.stack_state import StackState

NOW, ADDRESS = "2026-01-01T00:00:00Z", "192.0.2.1"
SEEDS = range(40)


def a_plan(**settings: Any) -> StackPlan:
    return make_plan(
        "Existing",
        Connection(
            cluster="eu", namespace="modelplane-system", name="eu", key="kubeconfig"
        ),
        StackSettings(**settings),
    )


def a_stack(plan: StackPlan | None = None, **fields: Any) -> StackState:
    stack = StackState()
    begin_plan(stack, plan or a_plan(), NOW)
    return stack.model_copy(update=fields)


def take(stack: StackState, key: str, revision: int = 1) -> None:
    """Complete a step that has an effect."""
    step = next(step for step in open_steps(stack) if step.key == key)
    assert step.action is not Action.READY
    stack.done.append(key)
    if step.action is Action.OBJECTS:
        stack.groups = list(dict.fromkeys([*stack.groups, *step.targets]))
    elif step.action is Action.RELEASE:
        assert stack.plan
        release = stack.plan.releases[key]
        found = InstalledRelease(
            component=key,
            name=release.name,
            namespace=release.namespace,
            revision=revision,
        )
        stack.releases[key] = found


def look(stack: StackState, *lags: Lag, **fields: Any) -> None:
    """Report a check in which all but these are installed as planned."""
    stack.seen, stack.covered = StackSeen(lags=list(lags), **fields), coverage(stack)


def carry_out(stack: StackState, seed: int, revision: int = 1) -> list[str]:
    """Run steps in a random order that the plan allows, with checks in between.

    Return that order.
    """
    choice = random.Random(seed)  # noqa: S311
    for _ in count():
        complete_idle_steps(stack, ADDRESS)
        steps = [step for step in open_steps(stack) if step.action is not Action.READY]
        if steps:
            take(stack, choice.choice(steps).key, revision)
        elif not open_steps(stack):
            break
        if choice.random() < 0.5 or not steps:
            look(stack)
    return stack.done


def a_complete_stack(plan: StackPlan | None = None) -> StackState:
    stack = a_stack(plan)
    carry_out(stack, 1)
    stack.complete = True
    look(stack)
    return stack


@pytest.mark.parametrize("seed", SEEDS)
def test_every_step_runs_once_and_after_its_dependencies_in_any_order_of_results(
    seed: int,
) -> None:
    stack = a_stack()
    done = carry_out(stack, seed)
    assert sorted(done) == sorted(step.key for step in INSTALL)
    at = {key: number for number, key in enumerate(done)}
    assert all(at[need] < at[step.key] for step in INSTALL for need in step.needs)
    assert at[objects.CRDS] < at[components.AI_GATEWAY.key]
    assert at[GATEWAY_CRDS] < at[components.AI_GATEWAY.key]
    assert (
        max(at[components.ENVOY_GATEWAY.key], at[components.AI_GATEWAY.key])
        < at[PAIR_READY]
        < at[objects.GATEWAY]
    )
    assert done[-1] == ALL_READY


def test_an_installation_runs_steps_in_parallel_and_an_upgrade_one_by_one() -> None:
    stack = a_stack()
    take(stack, objects.NAMESPACES)
    assert len(open_steps(stack)) > 2
    stack = a_complete_stack()
    begin_plan(stack, a_plan(versions={"leaderWorkerSet": "v0.8.1"}), NOW)
    taken = []
    while steps := open_steps(stack):
        assert len(steps) == 1
        (step,) = steps
        if step.action is Action.READY:
            look(stack)
            complete_idle_steps(stack, ADDRESS)
        else:
            take(stack, step.key, 2)
        taken.append(step.key)
    assert taken == [step.key for step in UPGRADE]


def test_the_pair_is_not_ready_before_both_are_installed_and_observed() -> None:
    stack = a_stack()
    for key in (
        objects.NAMESPACES,
        objects.CRDS,
        GATEWAY_CRDS,
        components.AI_GATEWAY_CRDS.key,
        components.ENVOY_GATEWAY.key,
    ):
        take(stack, key)
    look(stack)
    complete_idle_steps(stack, ADDRESS)
    assert PAIR_READY not in stack.done
    take(stack, components.AI_GATEWAY.key)
    complete_idle_steps(stack, ADDRESS)
    assert PAIR_READY not in stack.done, "earlier observations do not count for it"
    assert not covers(stack.covered, stack)
    look(
        stack,
        Lag(
            target=components.ENVOY_GATEWAY.key,
            object="Deployment envoy-gateway",
            why="0/1 pods are available",
        ),
    )
    complete_idle_steps(stack, ADDRESS)
    assert PAIR_READY not in stack.done
    look(
        stack,
        Lag(
            target=components.PROMETHEUS.key,
            object="Deployment prometheus",
            why="0/1 pods are available",
        ),
    )
    complete_idle_steps(stack, ADDRESS)
    assert PAIR_READY in stack.done


def test_a_new_revision_does_not_inherit_readiness() -> None:
    stack = a_complete_stack()
    begin_plan(stack, a_plan(versions={"leaderWorkerSet": "v0.8.1"}), NOW)
    while (
        step := open_steps(stack)[0]
    ).key != f"{components.LEADER_WORKER_SET.key}-ready":
        if step.action is Action.READY:
            look(stack)
            complete_idle_steps(stack, ADDRESS)
        else:
            take(stack, step.key, 2)
    complete_idle_steps(stack, ADDRESS)
    assert open_steps(stack)[0].key == step.key
    look(stack)
    complete_idle_steps(stack, ADDRESS)
    assert open_steps(stack)[0].key != step.key


def test_the_first_installation_waits_for_an_address_and_an_upgrade_does_not() -> None:
    stack = a_stack()
    carry_out(stack, 1)
    stack.done.remove(ALL_READY)
    complete_idle_steps(stack, "")
    assert not is_carried_out(stack)
    stack.complete = True
    complete_idle_steps(stack, "")
    assert is_carried_out(stack)


def test_an_unchanged_plan_has_no_effect_and_another_one_upgrades_only_a_complete_stack() -> (
    None
):
    stack = a_complete_stack()
    before = stack.model_copy(deep=True)
    begin_plan(stack, a_plan(), NOW)
    assert stack == before
    unfinished = a_stack()
    take(unfinished, objects.NAMESPACES)
    other = a_plan(versions={"leaderWorkerSet": "v0.8.1"})
    for each, upgrading in ((stack, True), (unfinished, False)):
        begin_plan(each, other, NOW)
        assert (each.upgrading, each.done, each.plan) == (upgrading, [], other)


@pytest.mark.parametrize(
    "target", [components.PROMETHEUS.key, objects.GATEWAY, components.ENVOY_GATEWAY.key]
)
def test_only_missing_objects_are_applied_again(target: str) -> None:
    stack = a_complete_stack()
    look(
        stack,
        Lag(target=target, object="x", why="does not exist", missing=True),
        Lag(target="quota", object="y", why="slow"),
    )
    assert stack.seen
    assert missing_targets(stack.seen) == [target]
    reopen(stack, [target])
    assert [
        step.key for step in open_steps(stack) if step.action is not Action.READY
    ] == [target]
    take(stack, target, 2)
    look(stack)
    complete_idle_steps(stack, ADDRESS)
    assert is_carried_out(stack)


# The condition


def until_stage_s4() -> StackState:
    stack = a_stack()
    carry_out(stack, 3)
    stack.done.remove(ALL_READY)
    look(stack, address_events=["SyncLoadBalancerFailed: no quota"])
    return stack


def in_stage_2b(**fields: Any) -> StackState:
    stack = a_stack(**fields)
    for key in (
        objects.NAMESPACES,
        objects.CRDS,
        GATEWAY_CRDS,
        components.AI_GATEWAY_CRDS.key,
        components.ENVOY_GATEWAY.key,
    ):
        take(stack, key)
    take(stack, components.AI_GATEWAY.key)
    look(
        stack,
        Lag(
            target=components.AI_GATEWAY.key,
            object="Deployment ai-gateway-controller",
            why="0/1 pods are available",
        ),
    )
    return stack


class Case(NamedTuple):
    id: str
    stack: StackState
    address: str
    expected: tuple[str, str]
    said: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()


def a_late_one(stack: StackState, stage: str) -> StackState:
    return stack.model_copy(update={"late": [stage]})


def with_lag(**fields: Any) -> StackState:
    stack = a_complete_stack()
    look(stack, Lag(**fields))
    return stack


CONFLICT = Failure(
    "NameConflict", "GatewayClass envoy belongs to others (controller example.com/x)"
)
FAILED = Failure("ChartUnavailable", "chart lws v0.8.1 is not there")
CASES = [
    Case(
        "nothing is known yet",
        StackState(),
        "",
        ("False", "Installing"),
        ("preflight",),
    ),
    Case(
        "others are in the way",
        StackState(failures={PREFLIGHT: CONFLICT}),
        "",
        ("False", "ReleaseConflict"),
        ("envoy belongs",),
    ),
    Case(
        "a failed preflight has its error",
        StackState(
            failures={PREFLIGHT: Failure("Unsupported", "no usable helm program")}
        ),
        "",
        ("False", "Unsupported"),
        ("no usable helm",),
    ),
    Case(
        "a release that takes objects of others",
        a_stack(failures={"cert-manager": CONFLICT}),
        ADDRESS,
        ("False", "ReleaseConflict"),
    ),
    Case(
        "outdated releases are named",
        in_stage_2b(),
        "",
        ("False", "Installing"),
        (
            "S2b gateway pair: Deployment ai-gateway-controller: 0/1 pods are available",
            "S1 base: applies quota",
        ),
        ("longer",),
    ),
    Case(
        "a late stage is reported",
        a_late_one(in_stage_2b(), S2B.number),
        "",
        ("False", "Installing"),
        ("takes longer than 10 min",),
    ),
    Case(
        "a step that fails is named",
        in_stage_2b(failures={"lws": FAILED, "other-crds": FAILED}),
        "",
        ("False", "Installing"),
        ("other-crds: ChartUnavailable: chart lws v0.8.1 is not there",),
    ),
    Case(
        "without an address",
        until_stage_s4(),
        "",
        ("False", "Installing"),
        ("no address yet", "SyncLoadBalancerFailed: no quota"),
    ),
    Case(
        "after 15 minutes",
        a_late_one(until_stage_s4(), S4.number),
        "",
        ("False", "GatewayAddressPending"),
        ("takes longer than 15 min", "SyncLoadBalancerFailed: no quota"),
    ),
    Case("all is there", a_complete_stack(), ADDRESS, ("True", "BackendHealthy")),
    Case(
        "a component is broken",
        with_lag(
            target="node-feature-discovery",
            object="DaemonSet nfd-worker",
            why="4/5 pods are available",
            gates=False,
        ),
        ADDRESS,
        ("True", "BackendHealthy"),
        ("DaemonSet nfd-worker: 4/5 pods are available",),
    ),
    Case(
        "a serving component is missing",
        with_lag(
            target="envoy-gateway",
            object="Deployment envoy-gateway",
            why="0/1 pods are available",
        ),
        ADDRESS,
        ("False", "StackUnavailable"),
        ("0/1",),
    ),
    Case(
        "the address is lost",
        a_complete_stack(),
        "",
        ("False", "Installing"),
        ("lost its address",),
    ),
    Case(
        "a failed upgrade does not affect the serving components",
        a_complete_stack().model_copy(
            update={"failures": {"leader-worker-set": FAILED}}
        ),
        ADDRESS,
        ("True", "BackendHealthy"),
        ("UpgradeFailed: leader-worker-set: chart lws",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_condition_of_a_managed_stack(case: Case) -> None:
    verdict = stack_verdict(case.stack, case.address)
    assert verdict[:2] == case.expected, verdict
    assert all(text in verdict.message for text in case.said), verdict.message
    assert not any(text in verdict.message for text in case.unsaid), verdict.message


def test_notes_for_users_are_part_of_the_condition() -> None:
    stack = a_complete_stack()
    notes = [
        "no ResourceSlice of gpu.nvidia.com is published",
        "VersionMismatch: the cluster has Gateway API v1.4.0",
    ]
    look(stack, notes=notes)
    message = stack_verdict(stack, ADDRESS).message
    assert all(note in message for note in notes)


def test_the_temporal_ui_shows_releases_and_open_stages() -> None:
    lines = progress_lines(in_stage_2b())
    assert "| envoy-gateway | mp-gateway-helm | v1.8.1 | 1 |" in lines
    assert "| prometheus | mp-kube-prometheus-stack | 72.6.2 | - |" in lines
    assert any(line.startswith("- S2b gateway pair") for line in lines)
    assert progress_lines(StackState()) == []
