"""The order in which a stack is installed, upgraded and removed."""

import random
from collections.abc import Sequence

import pytest

from activities.render.stack import components, objects
from activities.render.stack.install import (
    ALL_READY,
    GATEWAY_CRDS,
    INSTALL,
    OTHER_CRDS,
    PAIR_READY,
    UPGRADE,
    Action,
    Step,
)
from activities.render.stack.removal import STEPS, Removal, steps_of


def before(steps: Sequence[Step], key: str) -> set[str]:
    """Return all steps that are complete when a step starts."""
    needs = {step.key: step.needs for step in steps}
    found: set[str] = set()
    waiting = list(needs[key])
    while waiting:
        if (each := waiting.pop()) not in found:
            found.add(each)
            waiting += needs[each]
    return found


@pytest.mark.parametrize("steps", [INSTALL, UPGRADE], ids=["install", "upgrade"])
def test_definitions_come_before_the_ai_gateway_and_the_gateway_after_both_deployments(
    steps: Sequence[Step],
) -> None:
    assert {
        objects.CRDS,
        GATEWAY_CRDS,
        components.AI_GATEWAY_CRDS.key,
        components.ENVOY_GATEWAY.key,
    } <= before(steps, components.AI_GATEWAY.key)
    for group in (objects.PROXY, objects.CLASS, objects.GATEWAY):
        assert PAIR_READY in before(steps, group)
    assert {objects.PROXY, objects.CLASS} <= before(steps, objects.GATEWAY)


def test_the_gateway_waits_only_for_the_steps_that_it_needs() -> None:
    others = {
        components.PROMETHEUS.key,
        components.LEADER_WORKER_SET.key,
        components.DRA_DRIVER.key,
        components.CERT_MANAGER.key,
    }
    assert not others & before(INSTALL, objects.GATEWAY)
    assert others <= before(INSTALL, ALL_READY)


@pytest.mark.parametrize("steps", [INSTALL, UPGRADE], ids=["install", "upgrade"])
def test_nothing_waits_for_envoy_gateway_alone(steps: Sequence[Step]) -> None:
    waits = [
        step
        for step in steps
        if step.action is Action.READY and components.ENVOY_GATEWAY.key in step.targets
    ]
    assert all(components.AI_GATEWAY.key in step.targets for step in waits)
    assert not {step.key for step in steps if step.action is Action.READY} & before(
        steps, components.AI_GATEWAY.key
    )


@pytest.mark.parametrize("steps", [INSTALL, UPGRADE], ids=["install", "upgrade"])
def test_the_quota_is_there_before_the_driver(steps: Sequence[Step]) -> None:
    assert {
        objects.NAMESPACES,
        objects.QUOTA_GROUP,
        components.NODE_FEATURE_DISCOVERY.key,
    } <= before(steps, components.DRA_DRIVER.key)


def test_an_upgrade_applies_definitions_first_and_changes_one_thing_at_a_time() -> None:
    order = [step.key for step in UPGRADE]
    assert all(len(step.needs) == (at > 0) for at, step in enumerate(UPGRADE))
    assert OTHER_CRDS in before(UPGRADE, components.LEADER_WORKER_SET.key)
    releases = [step.key for step in UPGRADE if step.action is Action.RELEASE]
    assert max(
        order.index(key) for key in (objects.CRDS, GATEWAY_CRDS, OTHER_CRDS)
    ) < order.index(releases[0])
    assert releases == [component.key for component in components.COMPONENTS]
    for key in releases[3:]:
        assert f"{key}-ready" in before(UPGRADE, order[order.index(f"{key}-ready") + 1])


@pytest.mark.parametrize("steps", [INSTALL, UPGRADE], ids=["install", "upgrade"])
def test_every_order_in_which_steps_may_end_completes_the_plan(
    steps: Sequence[Step],
) -> None:
    for seed in range(50):
        chance, done = random.Random(seed), list[str]()  # noqa: S311
        while len(done) < len(steps):
            possible = [
                step.key
                for step in steps
                if step.key not in done and set(step.needs) <= set(done)
            ]
            assert possible, f"seed {seed}: nothing can begin after {done}"
            done.append(chance.choice(possible))
        assert done[-1] == ALL_READY


def test_every_component_and_group_is_installed_and_removed() -> None:
    for steps in (INSTALL, UPGRADE):
        assert sorted(
            step.targets[0] for step in steps if step.action is Action.RELEASE
        ) == sorted(components.BY_KEY)
        assert {
            step.targets[0] for step in steps if step.action is Action.OBJECTS
        } == set(objects.GROUPS)
    assert sorted(
        step.target for step in STEPS if step.action is Removal.RELEASE
    ) == sorted(components.BY_KEY)
    assert sorted(
        step.target for step in STEPS if step.action is Removal.OBJECTS
    ) == sorted(objects.GROUPS)


def test_the_gateway_goes_before_its_class_and_both_before_any_release() -> None:
    order = [step.target or step.action.value for step in STEPS]
    assert order[:4] == ["routes", objects.GATEWAY, objects.CLASS, objects.PROXY]
    assert order[4:8] == ["ai-gateway", "ai-gateway-crds", "envoy-gateway", "balancers"]
    assert order[8:13] == [
        "dra-driver",
        "node-feature-discovery",
        "prometheus",
        "leader-worker-set",
        "cert-manager",
    ]
    assert order[13:] == [objects.CRDS, objects.QUOTA_GROUP, objects.NAMESPACES]
    for steps in (steps_of(purge=False), steps_of(purge=True)):
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert steps_of(purge=True)[: len(STEPS)] == steps_of(purge=False) == STEPS
